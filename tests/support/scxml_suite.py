"""Reads the tests of the npm package `scxml-test-framework`, SCION's own and those of the W3C, as charts.

Only tests of pure control flow count: states, regions, histories, transitions, raised events, `In()`. Names
of states and events mean nothing in them, so they get names that our charts allow. Nothing of the package is
copied into the repository: the environment names its folder, and without it there are no tests.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import msgspec

from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Configuration
from toolchart.states.vocabulary import get_effects, get_events, list_chart_events

FOLDER_VARIABLE = "TOOLCHART_SCXML_TESTS"
REASON = f"{FOLDER_VARIABLE} does not name the folder `test` of the npm package scxml-test-framework"

_PURE_TAGS = {"scxml", "state", "parallel", "final", "history", "initial", "transition"}
_PURE_TAGS |= {"onentry", "onexit", "raise", "log"}
_CONDITION = re.compile(r"In\('[^']+'\)|true|false")


class SuiteTest(msgspec.Struct, frozen=True, kw_only=True):
    """One test: a document, and the leaves that are active at first and after each event."""

    name: str
    root: Any
    initial: frozenset[str]
    events: tuple[tuple[str, frozenset[str]], ...]


def find_suite_folder() -> Path | None:
    """The folder of the tests; None where it is not installed."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or "/nowhere")
    return folder if folder.is_dir() else None


def list_suite_tests(folder: Path) -> Iterator[SuiteTest]:
    """Every test of pure control flow."""
    for path in sorted(folder.rglob("*.scxml")):
        script = path.with_suffix(".json")
        if not script.is_file():
            continue
        try:
            root, data = ElementTree.parse(path).getroot(), json.loads(script.read_text("utf-8"))
        except (ElementTree.ParseError, ValueError):
            continue
        if _is_pure(root) and not any("after" in event for event in data["events"]):
            yield SuiteTest(
                name=path.relative_to(folder).with_suffix("").as_posix(),
                root=root,
                initial=frozenset(data["initialConfiguration"]),
                events=tuple((e["event"]["name"], frozenset(e["nextConfiguration"])) for e in data["events"]),
            )


def _is_pure(root: Element) -> bool:
    return all(
        _get_tag(element) in _PURE_TAGS
        and _CONDITION.fullmatch(element.get("cond", "true").strip())
        and element.get("binding", "early") == "early"
        for element in root.iter()
    )


def _get_tag(element: Element) -> str:
    return element.tag.split("}")[-1]


# -- running -------------------------------------------------------------------------------------


def run_suite_test(test: SuiteTest) -> str | None:
    """Run a test through our machine.

    Returns:
        What is different from what the test expects; None for nothing.

    Raises:
        SpecError: our rules for charts refuse it.
    """
    reader = _Reader(test)
    machine = Machine(make_chart(reader.read_document()))
    move = machine.start({})
    configuration = move.configuration
    leaves = reader.list_leaves(configuration)
    if leaves != test.initial:
        return f"begins in {sorted(leaves)}, not in {sorted(test.initial)}"
    for event, expected in test.events:
        answer = machine.try_event(configuration, reader.rename_event(event), {})
        configuration = getattr(answer, "configuration", configuration)
        leaves = reader.list_leaves(configuration)
        if leaves != expected:
            return f"{event!r} leads to {sorted(leaves)}, not to {sorted(expected)}"
    return None


class _Reader:
    """Makes a chart of one document."""

    def __init__(self, test: SuiteTest) -> None:
        self._root: Element = test.root
        ids = [element.get("id") for element in self._root.iter() if element.get("id")]
        self._states = {str(name): f"s{index}" for index, name in enumerate(ids)}
        self._raised = {str(e.get("event")) for e in self._root.iter() if _get_tag(e) == "raise"}
        self._sent = {event for event, _ in test.events}
        self._events: dict[str, str] = {}
        self._parents = {
            self._states[str(child.get("id"))]: self._states.get(str(parent.get("id")))
            for parent in self._root.iter()
            for child in parent
            if child.get("id")
        }

    def read_document(self) -> dict[str, Any]:
        """The chart.

        Raises:
            SpecError: it begins in a state inside another one, which a chart cannot say at the top.
        """
        top = [str(element.get("id")) for element in self._root]
        if set(str(self._root.get("initial") or top[0]).split()) - set(top):
            raise SpecError("the document begins in a state inside another one")
        return {"name": "suite", "states": self._read_states(self._root)}

    def list_leaves(self, configuration: Configuration) -> frozenset[str]:
        """The active states without active states inside, under their own names."""
        names = {ours: name for name, ours in self._states.items()}
        outer = {self._parents[state] for state in configuration.states}
        return frozenset(names[state] for state in configuration.states if state not in outer)

    # -- states ----------------------------------------------------------------------------------

    def _read_states(self, parent: Element) -> dict[str, Any]:
        states: dict[str, Any] = {}
        for element in parent:
            if _get_tag(element) in ("state", "parallel", "final"):
                if not element.get("id"):
                    self._states[f"unnamed {id(element)}"] = f"s{len(self._states)}"
                    element.set("id", f"unnamed {id(element)}")
                states[self._states[str(element.get("id"))]] = self._read_state(element)
        for name in self._list_initial(parent):
            if name in states:
                states[name]["initial"] = True
        return states

    def _list_initial(self, parent: Element) -> list[str]:
        initial = str(parent.get("initial") or "").split()
        initial += [
            name
            for element in parent
            if _get_tag(element) == "initial"
            for name in str(element[0].get("target")).split()
        ]
        return [self._states[name] for name in initial]

    def _read_state(self, element: Element) -> dict[str, Any]:
        body: dict[str, Any] = {"states": self._read_states(element)}
        body |= {key: True for key in ("final", "parallel") if _get_tag(element) == key}
        deep = [name for name in self._list_initial(element) if name not in body["states"]]
        rows = [{"initial": True, "target": " ".join(deep)}] if deep else []
        for child in element:
            tag = _get_tag(child)
            if tag == "transition":
                rows.append(self._read_row(child))
            elif tag in ("onentry", "onexit"):
                slot = {"onentry": "enter", "onexit": "exit"}[tag]
                body[slot] = [*body.get(slot, ()), *self._read_actions(child)]
            elif tag == "history":
                name = self._states[str(child.get("id"))]
                row = self._read_row(child[0])
                kind = child.get("type", "shallow")
                body.setdefault("history", {})[name] = {"type": kind, "transitions": [row]}
        return {key: item for key, item in {**body, "transitions": rows}.items() if item}

    def _read_row(self, element: Element) -> dict[str, Any]:
        row: dict[str, Any] = {}
        if element.get("event"):
            row["event"] = " ".join(map(self.rename_event, str(element.get("event")).split()))
        if element.get("target"):
            row["target"] = " ".join(self._states[name] for name in str(element.get("target")).split())
        if element.get("cond"):
            row["cond"] = self._read_condition(str(element.get("cond")).strip())
        if element.get("type") == "internal":
            row["internal"] = True
        actions = self._read_actions(element)
        return {**row, **({"on": actions} if actions else {})}

    def _read_condition(self, text: str) -> str:
        return {"true": "True", "false": "False"}.get(text) or f"In('{self._states[text[4:-2]]}')"

    def _read_actions(self, element: Element) -> list[dict[str, Any]]:
        return [
            {"raise": self.rename_event(str(child.get("event")))}
            for child in element
            if _get_tag(child) == "raise"
        ]

    # -- events ----------------------------------------------------------------------------------

    def rename_event(self, event: str) -> str:
        """The name of an event in our chart: events from outside are answers there."""
        if event == "*" or event in self._raised:
            return event
        if event.startswith("done.state."):
            return f"done.state.{self._states[event.removeprefix('done.state.')]}"
        words = event.split(".")
        first = self._events.setdefault(words[0], self._choose_event())
        answered = [
            row.name for row in get_effects().values() if first in row.answers and row.build is not None
        ]
        rest = [word if word in ("*", "") else answered[0] for word in words[1:]]
        return ".".join([first, *rest])

    def _choose_event(self) -> str:
        """An event of ours that stands for no other one yet; `replied` first, because it has an effect."""
        names = [name for name in ("replied", *list_chart_events()) if name in get_events()]
        return next(name for name in names if name not in self._events.values())
