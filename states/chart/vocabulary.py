"""The words that one chart may use: effects, events and facts, its own declared effects included.

A declared effect is a name with one kind and its parameters:

    effects:
      judge_draft: {call_model: {llm: critic, prompt: "Judge: {{draft}}", as: verdict, schema: {...}}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from toolchart.states.chart.yaml_document import LocatedDocument, raise_error, shorten
from toolchart.states.effects import EffectDescriptor
from toolchart.states.errors import suggest_name
from toolchart.states.flows.parameters import DeclarationProblem
from toolchart.states.vocabulary import (
    Fact,
    find_effect,
    get_effects,
    get_events,
    get_facts,
    list_chart_events,
)

_RESERVED_RESULTS = ("user_message", "item", "state", "model", "In")


class Vocabulary:
    """The effects, events and facts of one chart.

    Args:
        declared: the rows of its declared effects by name.
    """

    def __init__(self, declared: Mapping[str, EffectDescriptor] | None = None) -> None:
        self.declared = dict(declared or {})
        self._effects: dict[str, EffectDescriptor] = {}
        """Rows that were looked up."""
        self._facts: dict[str, Fact] = {}
        for row in self.declared.values():
            for fact in row.result_facts:
                self._facts[fact.name] = _merge_facts(self._facts.get(fact.name), fact)
        self._host_facts = _build_host_facts(self.declared.values())
        self.reducers: dict[str, Any] = {
            row.result: row.reducers for row in self.declared.values() if row.reducers
        }
        """The `Reducers` of results, by their names."""

    # -- effects ---------------------------------------------------------------------------------

    def list_effect_names(self) -> list[str]:
        """Effects that `enter` and the other action slots may name."""
        return [*self.declared, *(row.name for row in get_effects().values() if row.build is not None)]

    def is_effect(self, name: str) -> bool:
        """Whether an action may name this effect."""
        row = get_effects().get(name)
        return name in self.declared or (row is not None and row.build is not None)

    def find_effect(self, name: str) -> EffectDescriptor:
        """The row of an effect.

        Raises:
            SpecError: there is none of this name.
        """
        row = self._effects.get(name)
        if row is None:
            row = self._effects[name] = self.declared.get(name) or find_effect(name)
        return row

    # -- events ----------------------------------------------------------------------------------

    def is_event(self, name: str) -> bool:
        """Whether this event reaches a chart from outside, under its own name or as the answer to one effect:
        `replied`, `replied.call_model`."""
        event, _, effect = name.partition(".")
        if effect:
            return self.is_effect(effect) and event in self.find_effect(effect).answers
        return event in list_chart_events()

    # -- facts -----------------------------------------------------------------------------------

    def list_fact_names(self) -> list[str]:
        """Facts that guards may read."""
        return [*self._facts, *get_facts()]

    def find_fact(self, name: str) -> Fact | None:
        """The descriptor of a fact; None where there is none of this name."""
        return self._facts.get(name) or self._host_facts.get(name) or get_facts().get(name)

    @property
    def result_facts(self) -> Mapping[str, Fact]:
        """The facts of the results, by their dotted names."""
        return self._facts

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of the results."""
        return tuple(dict.fromkeys(row.result for row in self.declared.values() if row.result))


def _build_host_facts(rows: Iterable[EffectDescriptor]) -> dict[str, Fact]:
    """The facts `host` and `model` with the words that the model calls of one chart add to them."""
    calls = [row.parameters for row in rows if row.kind == "call_model" and not row.result]
    words = {
        "host": [parameters.llm for parameters in calls],
        "model": [parameters.model for parameters in calls],
    }
    return {
        name: msgspec.structs.replace(fact, words=tuple(dict.fromkeys((*fact.words, *filter(None, more)))))
        for name, more in words.items()
        if any(more) and (fact := get_facts()[name])
    }


def _merge_facts(first: Fact | None, second: Fact) -> Fact:
    """The fact of a result that several effects bring: all of them move its counters."""
    if first is None:
        return second
    return msgspec.structs.replace(
        first,
        moved_by=tuple(dict.fromkeys((*first.moved_by, *second.moved_by))),
        reset_by=tuple(dict.fromkeys((*first.reset_by, *second.reset_by))),
    )


GENERAL_VOCABULARY = Vocabulary()
"""The words of a chart that declares no effects."""


# -- declarations --------------------------------------------------------------------------------


def read_declarations(effects: Any, located: LocatedDocument) -> Vocabulary:
    """The vocabulary of a chart with these declared effects.

    Args:
        effects: `{name: {kind: parameters}}`.
        located: where they come from, for errors.

    Raises:
        SpecError: the first declaration that is wrong, with its line and key path.
    """
    if not effects:
        return GENERAL_VOCABULARY
    if not isinstance(effects, Mapping):
        raise_error(located, ("effects",), "`effects` is a mapping of names to declarations")
    declared = {str(name): _read_declaration(str(name), body, located) for name, body in effects.items()}
    _check_results(declared, located)
    return Vocabulary(declared)


def _read_declaration(name: str, body: Any, located: LocatedDocument) -> EffectDescriptor:
    position = ("effects", name)
    kinds = [row.name for row in get_effects().values() if row.declare is not None]
    if not name.isidentifier() or name.startswith("_") or len(name) > 100:
        raise_error(
            located, position, f"{shorten(name)!r} is not a name for an effect", "use a verb, in words"
        )
    if not isinstance(body, Mapping) or len(body) != 1:
        raise_error(
            located,
            position,
            f"the effect {name!r} is declared by one kind with its parameters",
            f"for instance `{name}: {{call_model: {{prompt: ..., as: NAME}}}}`; kinds: {', '.join(kinds)}",
        )
    kind, parameters = next(iter(body.items()))
    row = get_effects().get(kind)
    if row is None or row.declare is None:
        raise_error(
            located,
            (*position, str(kind)),
            f"unknown kind of effect {kind!r}",
            suggest_name(str(kind), kinds),
        )
    if name in get_effects() and name != kind:
        raise_error(located, position, f"{name!r} is an effect of another kind", "choose another name")
    if name in get_events() or name in get_facts():
        meaning = "an event" if name in get_events() else "a fact"
        raise_error(
            located, position, f"{name!r} cannot name an effect: it is {meaning}", "choose another name"
        )
    try:
        return row.declare(name, parameters)
    except DeclarationProblem as problem:
        raise_error(located, (*position, kind, *problem.path), problem.message, problem.hint)


def _check_results(declared: Mapping[str, EffectDescriptor], located: LocatedDocument) -> None:
    """Refuse names of results that mean something else, and results of one name with several forms."""
    facts_by_result: dict[str, tuple[str, list[Any]]] = {}
    for name, row in declared.items():
        position = ("effects", name, row.kind)
        result = row.result
        if not result:
            continue
        if not result.isidentifier() or result.startswith("_") or result in _RESERVED_RESULTS:
            raise_error(located, position, f"{result!r} is not a name for a result", "use a noun")
        for is_word, meaning in (
            (result in get_effects(), "an effect"),
            (result in get_events(), "an event"),
            (result in get_facts(), "a fact"),
            (result in declared, "an effect"),
        ):
            if is_word:
                raise_error(
                    located, position, f"{result!r} cannot name a result: it is {meaning}", "use another noun"
                )
        form: list[Any] = [
            (fact.name, fact.type, fact.words, fact.minimum, fact.maximum) for fact in row.result_facts
        ]
        form.append(row.reducers)
        first, first_form = facts_by_result.setdefault(result, (name, form))
        if first_form != form:
            raise_error(
                located,
                position,
                f"the effects {first!r} and {name!r} bring the result {result!r} in different forms",
                "give them the same schema, `append` and `add`, or two names",
            )
