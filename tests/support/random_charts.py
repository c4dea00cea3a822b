"""Hypothesis strategies for random pure charts of every kind, for differential tests."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from toolchart.states.chart.loading import make_chart
from toolchart.states.chart.yaml_document import parse_key_path
from toolchart.states.errors import SpecError

EVENTS = ("replied", "failed", "elapsed", "cancelled")
RAISED = "told"
"""An event that only charts raise."""
GUARDS = (
    "iteration > 1",
    "retryable",
    "not retryable",
    "attempt == 0 or iteration >= 2",
    "pending_calls < 2 and not retryable",
    "0 < iteration < 3",
    "iteration + attempt > 2",
)
QUIET_EFFECTS = ("describe_tools_in_text", "answer", "answer_at_limit")
"""Effects that nothing answers, so that they may stand anywhere."""
AWAITED_EFFECTS = ("call_model", "review_calls", "run_tools")
"""Effects of leaves outside parallel regions; one state may ask for one of them."""
EFFECT_NAMES = (*AWAITED_EFFECTS, "wait", *QUIET_EFFECTS)

worlds = st.fixed_dictionaries(
    {
        "iteration": st.integers(0, 3),
        "attempt": st.integers(0, 2),
        "retryable": st.booleans(),
        "pending_calls": st.integers(0, 3),
    }
)
"""Facts for the guards at one moment."""


@st.composite
def charts(draw: st.DrawFn) -> dict[str, Any]:
    """A chart document: flat, compound, parallel, with history, eventless and raised transitions."""
    names: list[str] = []
    compounds: list[str] = []
    histories: list[str] = []
    states = _draw_level(draw, names, compounds, histories, depth=0, is_region=False)
    targets = [*names, *histories]
    for name, body in _list_states(states):
        if not body.get("final"):
            body["transitions"] = [
                _draw_row(draw, name, targets, compounds) for _ in range(draw(st.integers(0, 3)))
            ]
    for body in (b for _, b in _list_states(states)):
        for history in (body.get("history") or {}).values():
            history["transitions"] = [{"target": next(iter(body["states"]))}]
    document = {"name": "random", "states": states}
    if f"'raise': '{RAISED}'" not in repr(document):
        for _, body in _list_states(states):
            body["transitions"] = [row for row in body.get("transitions", ()) if row.get("event") != RAISED]
    _remove_conflicts(document)
    assume(_is_loadable(document))
    return document


def _is_loadable(document: dict[str, Any]) -> bool:
    """Whether the rules for charts let it pass."""
    try:
        make_chart(document)
    except SpecError:
        return False
    return True


def _remove_conflicts(document: dict[str, Any]) -> None:
    """Remove rows until no two regions conflict; a chart with a conflict is refused."""
    while True:
        try:
            make_chart(document)
        except SpecError as error:
            if "only one can fire" not in error.message:
                return
            *keys, index = parse_key_path(error.path or "")
            holder: Any = document
            for key in keys:
                holder = holder[key]
            del holder[index]
        else:
            return


def _draw_level(
    draw: st.DrawFn, names: list[str], compounds: list[str], histories: list[str], depth: int, is_region: bool
) -> dict[str, Any]:
    level: dict[str, Any] = {}
    for index in range(draw(st.integers(2, 3))):
        name = f"s{len(names)}"
        names.append(name)
        body: dict[str, Any] = {}
        level[name] = body
        if index == 0:
            body["initial"] = True
        kind = draw(st.sampled_from(("leaf", "leaf", "compound", "parallel", "final")))
        if kind == "final" and index:
            body["final"] = True
        elif kind == "compound" and depth < 2:
            _fill_compound(draw, body, name, names, compounds, histories, depth, is_region)
        elif kind == "parallel" and depth < 1:
            body["parallel"] = True
            compounds.append(name)
            body["states"] = {}
            for _ in range(2):
                region = f"s{len(names)}"
                names.append(region)
                body["states"][region] = {}
                _fill_compound(
                    draw, body["states"][region], region, names, compounds, histories, depth + 1, True
                )
        for slot in ("enter", "exit"):
            if draw(st.integers(0, 2)) == 0:
                body[slot] = draw(
                    st.lists(st.sampled_from(QUIET_EFFECTS), min_size=1, max_size=2, unique=True)
                )
        if draw(st.booleans()) and not body.get("final") and not is_region:
            asked_effects = ("wait",) if "states" in body else AWAITED_EFFECTS
            if "states" not in body or depth == 0:
                body.setdefault("enter", []).insert(0, draw(st.sampled_from(asked_effects)))
    return level


def _fill_compound(
    draw: st.DrawFn,
    body: dict[str, Any],
    name: str,
    names: list[str],
    compounds: list[str],
    histories: list[str],
    depth: int,
    is_region: bool,
) -> None:
    compounds.append(name)
    body["states"] = _draw_level(draw, names, compounds, histories, depth + 1, is_region)
    if draw(st.booleans()):
        history = f"h{len(histories)}"
        histories.append(history)
        body["history"] = {history: {"type": draw(st.sampled_from(("shallow", "deep")))}}


def _draw_row(draw: st.DrawFn, source: str, names: list[str], compounds: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    kind = draw(st.sampled_from(("event",) * 6 + ("eventless", "done", "raised", "any")))
    if kind == "eventless":
        # Guarded and never into itself; longer circles may spin, which both sides must notice.
        row["cond"] = draw(st.sampled_from(GUARDS))
        row["target"] = draw(st.sampled_from([name for name in names if name != source]))
        return row
    row["event"] = {
        "done": f"done.state.{draw(st.sampled_from(compounds))}" if compounds else "elapsed",
        "raised": RAISED,
        "any": "*",
    }.get(kind) or draw(st.sampled_from(EVENTS))
    if draw(st.integers(0, 5)):
        row["target"] = draw(st.sampled_from(names))
    if draw(st.booleans()):
        row[draw(st.sampled_from(("cond", "unless")))] = draw(
            st.one_of(
                st.sampled_from(GUARDS),
                st.lists(st.sampled_from(GUARDS), min_size=1, max_size=2, unique=True),
            )
        )
    if draw(st.integers(0, 7)) == 0:
        row["internal"] = True
        row["target"] = source
    choice = draw(st.integers(0, 5))
    if choice == 0:
        row["on"] = draw(st.sampled_from(QUIET_EFFECTS))
    elif choice == 1:
        row["on"] = {"raise": RAISED}
    elif choice == 2:
        row["on"] = {"if": {"cond": draw(st.sampled_from(GUARDS)), "then": [{"raise": RAISED}]}}
    return row


def _list_states(states: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    states_with_bodies = []
    for name, body in states.items():
        states_with_bodies.append((name, body))
        states_with_bodies.extend(_list_states(body.get("states") or {}))
    return states_with_bodies
