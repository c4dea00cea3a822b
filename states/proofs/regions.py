"""Prove parallel regions one at a time, where nothing reads across from one to another.

K regions of three states have 3 ** K configurations. Where regions have nothing to do with each other, they
say nothing that K small charts would not say. So a chart with many configurations is split into *parts*. A
part keeps everything outside the regions, and one group of them. In place of the others it has one region
that asks for one effect, which may be answered at any time, and is done then.

**Why that is sound.** Take a run of the chart, and leave out all events that answer effects of the regions
that a part does not keep. What is left is a run of the part. For none of the events left out moves a state
that the part has, changes a fact that one of its guards reads, or brings a call; the rules below see to that.
And an end of the parallel state waits for the other regions there as well, as long as it likes. So what goes
wrong in a run of the chart goes wrong in a run of the part that keeps the states where it happens. All
regions together wait for nothing only if one of them does so while the others are done, which its own part
shows. And each number of the worst case is at most the sum of what the effects of each group can cost in its
part, and what those outside can cost in any part: each is counted in a run of its part.

**What couples regions.** Two regions stay together if a guard in one reads a fact that an event of the other
changes. A region stays in every part if something outside depends on it: a guard outside reads its facts, a
row outside takes its events, or it has a row that leads out of it. So does one that does what is everyone's
business: it works on the messages of the conversation, waits for the user, ends the turn, or runs an agent.
Where a guard reads the configuration (`In('state')`), an action raises an event, or history remembers states
of the regions, nothing is split.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.chart.guards import reads_configuration
from toolchart.states.chart.loading import make_chart
from toolchart.states.chart.rules import find_raised_events
from toolchart.states.chart.structure import list_targets
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.chart.yaml_document import SourcePosition
from toolchart.states.effects import EffectDescriptor
from toolchart.states.proofs.explored_states import find_list_source, is_agent_run
from toolchart.states.proofs.findings import Finding
from toolchart.states.proofs.result_rules import find_rules_event
from toolchart.states.proofs.solving.solver import find_facts
from toolchart.states.vocabulary import Fact, get_events

SPLIT_ABOVE = 100
"""A chart with more configurations than this is split into parts, if it can be."""

_SLOTS = ("enter", "exit", "on", "before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """Something that keeps regions together, and what it is."""

    message: str
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One chart to prove: the whole, or some regions with a stand-in for the others."""

    chart: Chart
    own_states: tuple[frozenset[str] | None, ...] = (None,)
    """The states whose effects count for the worst case, in one sum each; None: all."""
    stand_ins: frozenset[str] = frozenset()
    """The states that stand for the other regions."""
    stand_in_effects: frozenset[str] = frozenset()

    def clean(self, finding: Finding) -> Finding | None:
        """A finding without the stand-ins, which nobody has written; None where it is about one."""
        if finding.state in self.stand_ins:
            return None
        return replace(
            finding,
            state=self.strip_label(finding.state),
            message=self.strip_label(finding.message),
            run=tuple(event for event in finding.run if event.partition(".")[2] not in self.stand_in_effects),
        )

    def strip_label(self, text: str) -> str:
        """A text with labels of configurations, without the stand-ins in them."""
        for name in sorted(self.stand_ins, key=len, reverse=True):  # one name may end with another
            text = text.replace(f"{name}+", "")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The parts of a chart, and what keeps regions together."""

    parts: tuple[Part, ...]
    couplings: tuple[Coupling, ...] = ()


def split_chart(chart: Chart, split_above: int = SPLIT_ABOVE) -> Partition:
    """The parts of a chart that are proved one at a time; itself, where it is small or cannot be split.

    Args:
        split_above: the number of configurations up to which a chart is small.
    """
    whole = Partition(parts=(Part(chart=chart),))
    if count_configurations(chart.document.get("states") or {}) <= split_above:
        return whole
    return _Splitter(chart).split()


def count_configurations(states: Mapping[str, Any], *, is_parallel: bool = False) -> int:
    """The configurations that some states could form, whether or not they can be reached."""
    count = int(is_parallel)
    for body in states.values():
        inner = (body or {}).get("states")
        number = count_configurations(inner, is_parallel=bool(body.get("parallel"))) if inner else 1
        count = count * number if is_parallel else count + number
    return count


@dataclass(slots=True, kw_only=True)
class _Region:
    """One region of a parallel state that may be split, or all that is outside of such regions."""

    name: str
    parallel: str
    states: dict[str, SourcePosition] = field(default_factory=dict)
    bodies: list[tuple[str, dict[str, Any], SourcePosition]] = field(default_factory=list)
    effects: dict[str, EffectDescriptor] = field(default_factory=dict)
    facts: dict[str, tuple[str, SourcePosition]] = field(default_factory=dict)
    """The facts that it reads, each with what reads it."""
    is_kept: bool = False
    """Whether every part has it."""


class _Splitter:
    """Splits one chart."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._vocabulary = chart.vocabulary
        self._couplings: dict[str, Coupling] = {}
        self._regions: list[_Region] = []
        self._outside = _Region(name="", parallel="")
        self._ancestors: dict[str, list[tuple[dict[str, Any], SourcePosition]]] = {}
        """By parallel state: itself and the states around it."""
        self._groups: dict[str, str] = {}

    def split(self) -> Partition:
        """The parts of the chart."""
        self._read_level(self._chart.document.get("states") or {}, ("states",), [])
        for region in (*self._regions, self._outside):
            self._read_region(region)
        if not self._has_obstacle():
            for region in self._regions:
                self._keep_dependent(region)
            self._keep_timers()
            self._join_regions()
            groups = self._list_groups()
            if len(groups) > 1:
                parts = tuple(self._build_part(group, is_first=not n) for n, group in enumerate(groups))
                return Partition(parts=parts, couplings=tuple(self._couplings.values()))
        return Partition(parts=(Part(chart=self._chart),), couplings=tuple(self._couplings.values()))

    # -- reading ---------------------------------------------------------------------------------

    def _read_level(
        self,
        states: Mapping[str, Any],
        position: SourcePosition,
        ancestors: list[tuple[dict[str, Any], SourcePosition]],
    ) -> None:
        """Sort states into regions of the outermost parallel states, and what is outside."""
        for name, body in states.items():
            place = (*position, name)
            self._outside.states[name] = place
            self._outside.bodies.append((name, body or {}, place))
            inner = (body or {}).get("states") or {}
            around = [*ancestors, (body or {}, place)]
            if body and body.get("parallel"):
                self._ancestors[name] = around
                for region_name, region_body in inner.items():
                    region = _Region(name=region_name, parallel=name)
                    self._read_states({region_name: region_body}, (*place, "states"), region)
                    self._regions.append(region)
            else:
                self._read_level(inner, (*place, "states"), around)

    def _read_states(self, states: Mapping[str, Any], position: SourcePosition, region: _Region) -> None:
        for name, body in states.items():
            place = (*position, name)
            region.states[name] = place
            region.bodies.append((name, body or {}, place))
            self._read_states((body or {}).get("states") or {}, (*place, "states"), region)

    def _read_region(self, region: _Region) -> None:
        """The effects that a region asks for, and the facts that it reads."""
        for _, body, place in region.bodies:
            for holder, position in ((body, place), *_iterate_rows(body, place)):
                for slot in _SLOTS:
                    for action in _list(holder.get(slot)):
                        if isinstance(action, str):
                            row = region.effects[action] = self._vocabulary.find_effect(action)
                            if source := find_list_source(row):
                                reader = f"the list of the effect {action!r}"
                                region.facts.setdefault(f"{source}.count", (reader, position))
                        else:
                            self._keep(region, "an action that is no effect", position)
                for text in _list_guards(holder):
                    for name in sorted(find_facts(text)):
                        region.facts.setdefault(name, (f"the guard {text!r}", position))

    # -- what keeps regions together -------------------------------------------------------------

    def _has_obstacle(self) -> bool:
        """Whether something in the chart keeps all regions together."""
        found: list[tuple[str, SourcePosition]] = [
            (f"raises the event {event!r}, which every region hears", place)
            for event, place in find_raised_events(self._chart)
        ]
        for region in (*self._regions, self._outside):
            for _, body, place in region.bodies:
                if body.get("history"):
                    found.append(("history remembers states of regions", place))
                for holder, position in _iterate_rows(body, place):
                    found += [
                        (f"the guard {text!r} reads which states are active", position)
                        for text in _list_guards(holder)
                        if reads_configuration(text)
                    ]
                    if len(list_targets(holder)) > 1:
                        found.append(("a row leads to several states", position))
        for message, place in found:
            self._add_coupling(message, place)
        return bool(found)

    def _keep_dependent(self, region: _Region) -> None:
        """Keep a region in every part if something outside depends on it, or it does what concerns all."""
        for name, row in region.effects.items():
            if not _stays_in_region(row):
                place = next(p for _, body, p in region.bodies if name in _list_all_actions(body, p))
                self._keep(region, f"the effect {name!r} concerns the whole conversation", place)
        for _, body, place in region.bodies:
            for row, position in _iterate_rows(body, place):
                reason = self._find_reason_of_row(region, row)
                if reason:
                    self._keep(region, reason, position)
                for event in str(row.get("event") or "").split():
                    for other in self._regions:
                        if other is not region and self._takes_event_of(event, other):
                            self._keep(other, f"the row on {event!r} elsewhere takes its events", position)
        outer_rows = [
            (row, position)
            for body, place in self._ancestors[region.parallel]
            for row, position in _iterate_rows(body, place)
        ]
        for row, position in outer_rows:
            for event in str(row.get("event") or "").split():
                if self._takes_event_of(event, region):
                    self._keep(region, f"the row on {event!r} outside of it takes its events", position)
        for name, (reader, place) in self._outside.facts.items():
            if _changes_fact(self._vocabulary, region, name):
                self._keep(region, f"{reader} outside of it reads {name!r}, which changes in it", place)

    def _find_reason_of_row(self, region: _Region, row: Mapping[str, Any]) -> str:
        """Why a row of a region concerns others; empty where it does not."""
        if any(target not in region.states for target in list_targets(row)):
            return f"a row leads out of it, to {list_targets(row)[0]!r}"
        events = str(row.get("event") or "").split()
        if not events:
            own = {name for name in find_facts_of_row(row) if not self._is_own_fact(region, name)}
            return f"a row without an event reads {min(own)!r}" if own else ""
        for event in events:
            base, _, name = event.partition(".")
            if event.startswith("done.state."):
                if event.removeprefix("done.state.") not in region.states:
                    return f"the row on {event!r} takes an event from outside of it"
            elif name:
                if name not in region.effects:
                    return f"the row on {event!r} takes an event from outside of it"
            elif base not in get_events() or not get_events()[base].is_external:
                return f"the row on {event!r} names no effect"
            elif any(
                other in ("*", base)
                for body, place in self._ancestors[region.parallel]
                for outer, _ in _iterate_rows(body, place)
                for other in str(outer.get("event") or "").split()
            ):
                return f"rows inside and outside of it take {event!r}"
        return ""

    def _keep_timers(self) -> None:
        """Keep regions with timers beside those that wait for the user, as a turn may end beside both."""
        for region in self._regions:
            timer = next((name for name, row in region.effects.items() if row.is_timer), None)
            is_beside_user = any(
                other.parallel == region.parallel
                and any(row.waits_for_user or is_agent_run(row) for row in other.effects.values())
                for other in self._regions
            )
            if timer is not None and is_beside_user:
                place = next(iter(region.states.values()))
                self._keep(region, f"{timer!r} may run on while another region waits for the user", place)

    def _is_own_fact(self, region: _Region, name: str) -> bool:
        """Whether a fact changes with the events of a region alone, or never."""
        base, dot, _ = name.partition(".")
        if dot:
            return any(row.result == base for row in region.effects.values())
        fact = self._vocabulary.find_fact(name)
        return fact is not None and fact.reads_limits == (name,)

    def _takes_event_of(self, event: str, region: _Region) -> bool:
        """Whether a row on an event may take one that answers an effect of a region."""
        if event.startswith("done.state."):
            return event.removeprefix("done.state.") in region.states
        base, _, name = event.removesuffix(".*").partition(".")
        return any(
            event == "*" or (base in row.answers and name in ("", effect))
            for effect, row in region.effects.items()
        )

    def _join_regions(self) -> None:
        """Keep regions together where a guard of one reads what changes in another."""
        free = [region for region in self._regions if not region.is_kept]
        self._groups = {region.name: region.name for region in free}
        for region in self._regions:
            for name, (reader, place) in region.facts.items():
                for other in free:
                    if other is region or not _changes_fact(self._vocabulary, other, name):
                        continue
                    message = (
                        f"{reader} in the region {region.name!r} reads {name!r}, which changes in the region "
                        f"{other.name!r}"
                    )
                    if region.is_kept:
                        self._keep(other, message, place)
                    elif self._groups[region.name] != self._groups[other.name]:
                        self._add_coupling(message, place)
                        old, new = self._groups[region.name], self._groups[other.name]
                        self._groups = {key: new if g == old else g for key, g in self._groups.items()}
        # What a region reads that is kept now is kept too.
        if any(region.is_kept for region in free):
            self._join_regions()

    def _list_groups(self) -> list[list[_Region]]:
        groups: dict[str, list[_Region]] = {}
        for region in self._regions:
            if not region.is_kept:
                groups.setdefault(self._groups[region.name], []).append(region)
        return list(groups.values())

    def _keep(self, region: _Region, reason: str, place: SourcePosition) -> None:
        region.is_kept = True
        if region is not self._outside:
            self._add_coupling(f"{reason} (region {region.name!r})", place)

    def _add_coupling(self, message: str, place: SourcePosition) -> None:
        self._couplings.setdefault(message, Coupling(message=message, line=self._chart.find_line(place)))

    # -- parts -----------------------------------------------------------------------------------

    def _build_part(self, group: Sequence[_Region], *, is_first: bool) -> Part:
        """The chart with one group of regions, those that every part has, and a stand-in for the others."""
        document = copy.deepcopy(self._chart.document)
        effects = dict(self._chart.effects)
        stand_ins: set[str] = set()
        stand_in_effects: set[str] = set()
        removed: dict[str, str] = {}
        for parallel, around in self._ancestors.items():
            others = [r for r in self._regions if r.parallel == parallel and not r.is_kept and r not in group]
            if not others:
                continue
            removed.update({state: parallel for region in others for state in region.states})
            body: Any = document
            for key in around[-1][1]:
                body = body[key]
            names = [
                self._find_free_name(f"{word}_of_{parallel}")
                for word in ("all_others", "others", "ended_others", "run_others")
            ]
            region, running, ended, effect = names
            rows = [{"event": f"returned.{effect} failed.{effect}", "target": ended}]
            stand_in = {
                running: {"initial": True, "enter": effect, "transitions": rows},
                ended: {"final": True},
            }
            kept = {name: inner for name, inner in body["states"].items() if name not in removed}
            # It stands first, so that the innermost state of a configuration is one that somebody wrote.
            body["states"] = {region: {"states": stand_in}, **kept}
            function = {"function": effect, "as": f"{effect}_result", "trust": "trusted", "risk": "low"}
            effects[effect] = {"call_function": function}
            stand_ins |= {region, running, ended}
            stand_in_effects.add(effect)
        _lead_to_parallel(document.get("states") or {}, removed)
        own = frozenset(state for region in group for state in region.states)
        kept_states = {state for region in self._regions if region.is_kept for state in region.states}
        outside = frozenset(self._outside.states.keys() | kept_states)
        return Part(
            chart=make_chart(
                {**document, "effects": effects}, source=self._chart.source, lines=self._chart.lines
            ),
            own_states=(outside, own) if is_first else (own,),
            stand_ins=frozenset(stand_ins),
            stand_in_effects=frozenset(stand_in_effects),
        )

    def _find_free_name(self, name: str) -> str:
        taken = {
            *self._outside.states,
            *(state for region in self._regions for state in region.states),
            *self._vocabulary.list_effect_names(),
        }
        while name in taken:
            name += "_"
        return name


def _lead_to_parallel(states: Mapping[str, Any], removed: Mapping[str, str]) -> None:
    """Lead rows to states that a part does not have to the parallel state around them."""
    for body in states.values():
        for row, _ in _iterate_rows(body or {}, ()):
            if row.get("target") in removed:
                row["target"] = removed[row["target"]]
        _lead_to_parallel((body or {}).get("states") or {}, removed)


def find_facts_of_row(row: Mapping[str, Any]) -> set[str]:
    """The facts that the guards of a row read."""
    return {name for text in _list_guards(row) for name in find_facts(text)}


def _stays_in_region(row: EffectDescriptor) -> bool:
    """Whether an effect concerns nobody but who asks for it."""
    concerns_all = row.uses_messages or row.uses_calls or row.closes_calls or is_agent_run(row)
    return not concerns_all and (bool(row.result) or row.is_timer)


def _changes_fact(vocabulary: Vocabulary, region: _Region, name: str) -> bool:
    """Whether the effects of a region, or the events that answer them, may change a fact.

    A fact of which nothing says what changes it is forgotten with every event, whichever it is
    (`persistent_facts.py`), so no proof rests on its value.
    """
    base, dot, _ = name.partition(".")
    fact = vocabulary.find_fact(name)
    for effect, row in region.effects.items():
        if dot and row.result == base:
            return True
        if fact is not None and not dot and _changes_core_fact(vocabulary, fact, effect, row):
            return True
    return False


def _changes_core_fact(vocabulary: Vocabulary, fact: Fact, effect: str, row: EffectDescriptor) -> bool:
    changes_by_asking = [test for test in (fact.changed_by_effect, fact.cleared_by_effect) if test]
    if effect in fact.set_by or any(test(row) for test in changes_by_asking):
        return True
    events = {name for e in row.answers for name in (f"{e}.*", find_rules_event(vocabulary, e, effect))}
    return bool(events & {*fact.moved_by, *fact.reset_by, *(fact.changed_by or ())})


def _iterate_rows(
    body: Mapping[str, Any], place: SourcePosition
) -> Iterator[tuple[dict[str, Any], SourcePosition]]:
    for index, row in enumerate(body.get("transitions") or ()):
        yield row, (*place, "transitions", index)


def _list_all_actions(body: Mapping[str, Any], place: SourcePosition) -> list[Any]:
    holders = (body, *(row for row, _ in _iterate_rows(body, place)))
    return [action for holder in holders for slot in _SLOTS for action in _list(holder.get(slot))]


def _list_guards(row: Mapping[str, Any]) -> list[str]:
    return [str(text) for key in ("cond", "unless") for text in _list(row.get(key))]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
