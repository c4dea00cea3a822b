"""The facts of a result: its counters, and the required scalar fields of its schema with their ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolchart.states.events import FAILURE_KINDS
from toolchart.states.flows.parameters import DeclarationProblem
from toolchart.states.flows.reducers import Reducers
from toolchart.states.flows.results import RESERVED_FACTS, read_result_fact
from toolchart.states.messages import FINISH_REASONS
from toolchart.states.vocabulary import Fact

VALUE_FACTS = "with every value of the result"


def build_result_facts(
    name: str,
    effect: str,
    answers: tuple[str, ...],
    failures: tuple[str, ...],
    schema: Mapping[str, Any] | None,
    reducers: Reducers | None = None,
) -> tuple[Fact, ...]:
    """The facts of a result that an effect brings.

    Args:
        effect: name of the effect, for the events that move the counters.
        answers: events that bring a value.
        failures: events that bring none.
        schema: of the value; None for a text.
        reducers: how values over several rounds become one.
    """
    if not name:
        return ()
    check_output_schema(schema)
    facts = [
        _build_counter(f"{name}.count", "values of this result", effect, answers, ()),
        _build_counter(f"{name}.failures", "failures of this result", effect, failures, ()),
        _build_counter(f"{name}.attempt", "failures since the newest value", effect, failures, answers),
        Fact(
            name=f"{name}.pending",
            type="integer",
            meaning="effects under this result name that are open, or children that are not done",
            changes="when the effect is asked for, answered or cancelled",
            read=partial(read_result_fact, f"{name}.pending"),
        ),
        Fact(
            name=f"{name}.error_kind",
            type="text",
            meaning="class of the newest failure, `none` after a value",
            changes="with every answer",
            read=partial(read_result_fact, f"{name}.error_kind"),
            words=("none", *FAILURE_KINDS, "other"),
        ),
    ]
    if "replied" in answers:
        facts.append(
            Fact(
                name=f"{name}.finish_reason",
                type="text",
                meaning="why the newest reply ended",
                changes="with every reply",
                read=partial(read_result_fact, f"{name}.finish_reason"),
                words=FINISH_REASONS,
            )
        )
    if schema is None:
        facts.append(_build_flag(f"{name}.has_content", "whether the text is more than blanks"))
    if reducers:
        facts.append(
            Fact(
                name=f"{name}.left_out",
                type="integer",
                meaning="entries and sums that the bounds of `append` and `add` have cut",
                changes="with a value that goes beyond a bound",
                read=partial(read_result_fact, f"{name}.left_out"),
            )
        )
    return (*facts, *_build_schema_facts(name, schema, reducers.add if reducers else {}))


def _build_counter(
    path: str, meaning: str, effect: str, events: tuple[str, ...], resets: tuple[str, ...]
) -> Fact:
    return Fact(
        name=path,
        type="integer",
        meaning=meaning,
        changes="grows with " + " and ".join(f"`{event}.{effect}`" for event in events),
        read=partial(read_result_fact, path),
        moved_by=tuple(f"{event}.{effect}" for event in events),
        reset_by=tuple(f"{event}.{effect}" for event in resets),
    )


def _build_flag(path: str, meaning: str) -> Fact:
    return Fact(
        name=path, type="boolean", meaning=meaning, changes=VALUE_FACTS, read=partial(read_result_fact, path)
    )


def check_output_schema(schema: Mapping[str, Any] | None) -> None:
    """Refuse a schema that is not one of an object, or that uses the names of counters.

    Args:
        schema: a JSON Schema; None allows any text.

    Raises:
        DeclarationProblem: what is wrong.
    """
    if schema is None:
        return
    if schema.get("type") != "object":
        raise DeclarationProblem(
            "the schema of a result describes an object",
            ("schema",),
            "write {type: object, required: [...], properties: {...}}",
        )
    for name in schema.get("properties") or {}:
        if name in RESERVED_FACTS:
            raise DeclarationProblem(
                f"the field {name!r} has the name of a fact that every result has",
                ("schema", "properties", str(name)),
                f"these are {', '.join(RESERVED_FACTS)}; choose another name",
            )


def _build_schema_facts(
    name: str, schema: Mapping[str, Any] | None, sums: Mapping[str, int]
) -> Iterator[Fact]:
    """The facts of the required fields whose values are booleans, integers or words.

    Args:
        sums: the greatest value of each field that is added up.
    """
    if schema is None:
        return
    properties = schema.get("properties") or {}
    for field in schema.get("required") or ():
        body = properties.get(field)
        if isinstance(body, Mapping) and str(field).isidentifier():
            fact = _build_field_fact(f"{name}.{field}", body)
            if fact is not None and field in sums:  # a sum of values that are not negative
                fact = replace(fact, minimum=min(fact.minimum or 0, sums[field]), maximum=sums[field])
            if fact is not None:
                yield fact


def _build_field_fact(path: str, body: Mapping[str, Any]) -> Fact | None:
    meaning = str(body.get("description") or "a field of the schema")
    words = body.get("enum", [body["const"]] if "const" in body else None)
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return Fact(
            name=path,
            type="text",
            meaning=meaning,
            changes=VALUE_FACTS,
            read=partial(read_result_fact, path),
            words=tuple(dict.fromkeys(words)),
        )
    if body.get("type") == "boolean":
        return _build_flag(path, meaning)
    if body.get("type") == "integer":
        return Fact(
            name=path,
            type="integer",
            meaning=meaning,
            changes=VALUE_FACTS,
            read=partial(read_result_fact, path),
            minimum=_find_bound(body, "minimum", "exclusiveMinimum", 1, words),
            maximum=_find_bound(body, "maximum", "exclusiveMaximum", -1, words),
        )
    return None


def _find_bound(
    body: Mapping[str, Any], key: str, exclusive_key: str, step: int, words: list[Any] | None
) -> int | None:
    """The smallest or the greatest value that a schema allows for an integer."""
    if words:
        numbers = [word for word in words if isinstance(word, int)]
        return (min(numbers) if step > 0 else max(numbers)) if numbers else None
    bounds: list[int] = []
    if isinstance(body.get(key), int):
        bounds.append(body[key])
    if isinstance(body.get(exclusive_key), int):
        bounds.append(body[exclusive_key] + step)
    if bounds:
        return max(bounds) if step > 0 else min(bounds)
    return None
