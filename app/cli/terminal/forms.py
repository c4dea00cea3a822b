"""Forms: asks a person at the terminal for each field of a question (`ask_person`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from toolchart.app.cli.terminal.line_reading import ReadLine, read_terminal_line
from toolchart.app.cli.terminal.text import print_notice, shorten
from toolchart.engine.runtime.people import find_form_problem
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import AskPerson
from toolchart.states.events import Answered

_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_MISSING = object()


class FormPrompt:
    """An asker that asks for the fields of a form, one line each.

    A field with a default, or one that is not required, may be left empty. A line that does not fit is asked
    for again, with the reason. The end of the input leaves the question open; `toolchart resume ID --answer`
    answers it at any time.

    Args:
        read_line: shows a prompt and returns a line.
        by: who answers, for the log.
    """

    def __init__(self, read_line: ReadLine = read_terminal_line, by: str = "terminal") -> None:
        self._read_line = read_line
        self._by = by

    async def __call__(self, question: AskPerson) -> Answered | None:
        """Ask until there is an answer that fits the form; None means later."""
        print_notice(question.question)
        content: dict[str, Any] = {}
        while True:
            answer = await self._ask_fields(question.form, content)
            if answer is None:
                return None
            content = answer
            problem = find_form_problem(question.form, content)
            if problem is None:
                return Answered(content=content, by=self._by)
            print_notice(f"  {': '.join(filter(None, problem))}; please answer again")

    async def _ask_fields(self, form: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of a form; None where the input ends. Earlier answers are the defaults."""
        fields = form.get("properties") or {}
        required = form.get("required") or ()
        if not fields:
            return await self._ask_object(form)
        content: dict[str, Any] = {}
        for name, field in fields.items():
            schema = field if isinstance(field, Mapping) else {}
            if name in earlier:
                schema = {**schema, "default": earlier[name]}
            value = await self._ask_field(form, name, schema, is_required=name in required)
            if value is None:
                return None
            if value[0] is not _MISSING:
                content[name] = value[0]
        return content

    async def _ask_field(
        self, form: Mapping[str, Any], name: str, schema: Mapping[str, Any], *, is_required: bool
    ) -> tuple[Any] | None:
        """The value of a field in a tuple of one; None where the input ends."""
        if schema.get("description"):
            print_notice(f"  {schema['description']}")
        while True:
            line = await self._read_line(_format_prompt(name, schema, is_required=is_required))
            if line is None:
                return None
            if not line and "default" in schema:
                return (schema["default"],)
            if not line and not is_required:
                return (_MISSING,)
            value = parse_field(schema, line)
            problem = find_form_problem(_build_field_form(form, name, schema), {name: value})
            if line and problem is None:
                return (value,)
            print_notice(f"  {problem[1] if problem and line else 'a value is needed'}")

    async def _ask_object(self, form: Mapping[str, Any]) -> dict[str, Any] | None:
        """An object of a form without fields, as JSON."""
        while (line := await self._read_line("  answer as a JSON object: ")) is not None:
            value = parse_field({"type": "object"}, line or "{}")
            if isinstance(value, dict) and find_form_problem(form, value) is None:
                return value
            print_notice("  this is no JSON object that fits")
        return None


def parse_field(schema: Mapping[str, Any], line: str) -> Any:
    """The value that a line says: a text, a number, `y` or `n`, one of the choices, or JSON. A line that can
    be none of these stays a text, which the form then refuses.

    >>> parse_field({"type": "integer"}, "7"), parse_field({"type": "boolean"}, "y")
    (7, True)
    """
    for choice in schema.get("enum") or ():
        if line.lower() == str(choice).lower():
            return choice
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "boolean" in kinds and line.lower() in _WORDS:
        return _WORDS[line.lower()]
    if "string" in kinds:
        return line
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    is_free_text = kinds == [None] and "enum" not in schema and not isinstance(value, dict | list)
    return line if is_free_text else value


def _build_field_form(form: Mapping[str, Any], name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The form with one field, and with the definitions that it may refer to."""
    definitions = {key: form[key] for key in ("$defs", "definitions") if key in form}
    return {**definitions, "type": "object", "properties": {name: schema}}


def _format_prompt(name: str, schema: Mapping[str, Any], *, is_required: bool) -> str:
    """The text before a line: name, what may be typed, and the default."""
    label = shorten(str(schema.get("title") or name), 60)
    kind = schema.get("type")
    words = {"boolean": "y or n", "array": "JSON list", "object": "JSON object", "string": ""}
    hint = ""
    if schema.get("enum"):
        hint = ", ".join(str(choice) for choice in schema["enum"])
    elif isinstance(kind, str):
        hint = words.get(kind, kind)
    if "default" in schema:
        default = schema["default"]
        text = default if isinstance(default, str) else encode_canonical_text(default)
        return f"  {label}{f' ({hint})' if hint else ''} [{shorten(text, 60)}]: "
    notes = ", ".join(filter(None, (hint, "" if is_required else "optional")))
    return f"  {label}{f' ({notes})' if notes else ''}: "
