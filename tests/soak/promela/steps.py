"""One step of a model: the transitions that an event and its followers take, as SCXML says.

A step tries the rows without an event first, then the events that the chart has raised, then the event that
has arrived, and again until nothing fires. This is the order of python-statemachine, and every guard of one
step reads the same facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promela.chart_tree import ChartTree, HistoryNode, Node, Row
from promela.effects import Slot
from promela.events import START, name_event
from promela.text import Lines, describe, indent, name_variable, write_if
from promela.variables import Variables

MAX_MICROSTEPS = 200
"""Transitions that may follow one event, as in the machine."""

QUEUE_LENGTH = 60
"""Events that a chart may raise in one step; more of them count as a step without an end."""


class StepWriter:
    """Writes the transitions of one chart."""

    def __init__(self, tree: ChartTree, variables: Variables, slots: list[Slot], arriving: list[str]) -> None:
        self._tree = tree
        self._facts = variables
        self._slots = slots
        self._guards = {text: None for row in tree.rows for text, _ in row.guards}
        raised = [event for row in tree.rows for event in row.events if event != "*"]
        raised += [event for actions in self._list_all_actions() for event in _list_raised(actions)]
        done = [f"done.state.{node.name}" for node in tree.nodes.values() if node.children]
        names = dict.fromkeys([*arriving, *done, *(e.removesuffix(".*").removesuffix(".") for e in raised)])
        self.event_names = list(names)
        self._domains = {row.number: tree.find_domain(row) for row in tree.rows if row.targets}

    def _list_all_actions(self) -> Iterator[tuple[Any, ...]]:
        for node in self._tree.nodes.values():
            yield from (node.enter, node.exit)
        for row in self._tree.rows:
            yield from (row.before, row.on, row.after)

    # -- declarations ----------------------------------------------------------------------------

    def declare(self) -> Lines:
        """Events, states, and what a step needs while it runs."""
        tree = self._tree
        lines = [f"#define {name_event(name)} {i + 1}" for i, name in enumerate(self.event_names)]
        lines += [f"bit {_name_state(name)};" for name in tree.nodes]
        for history in tree.histories.values():
            lines.append(f"bit {_name_stored(history)};")
            lines += [f"bit {_name_memory(history, name)};" for name in tree.list_remembered(history)]
        lines += [
            f"hidden byte {name};" for name in ("trigger", "selected", "found", "tried", "sent", "head")
        ]
        lines += ["hidden byte ends_here;", "hidden byte raised;", f"hidden byte queue[{QUEUE_LENGTH}];"]
        lines += ["hidden short microsteps;", "hidden byte root_waits;"]
        lines += [f"hidden byte exits[{len(tree.nodes)}];", f"hidden byte enters[{len(tree.nodes)}];"]
        lines += [f"hidden byte resets[{len(tree.nodes)}];", f"hidden byte fires[{len(tree.rows) + 1}];"]
        return lines

    # -- one step --------------------------------------------------------------------------------

    def write(self) -> Lines:
        """All transitions of one step; `fired` says whether there was one."""
        nodes, rows = len(self._tree.nodes), len(self._tree.rows) + 1
        return [
            "tried = 0; sent = 0; head = 0; raised = 0; microsteps = 0;",
            "ends_here = 0; fired = 0; root_waits = 0;",
            *_write_clearing("resets", nodes),
            *_write_clearing("fires", rows),
            *_write_clearing("enters", nodes),
            *_write_clearing("exits", nodes),
            "do",
            ":: ends_here -> break",
            f":: !ends_here && (microsteps >= {MAX_MICROSTEPS} || raised >= {QUEUE_LENGTH - 8}) ->",
            "    endless = 1; ends_here = 1;",
            ":: else ->",
            *indent(self._write_trigger(), 2),
            *indent(write_if("!ends_here", self._write_microstep()), 2),
            "od;",
        ]

    def _write_trigger(self) -> Lines:
        """What is tried next: rows without an event, then raised events, then the event that has arrived."""
        return [
            "if",
            ":: !tried -> trigger = 0; tried = 1;",
            ":: tried && head < raised -> trigger = queue[head]; head++;",
            ":: else ->",
            *indent(self._write_root_end(), 2),
            "    if",
            "    :: sent || terminated -> ends_here = 1;",
            "    :: else -> trigger = event; sent = 1;",
            "    fi;",
            "fi;",
        ]

    def _write_root_end(self) -> Lines:
        """A parallel state that is the whole chart ends it when all its regions have ended."""
        lines: Lines = []
        for name in self._tree.roots:
            if self._tree.nodes[name].is_parallel:
                condition = f"root_waits && {_name_state(name)} && {self._write_is_done(name)}"
                lines += write_if(condition, ["terminated = 1;"])
        return [*lines, "root_waits = 0;"]

    def _write_microstep(self) -> Lines:
        return [
            *self._write_selection(),
            *write_if("selected", ["tried = 0; fired = 1; microsteps++;", *self._write_firing()]),
        ]

    # -- selection -------------------------------------------------------------------------------

    def _write_selection(self) -> Lines:
        """For each active leaf its first enabled row. Where two conflict, the inner one wins."""
        lines = [
            f"selected = (trigger == {name_event(START)});",
            f"fires[{len(self._tree.rows)}] = selected;",
        ]
        for leaf in self._tree.list_leaves():
            rows = self._tree.list_inner_rows(leaf.name)
            if rows:
                lines.append(f"found = !{_name_state(leaf.name)};")
            for row in rows:
                enabled = f"!found && {self._write_enabled(row)}"
                lines += write_if(enabled, [f"found = 1; selected = 1; fires[{row.number}] = 1;"])
        for outer in self._tree.rows:
            for inner in self._tree.rows:
                if self._conflict(outer, inner):
                    lines += write_if(f"fires[{inner.number}]", [f"fires[{outer.number}] = 0;"])
        return lines

    def _write_enabled(self, row: Row) -> str:
        events = [name for name in self.event_names if any(_matches(event, name) for event in row.events)]
        triggers = " || ".join(f"trigger == {name_event(name)}" for name in events) or "0"
        parts = [f"({triggers})" if row.events else "trigger == 0"]
        for text, truth in row.guards:
            parts.append(self._facts.guards.write(text) if truth else f"!{self._facts.guards.write(text)}")
        return " && ".join(parts)

    def _conflict(self, outer: Row, inner: Row) -> bool:
        """Whether two rows would leave the same state, and the second one lies inside."""
        if not outer.targets or not inner.targets or not self._tree.is_inside(inner.source, outer.source):
            return False
        domain, inner_domain = self._domains[outer.number], self._domains[inner.number]
        if any(name and not self._tree.nodes[name].children for name in (domain, inner_domain)):
            return False  # an internal transition of a leaf leaves nothing
        return (
            domain is None
            or inner_domain is None
            or domain == inner_domain
            or (self._tree.is_inside(inner_domain, domain) or self._tree.is_inside(domain, inner_domain))
        )

    # -- firing ----------------------------------------------------------------------------------

    def _write_firing(self) -> Lines:
        tree = self._tree
        lines: Lines = []
        for row in tree.rows:
            lines += write_if(f"fires[{row.number}]", self._write_actions(row.before))
        lines += self._write_exits()
        for row in tree.rows:
            lines += write_if(f"fires[{row.number}]", self._write_actions(row.on))
        for row in tree.rows:
            lines += write_if(f"fires[{row.number}]", self._write_targets(row.targets, row))
        lines += write_if(f"fires[{len(tree.rows)}]", self._write_targets(tree.initial, None))
        for node in tree.nodes.values():
            lines += self._write_completion(node)
        for node in tree.nodes.values():
            lines += write_if(f"enters[{node.index}] /* {node.name} */", self._write_entry(node))
        for row in tree.rows:
            lines += write_if(f"fires[{row.number}]", self._write_actions(row.after))
        return [*lines, *_write_clearing("fires", len(tree.rows) + 1)]

    def _write_exits(self) -> Lines:
        """The states that are left, from inside to outside; their history is kept first."""
        tree, lines, left = self._tree, [], []
        for node in tree.nodes.values():
            rows = [
                row
                for row in tree.rows
                if row.targets and self._lies_in_domain(node.name, self._domains[row.number])
            ]
            if rows:
                left.append(node)
                fired = " || ".join(f"fires[{row.number}]" for row in rows)
                lines.append(
                    f"exits[{node.index}] = {_name_state(node.name)} && ({fired}); /* {node.name} */"
                )
        for history in tree.histories.values():
            kept = [
                f"{_name_memory(history, name)} = {_name_state(name)};"
                for name in tree.list_remembered(history)
            ]
            lines += write_if(
                f"exits[{tree.nodes[history.parent].index}]", [f"{_name_stored(history)} = 1;", *kept]
            )
        for node in reversed(left):
            asks = [f"{slot.ask} = 0;" for slot in self._slots if slot.state == node.name]
            actions = self._write_actions(node.exit)
            body = [*actions, f"{_name_state(node.name)} = 0; resets[{node.index}] = 1;", *asks]
            lines += write_if(f"exits[{node.index}]", [*body, f"exits[{node.index}] = 0;"])
        return lines

    def _lies_in_domain(self, name: str, domain: str | None) -> bool:
        return domain is None or self._tree.is_inside(name, domain)

    # -- entering --------------------------------------------------------------------------------

    def _write_targets(self, targets: tuple[str, ...], row: Row | None) -> Lines:
        lines: Lines = []
        domain = self._domains[row.number] if row and row.targets else None
        for target in targets:
            if target not in self._tree.histories:
                lines += self._write_entering(target, domain)
                continue
            history = self._tree.histories[target]
            lines += write_if(
                _name_stored(history),
                self._write_remembered(history),
                [line for name in history.targets for line in self._write_entering(name, history.parent)],
            )
            lines += self._write_entering(history.parent, domain)
        return lines

    def _write_entering(self, name: str, domain: str | None) -> Lines:
        """A state, and those around it that are not active yet, are entered."""
        names = [*self._tree.list_ancestors_below(name, domain), name]
        return [f"enters[{self._tree.nodes[other].index}] = 1; /* {other} */" for other in names]

    def _write_remembered(self, history: HistoryNode) -> Lines:
        return [
            line
            for name in self._tree.list_remembered(history)
            for line in write_if(
                _name_memory(history, name), [f"enters[{self._tree.nodes[name].index}] = 1;"]
            )
        ]

    def _write_completion(self, node: Node) -> Lines:
        """A parallel state enters all its regions, and any other the state that it begins with."""
        indexes = [self._tree.nodes[name].index for name in node.children]
        if node.is_parallel:
            return write_if(f"enters[{node.index}]", [f"enters[{index}] = 1;" for index in indexes])
        if not node.children:
            return []
        nothing = " && ".join([f"enters[{node.index}]", *(f"!enters[{index}]" for index in indexes)])
        lines = [line for name in node.initial for line in self._write_entering(name, node.name)]
        return write_if(nothing, lines)

    def _write_entry(self, node: Node) -> Lines:
        lines = [f"{_name_state(node.name)} = 1; enters[{node.index}] = 0; resets[{node.index}] = 1;"]
        lines += [f"{slot.ask} = 0;" for slot in self._slots if slot.state == node.name]
        lines += self._write_actions(node.enter, node.name)
        if not node.is_final:
            return lines
        if node.parent is None:
            return [*lines, "terminated = 1;"]
        lines += self._write_raise(f"done.state.{node.parent}")
        outer = self._tree.nodes[node.parent].parent
        if outer is not None and self._tree.nodes[outer].is_parallel:
            is_root = self._tree.nodes[outer].parent is None
            done = [*self._write_raise(f"done.state.{outer}"), *(["root_waits = 1;"] if is_root else [])]
            lines += write_if(self._write_is_done(outer), done)
        return lines

    def _write_is_done(self, name: str) -> str:
        """Whether a state has come to an end inside."""
        node = self._tree.nodes[name]
        if node.is_parallel:
            return "(" + " && ".join(map(self._write_is_done, node.children)) + ")"
        finals = [_name_state(child) for child in node.children if self._tree.nodes[child].is_final]
        return "(" + (" || ".join(finals) or "0") + ")"

    # -- actions ---------------------------------------------------------------------------------

    def _write_actions(self, actions: tuple[Any, ...], state: str | None = None) -> Lines:
        return [line for action in actions for line in self._write_action(action, state)]

    def _write_action(self, action: Any, state: str | None) -> Lines:
        if isinstance(action, Mapping):
            if "raise" in action:
                return self._write_raise(_get_raised(action["raise"]))
            return self._write_branches(action["if"], state)
        for slot in self._slots:
            if (slot.state, slot.row.name) == (state, action):
                return [f"{slot.ask} = 1;"]
        return [f"{name_variable('does', action)} = 1;"]

    def _write_branches(self, body: Mapping[str, Any], state: str | None) -> Lines:
        otherwise = self._write_actions(_to_tuple(body.get("else")), state)
        for branch in reversed([body, *(body.get("elif") or ())]):
            then = self._write_actions(_to_tuple(branch.get("then")), state)
            otherwise = write_if(self._facts.guards.write(branch["cond"]), then, otherwise)
        return otherwise

    def _write_raise(self, event: str) -> Lines:
        return [f"queue[raised] = {name_event(event)}; raised++; /* {describe(event)} */"]


def _name_state(name: str) -> str:
    return name_variable("in", name)


def _name_stored(history: HistoryNode) -> str:
    return name_variable("stored", history.name)


def _name_memory(history: HistoryNode, state: str) -> str:
    return name_variable("memory", history.name, state)


def _write_clearing(array: str, length: int) -> Lines:
    return [f"{array}[{index}] = 0;" for index in range(length)]


def _matches(descriptor: str, event: str) -> bool:
    """Whether a row for `replied` or `*` takes an event; nothing takes the start."""
    if event == START:
        return False
    if descriptor == "*":
        return True
    words = descriptor.removesuffix(".*").removesuffix(".").split(".")
    return event.split(".")[: len(words)] == words


def _to_tuple(value: Any) -> tuple[Any, ...]:
    return () if not value else tuple(value) if isinstance(value, list) else (value,)


def _get_raised(value: Any) -> str:
    return value if isinstance(value, str) else str(value["event"])


def _list_raised(actions: Any) -> list[str]:
    if isinstance(actions, list | tuple):
        return [event for action in actions for event in _list_raised(action)]
    if not isinstance(actions, Mapping):
        return []
    own = [_get_raised(actions["raise"])] if "raise" in actions else []
    return own + [event for key, body in actions.items() if key != "raise" for event in _list_raised(body)]
