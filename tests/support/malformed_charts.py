"""Malformed charts for the fuzzer: mutations of data, mutations of text, and shapes written by hand."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import yaml

from toolchart.specs.charts import list_shipped_charts, load_chart

RICH_CHART = """
name: rich
states:
  working:
    initial: true
    history: {earlier: {type: deep, transitions: [{target: thinking}]}}
    states:
      thinking:
        initial: true
        enter: call_model
        transitions:
          - {event: replied, target: both, cond: ["finish_reason == 'stop'", "In('working')"]}
          - {event: replied, target: done, unless: "iteration % 2 == 0 and replies / 2 < 1.5"}
          - {event: failed, target: thinking, internal: true}
          - {event: waited, on: {if: {cond: retryable, then: {raise: noticed}, else: [{raise: seen}]}}}
          - {event: noticed, target: earlier}
          - {event: seen, target: earlier}
      done: {final: true}
    transitions:
      - {event: done.state.working, target: finished}
      - {event: "failed cancelled", target: error}
  both:
    parallel: true
    states:
      left:
        states:
          l1: {initial: true, enter: wait, transitions: [{event: waited, target: l2}]}
          l2: {final: true}
      right:
        states:
          r1: {initial: true, exit: {raise: noticed}, transitions: [{event: decided, target: r2}]}
          r2: {final: true}
    transitions:
      - {event: done.state.both, target: finished}
      - {event: "*", target: error}
  finished: {final: true, enter: answer}
  error: {final: true, enter: answer_with_error}
"""

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**70, 1.5, float("inf"), float("nan"), "", " ", "x", "a b", "a.b", "*",
    "replied", "call_model", "states", "initial", "final", "none", "None", "on", "no", "\u00e9t\u00e9",
    "In()",    "\u202e", "\x00", "\ud800", "x" * 5000, "__class__", "self", "In('working')",
    "iteration % 0", "1e999",
    "not", "finished finished", "done.state.working", "done.state.", "done", ".", "replied.*", "(" * 300,
    [], [None], [1], [True], [[]], ["call_model"], ["x", "x"], [{}], [["a"]], {}, {"a": None}, {"": ""},
    {"states": {}}, {"states": None}, {"initial": True}, {"event": "replied"}, {"target": "finished"},
    {"raise": "replied"}, {"raise": None}, {"raise": {}}, {"if": {}}, {"if": {"cond": "retryable"}},
    {"if": {"cond": 1, "then": 2}}, {"if": {"cond": "x", "then": [{"raise": "y"}], "elif": [None]}},
    {"history": {"h": {}}}, {"history": {"h": {"type": "deep"}}}, {"parallel": True}, {"final": True},
    {"parallel": True, "states": {"a1": {}, "a2": {}}}, {"log": "x"}, {"invoke": {}}, {1: 2}, {True: "x"},
    {None: 1}, {"extends": "tool_loop"}, (1, 2), {1, 2}, b"x", object(), "tool_loop",
)  # fmt: skip
"""Values that take the place of a part of a chart."""

ODD_TEXTS = (
    "\t", "\x00", "\ufeff", "\u2028", "\x85", "{", "}", "[", "]", "- ", "? ", ": ", "&a ", "*a ", "<<: *a",
    "!!python/object:os.system ", "!!int x", "!!timestamp 2026-99-99", "!!binary x", "!!set {a}",
    "!!omap [a]", "---\n", "...\n", "%YAML 9.9\n", "|\n", ">\n", "'", '"', "#", "@", "`", "on: x\n",
    "2026-01-01: x\n",
    "0x: 1\n", "1e999", "9" * 5000, "\ud800", "~",
)  # fmt: skip
"""Texts that are put into the YAML of a chart."""


def list_seed_documents() -> list[dict[str, Any]]:
    """Correct charts as data: the shipped ones, and one with every construct."""
    return [*(load_chart(name).document for name in list_shipped_charts()), yaml.safe_load(RICH_CHART)]


def mutate_document(random: Random, document: dict[str, Any]) -> Any:
    """The document with one to three parts replaced, removed, doubled, moved, renamed or wrapped."""
    mutant: Any = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(islice(_iterate_places(mutant), 2_000))
        if not places:
            return mutant
        holder, key = random.choice(places)
        random.choice(_MUTATIONS)(random, holder, key, places)
    return mutant


def mutate_text(random: Random, text: str) -> str:
    """The text with one to three cuts, insertions or swapped lines."""
    for _ in range(random.choice((1, 1, 2, 3))):
        start = random.randrange(len(text) + 1)
        kind = random.randrange(5)
        if kind == 0:
            text = text[:start] + text[start + random.randrange(1, 40) :]
        elif kind == 1:
            text = text[:start] + random.choice(ODD_TEXTS) + text[start:]
        elif kind == 2:
            lines = text.split("\n")
            first, second = random.randrange(len(lines)), random.randrange(len(lines))
            lines[first], lines[second] = lines[second], lines[first]
            text = "\n".join(lines)
        elif kind == 3:
            lines = text.split("\n")
            lines.insert(random.randrange(len(lines)), random.choice(lines))
            text = "\n".join(lines)
        else:
            text = text[:start] + random.choice("\t :-{}[]'\"#&*!|>%@,?\n0aZ") + text[start + 1 :]
    return text


def mutate_meaning(random: Random, document: dict[str, Any]) -> dict[str, Any]:
    """The document in the right shape, with one to three flags, targets, events or parents changed."""
    mutant = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 2, 3))):
        states = list(_iterate_states(mutant))
        names = [name for holder in states for name in (*holder[1][holder[0]].get("history", ()), holder[0])]
        name, siblings = random.choice(states)
        random.choice(_MEANINGS)(random, siblings, name, names)
    return mutant


def _iterate_states(holder: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every state by its name, with the mapping that holds it."""
    for name, state in (holder.get("states") or {}).items():
        yield name, holder["states"]
        yield from _iterate_states(state)


def _set_flag(random: Random, siblings: Any, name: str, names: list[str]) -> None:
    siblings[name][random.choice(("initial", "final", "parallel"))] = random.choice(
        (True, False, "yes", "no")
    )


def _add_row(random: Random, siblings: Any, name: str, names: list[str]) -> None:
    events = ("replied", "failed", "*", "cancelled", "waited", f"done.state.{random.choice(names)}", "")
    row = {
        "event": random.choice(events),
        "target": random.choice((*names, "", f"{random.choice(names)} {random.choice(names)}")),
        "cond": random.choice(("retryable", f"In('{random.choice(names)}')", "iteration > 2")),
        "internal": random.choice((True, False)),
        "initial": random.choice((True, False)),
        "enter": "answer",
        random.choice(("on", "before", "after")): random.choice(("answer", {"raise": "decided"}, [])),
    }
    kept = {key for key in row if random.random() < 0.5} - {"enter"}
    rows = siblings[name].setdefault("transitions", [])
    rows.insert(random.randrange(len(rows) + 1), {key: row[key] for key in row if key in kept})


def _nest(random: Random, siblings: Any, name: str, names: list[str]) -> None:
    other = random.choice(list(siblings))
    if other != name:
        siblings[other].setdefault("states", {})[name] = siblings.pop(name)


def _drop_rows(random: Random, siblings: Any, name: str, names: list[str]) -> None:
    siblings[name].pop(random.choice(("transitions", "enter", "states", "history", "initial")), None)


def _add_history(random: Random, siblings: Any, name: str, names: list[str]) -> None:
    target = random.choice(names)
    rows = random.choice(([], [{"target": target}], [{"target": target, "cond": "retryable"}], [{}]))
    history = {"type": random.choice(("deep", "shallow")), "transitions": rows}
    siblings[name].setdefault("history", {})[f"h{random.randrange(3)}"] = history
    _add_row(random, siblings, name, [*names, "h0", "h1"])


def _copy_state(random: Random, siblings: Any, name: str, names: list[str]) -> None:
    siblings[f"copy{random.randrange(3)}"] = {
        key: value for key, value in siblings[name].items() if key not in ("states", "history")
    }


_MEANINGS = (_set_flag, _set_flag, _add_row, _add_row, _nest, _drop_rows, _add_history, _copy_state)


def _iterate_places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every mapping or list with each of its keys or indexes, ten levels deep: it may contain itself."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in entries:
        yield value, key
        if depth < 10:
            yield from _iterate_places(item, depth + 1)


def _replace(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    holder[key] = copy.deepcopy(random.choice(ODD_VALUES[:-4])) if random.random() < 0.9 else ODD_VALUES[-2]


def _remove(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    del holder[key]


def _double(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    if isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[f"{key}2"] = holder[key]


def _move(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    other, other_key = random.choice(places)
    other[other_key] = holder[key]


def _contain_itself(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    other, other_key = random.choice(places)
    other[other_key] = holder  # an alias, in some cases of an entry that contains it


def _rename(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    if isinstance(holder, dict):
        names = (
            *(v for v in ODD_VALUES if isinstance(v, str | int | float | None)),
            "cond",
            "event",
            "enter",
        )
        holder[random.choice(names)] = holder.pop(key)


def _wrap(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    holder[key] = [holder[key]] if random.random() < 0.5 else {str(key): holder[key]}


def _bury(random: Random, holder: Any, key: Any, places: list[Any]) -> None:
    for _ in range(random.choice((15, 50, 500))):
        holder[key] = [holder[key]] if random.random() < 0.5 else {"states": holder[key]}


_MUTATIONS = (
    _replace, _replace, _replace, _remove, _double, _move, _move, _contain_itself, _rename, _rename, _wrap,
    _bury,
)  # fmt: skip
