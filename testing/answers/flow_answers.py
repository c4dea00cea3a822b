"""The events that may answer declared effects: values of schemas, failures, the turns of children.

A schema has more values than can be tried. Those that the guards of a chart can tell apart are few: each
word, both truths, and numbers near the ones that the guards name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.effects import AskPerson, AwaitUser, CallFunction, CallModel, Effect, RunAgent, Wait
from toolchart.states.events import (
    FAILURE_KINDS,
    UNUSABLE_KINDS,
    AgentFailed,
    AgentFinished,
    AgentRested,
    Answered,
    Answering,
    Elapsed,
    Failed,
    Replied,
    Returned,
)
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.states.flows.templates import look_up_variable
from toolchart.states.messages import FINISH_REASONS, Reply, Usage
from toolchart.states.snapshot import Snapshot
from toolchart.testing.answers.guard_terms import GuardTerms

MAX_VALUES = 48
"""Values of one schema at most."""

_USAGE = Usage(total=10)


def list_flow_answers(effect: Effect, terms: GuardTerms) -> Iterator[Answering]:
    """Yield the events that may answer a declared effect next; none where only the user continues it."""
    match effect:
        case CallModel():
            yield from _list_result_replies(effect, terms)
            yield from list_failures(terms, has_schema=effect.schema is not None)
        case CallFunction():
            for value in list_schema_values(effect.schema, effect.result, terms) or [{"content": "done"}]:
                yield Returned(value=value)
            yield Failed(kind="effect", message="scripted")
        case AskPerson():
            for value in list_schema_values(effect.form, effect.result, terms):
                yield Answered(content=value)
        case RunAgent():
            yield from _list_child_answers(effect, terms)
        case Wait():
            yield Elapsed()
        case AwaitUser():  # the user goes on
            return
        case _:
            kind = type(effect).__name__
            raise TypeError(f"no script answers the effect {kind}: add a case to `list_flow_answers`")


def _list_result_replies(effect: CallModel, terms: GuardTerms) -> Iterator[Replied]:
    if effect.schema is not None:
        for value in list_schema_values(effect.schema, effect.result, terms):
            yield Replied(reply=Reply(content="{}", finish_reason="stop", usage=_USAGE), output=value)
        return
    yield Replied(reply=Reply(content="It is so.", finish_reason="stop", usage=_USAGE))
    yield Replied(reply=Reply(finish_reason="stop", usage=_USAGE))
    reads_reason = f"{effect.result}.finish_reason" in terms.facts
    for reason in FINISH_REASONS:
        if reason in terms.words or (reads_reason and reason == "length"):
            yield Replied(reply=Reply(content="It is", finish_reason=reason, usage=_USAGE))


def list_failures(terms: GuardTerms, *, has_schema: bool = False) -> Iterator[Failed]:
    """Yield failures of a model call: the kinds that guards name, retryable or not as they come."""
    for kind in _list_failure_kinds(terms):
        for retryable in (kind == "malformed_call",) if kind in UNUSABLE_KINDS else (True, False):
            yield Failed(kind=kind, message="scripted", retryable=retryable)
    if has_schema:
        rejected = Reply(content="[]", finish_reason="stop", usage=_USAGE)
        yield Failed(kind="bad_output", message="scripted", reply=rejected)


def _list_failure_kinds(terms: GuardTerms) -> list[str]:
    """The kinds that guards name or count, and one that they do not."""
    kinds = [kind for kind in FAILURE_KINDS if kind in _PROVIDER_FAILURES]
    words = terms.words | ({"empty_reply"} if "unusable_replies" in terms.facts else set())
    others = [kind for kind in ("server", *kinds) if kind not in words]
    return [*others[:1], *(kind for kind in kinds if kind in words)]


_PROVIDER_FAILURES = frozenset(FAILURE_KINDS) - {"cancelled"}
"""Failures that a provider reports; `cancelled` is an event of its own."""


def _list_child_answers(effect: RunAgent, terms: GuardTerms) -> Iterator[Answering]:
    link: dict[str, Any] = {"conversation": "scripted/child"}
    if not effect.messages:
        yield AgentFinished(**link, head="")
        return
    items = [i for i in range(len(effect.messages)) if i not in (*effect.answered, *effect.resting)]
    for item in items[:1]:
        outputs = [*list_schema_values(effect.schema, effect.result, terms)]
        for output in outputs or (None,):
            yield AgentFinished(**link, head="h", item=item, content="It is done.", output=output)
        if "has_content" in terms.facts and not effect.result:
            yield AgentFinished(
                **link, head="h", item=item, content="", output=outputs[0] if outputs else None
            )
        for kind in _list_failure_kinds(terms):
            yield AgentFailed(**link, item=item, kind=kind, message="scripted")
        yield AgentRested(**link, head="h", item=item, content="And what next?")


# -- values --------------------------------------------------------------------------------------


def list_schema_values(
    schema: Mapping[str, Any] | None, result: str, terms: GuardTerms
) -> list[dict[str, Any]]:
    """Objects that fit a schema and that the guards can tell apart; none without a schema."""
    if schema is None:
        return []
    properties = schema.get("properties") or {}
    choices = {
        name: list(
            _list_field_values(
                body, terms.numbers.get(f"{result}.{name}", ()), f"{result}.{name}" in terms.facts
            )
        )
        for name, body in properties.items()
    }
    names = [name for name, values in choices.items() if values]
    combinations = product(*(choices[name] for name in names))
    return [dict(zip(names, values, strict=True)) for values in islice(combinations, MAX_VALUES)]


def _list_field_values(body: Any, numbers: Iterable[int], is_read: bool) -> Iterator[Any]:
    """Values of one field: all that differ to a guard where one reads it, else one."""
    values = list(_list_possible_values(body, numbers))
    yield from (
        values if is_read or (isinstance(body, Mapping) and body.get("type") == "array") else values[:1]
    )


def _list_possible_values(body: Any, numbers: Iterable[int]) -> Iterator[Any]:
    match body:
        case {"const": value}:
            yield value
        case {"enum": [*words]}:
            yield from words
        case {"type": "boolean"}:
            yield from (True, False)
        case {"type": "integer" | "number"}:
            least = body.get("minimum", body.get("exclusiveMinimum", -1) + 1)
            most = body.get("maximum", body.get("exclusiveMaximum", least + 1000) - 1)
            near = {n + more for n in numbers for more in (-1, 0, 1)} | {least}
            yield from sorted(n for n in near if least <= n <= most)
        case {"type": "array"}:
            sizes = {body.get("minItems", 0), min(2, body.get("maxItems", 2))}
            item = next(_list_possible_values(body.get("items") or {"type": "string"}, ()), "item")
            yield from ([item] * size for size in sorted(sizes, reverse=True))
        case {"type": "object"}:
            fields = body.get("properties") or {}
            yield {name: next(_list_possible_values(inner, ()), None) for name, inner in fields.items()}
        case {"type": "null"}:
            yield None
        case _:
            yield "text"


# -- lists that agents work on -------------------------------------------------------------------


def build_variables(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return variables for the lists that no result brings, two items each."""
    variables: dict[str, Any] = {}
    for path in _list_agent_lists(vocabulary):
        root, *rest = path.split(".")
        if root in vocabulary.result_names:
            continue
        value: Any = ["first", "second"]
        for part in reversed(rest):
            value = {part: value}
        variables[root] = value
    return variables


def count_list_items(vocabulary: Vocabulary, snapshot: Snapshot) -> tuple[int, ...]:
    """Return the sizes of the lists that agents would work on now."""
    sizes = []
    for path in _list_agent_lists(vocabulary):
        root, _, rest = path.partition(".")
        result = snapshot.results.get(root)
        value = look_up_variable(result.value or {}, rest) if result is not None and rest else None
        sizes.append(len(value) if isinstance(value, list) else 0)
    return tuple(sizes)


def _list_agent_lists(vocabulary: Vocabulary) -> list[str]:
    return [
        row.parameters.for_each
        for row in vocabulary.declared.values()
        if isinstance(row.parameters, RunAgentParameters) and row.parameters.for_each
    ]
