"""Asks people for `ask_person`, and checks what they answer against the form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from toolchart.engine.runtime.flows.port import DriverPort
from toolchart.engine.runtime.flows.waiting import list_questions
from toolchart.states.effects import AskPerson
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.snapshot import Snapshot


async def ask_person(driver: DriverPort, effect: AskPerson) -> None:
    """Ask the person that the engine was given; without one the effect waits for an event from outside.

    Raises:
        SpecError: the asker's answer does not fit the form; the question stays open.
    """
    asker = driver.dependencies.asker
    await driver.commit()
    answer = await asker(effect) if asker is not None else None
    if not driver.is_open(effect):
        return
    if answer is None:
        driver.wait_for_outside(effect)
        return
    check_answer(effect, answer.content)
    driver.apply_event(replace(answer, effect=effect.id))


def find_question(snapshot: Snapshot, conversation: str, name: str | None = None) -> AskPerson:
    """The open question of this name; without a name the only one.

    Raises:
        SpecError: no such question is open, or several are and none is named.
    """
    questions = list_questions(snapshot)
    if not questions:
        raise SpecError(f"no question waits for an answer in conversation {conversation!r}")
    names = [question.name for question in questions]
    if name is None and len(questions) > 1:
        raise SpecError(
            f"{len(questions)} questions wait for an answer in conversation {conversation!r}",
            hint=f"name the one that you answer: {', '.join(names)}",
        )
    for question in questions:
        if name in (None, question.name):
            return question
    raise SpecError(
        f"no question {name!r} waits for an answer in conversation {conversation!r}",
        hint=suggest_name(str(name), names),
    )


def check_answer(question: AskPerson, content: Any) -> None:
    """Check an answer against the form of its question.

    Raises:
        SpecError: it does not fit; the error names the field, and nothing was written.
    """
    problem = find_form_problem(question.form, content)
    if problem is not None:
        field, message = problem
        raise SpecError(
            f"the answer to {question.name!r} does not fit its form: {message}",
            path=field or None,
            hint="nothing was written; the question still waits",
        )


def find_form_problem(form: Mapping[str, Any], content: Any) -> tuple[str, str] | None:
    """What is wrong with an answer: the path of the field, such as `days[0].from`, and why; None where it
    fits.

    Formats such as `date` and `email` are checked too.

    Raises:
        SpecError: the form itself is no JSON Schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(form)
    except SchemaError as error:
        raise SpecError(f"the form is no JSON Schema: {error.message}") from None
    validator = Draft202012Validator(form, format_checker=Draft202012Validator.FORMAT_CHECKER)
    errors = sorted(validator.iter_errors(content), key=lambda error: len(error.absolute_path))
    return (_format_field(errors[0].absolute_path), errors[0].message) if errors else None


def _format_field(path: Iterable[Any]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
