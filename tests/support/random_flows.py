"""Random declared flows from a grammar: effects of every kind, regions, timers, turns, schemas."""

from __future__ import annotations

import random
from typing import Any

SCHEMA = {
    "type": "object",
    "required": ["score", "tone", "done"],
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 5},
        "tone": {"type": "string", "enum": ["warm", "cold", "dry"]},
        "done": {"type": "boolean"},
        "parts": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
    },
}
"""The schema of every result that has one."""

MAX_STATES = 12

_CHILD = {
    "name": "child",
    "states": {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [{"event": "replied", "target": "told"}, {"event": "failed", "target": "broken"}],
        },
        "told": {"final": True, "enter": "answer"},
        "broken": {"final": True, "enter": "answer_with_error"},
    },
}

ANSWERS = {
    "call_model": ("replied", "failed"),
    "call_function": ("returned", "failed"),
    "ask_person": ("answered",),
    "wait": ("elapsed",),
    "await_user": ("user_said",),
    "run_agent": ("agent_finished", "agent_failed"),
    "review_calls": ("reviewed", "decided"),
    "run_tools": ("tool_finished",),
    "ask_approval": ("decided",),
    "choice": (),
}
"""The events that need rows, by kind of state; a choice has rows without an event."""


class FlowMaker:
    """Makes one flow; the same seed makes the same one.

    Args:
        kinds_to_leave_out: kinds of effects that the flow does not use.
    """

    def __init__(self, rng: random.Random, kinds_to_leave_out: tuple[str, ...] = ()) -> None:
        self._rng = rng
        self._left_out = kinds_to_leave_out
        self._effects: dict[str, Any] = {}
        self._schemas: dict[str, bool] = {}
        """The results, and whether each has the schema."""
        self._states: dict[str, Any] = {}
        self._kinds: dict[str, tuple[str, str]] = {}
        """The kind and the effect of each working state."""
        self._count = 0

    def make_flow(self) -> dict[str, Any]:
        """A chart document with its declared effects."""
        rng = self._rng
        has_region = rng.random() < 0.25
        names = [f"s{index}" for index in range(rng.randint(1, 5 if has_region else MAX_STATES - 3))]
        self._states = {name: {} for name in names}
        for name in names:
            self._kinds[name] = self._declare_effect(self._choose_kind(is_main=True))
        targets = [*names, "told"]
        if has_region:
            targets.insert(rng.randint(1, len(names)), "both")
            names_in_order = [name for name in targets if name != "told"]
            self._states = {name: {} for name in names_in_order}
        for index, name in enumerate(targets):
            if name in self._kinds:
                self._fill_state(self._states[name], name, index, [*targets, "broken"])
            elif name == "both":
                self._fill_regions(self._states[name], index, [*targets, "broken"])
        self._states[targets[0]]["initial"] = True
        self._states["told"] = {"final": True, "enter": self._choose_ending()}
        self._states["broken"] = {"final": True, "enter": "answer_with_error"}
        return {"name": "flow", "states": self._states, "effects": self._effects}

    # -- effects ---------------------------------------------------------------------------------

    def _choose_kind(self, *, is_main: bool) -> str:
        kinds = ["model", "model", "function", "person", "timer", "agent", "agents"]
        if is_main:
            kinds += ["main_model", "main_model", "choice", "user", "tools", "tools", "review", "approval"]
            kinds += ["handoff", "main_function"]
        return self._rng.choice([kind for kind in kinds if kind not in self._left_out])

    def _declare_effect(self, kind: str) -> tuple[str, str]:
        """The kind of state and the name of its effect."""
        if kind in ("tools", "review", "approval"):
            name = {"tools": "run_tools", "review": "review_calls", "approval": "ask_approval"}[kind]
            return name, name
        if kind == "choice":
            return "choice", ""
        if kind == "main_model" and self._rng.random() < 0.6:
            return "call_model", "call_model"
        self._count += 1
        name, rng = f"do_{self._count}", self._rng
        result = self._choose_result(kind)
        body: dict[str, Any] = {"as": result} if result else {}
        schema = {"schema": SCHEMA} if result and self._schemas[result] else {}
        match kind:
            case "model":
                declared, body = "call_model", {**body, "prompt": "Do {{user_message}}", **schema}
            case "main_model":
                declared, body = "call_model", {"prompt": "Go on."}
            case "function" | "main_function":
                declared, body = "call_function", {**body, "function": "work", **schema}
            case "person":
                form = {"form": SCHEMA} if schema else {}
                declared, body = "ask_person", {**body, "question": "What?", **form}
            case "timer":
                declared, body = "wait", {"time": rng.choice(["1s", "2h", 5])}
            case "user":
                declared, body = "await_user", {"content": rng.choice(["", "And now?"])}
            case "handoff":
                declared, body = "run_agent", {"chart": _CHILD}
            case "agent":
                declared, body = "run_agent", {**body, "chart": _CHILD, **schema}
            case _:
                declared, body = "run_agent", {**body, "chart": _CHILD, **self._choose_list()}
        self._effects[name] = {declared: body}
        return declared, name

    def _choose_result(self, kind: str) -> str:
        if kind in ("model", "function", "person", "agent", "agents"):
            rng = self._rng
            wants_schema = kind != "agents" and rng.random() < 0.6
            result = f"r_{self._count}"
            self._schemas[result] = wants_schema
            return result
        return ""

    def _choose_list(self) -> dict[str, Any]:
        with_schema = [name for name, has_schema in self._schemas.items() if has_schema]
        source = f"{self._rng.choice(with_schema)}.parts" if with_schema else "papers"
        bound = {"at_most": self._rng.randint(1, 3)} if self._rng.random() < 0.7 else {}
        return {"for_each": source, "parallel": self._rng.randint(1, 3), **bound}

    def _choose_ending(self) -> str:
        rng = self._rng
        if rng.random() < 0.5:
            return "answer"
        self._effects["publish"] = {"answer": {"content": "The end. {{user_message}}"}}
        return "publish"

    # -- states ----------------------------------------------------------------------------------

    def _fill_state(self, body: dict[str, Any], name: str, index: int, targets: list[str]) -> None:
        rng = self._rng
        kind, effect = self._kinds[name]
        if effect:
            body["enter"] = effect
        rows: list[dict[str, Any]] = []
        for event in ANSWERS[kind] or ("",):
            if rng.random() < 0.03:
                continue
            rows += self._make_rows(event, effect, index, targets, dotted=rng.random() < 0.3)
        if kind == "run_agent" and effect and rng.random() < 0.2:
            rows.append({"event": "agent_rested", "target": rng.choice(targets)})
        if kind == "review_calls" and rng.random() < 0.7:
            rows = [row for row in rows if row["event"].split(".")[0] != "decided"]
            rows += [
                {"event": "decided", "target": rng.choice(targets[index:]), "cond": "undecided_calls == 0"},
                {"event": "decided"},
            ]
            rows.insert(0, {"event": "reviewed", "cond": "undecided_calls > 0"})
        if kind in ("run_tools", "ask_approval") and rng.random() < 0.8:
            event, fact = {"run_tools": ("tool_finished", "pending_calls")}.get(
                kind, ("decided", "undecided_calls")
            )
            rows.insert(0, {"event": event, "cond": f"{fact} > 0"})
        if rng.random() < 0.4:
            rows.append({"event": "cancelled", "target": rng.choice(["broken", *targets])})
        if rng.random() < 0.15 and kind != "await_user":
            rows.append(
                {"event": "user_said", **({"target": rng.choice(targets)} if rng.random() < 0.8 else {})}
            )
        if effect and rng.random() < 0.15:
            body["after"] = {rng.choice(["1h", "3s"]): self._choose_target(index, targets)}
        body["transitions"] = rows

    def _fill_regions(self, body: dict[str, Any], index: int, targets: list[str]) -> None:
        """A parallel state of two or three regions; only the first one works on the conversation."""
        rng = self._rng
        regions: dict[str, Any] = {}
        for number in range(rng.choice([2, 2, 3])):
            inner = [f"p{number}{letter}" for letter in "ab"[: rng.randint(1, 2)]]
            states: dict[str, Any] = {}
            for place, name in enumerate(inner):
                kind, effect = self._declare_effect(self._choose_kind(is_main=number == 0))
                while kind == "choice":
                    kind, effect = self._declare_effect(self._choose_kind(is_main=number == 0))
                rows: list[dict[str, Any]] = []
                for event in ANSWERS[kind]:
                    rows += self._make_rows(event, effect, place, [*inner, f"p{number}z"], dotted=True)
                states[name] = {"enter": effect, "transitions": rows}
            states[inner[0]]["initial"] = True
            states[f"p{number}z"] = {"final": True}
            regions[f"region{number}"] = {"states": states}
        body["parallel"] = True
        body["states"] = regions
        rows = [{"event": "done.state.both", "target": rng.choice(targets[index + 1 :])}]
        if rng.random() < 0.5:
            rows.append({"event": "cancelled", "target": "broken"})
        if rng.random() < 0.3:
            body["after"] = {"1h": self._choose_target(index, targets)}
        body["transitions"] = rows

    # -- rows ------------------------------------------------------------------------------------

    def _make_rows(
        self, event: str, effect: str, index: int, targets: list[str], *, dotted: bool
    ) -> list[dict[str, Any]]:
        """Guarded rows, and mostly one without a guard at the end."""
        rng = self._rng
        name = f"{event}.{effect}" if dotted and event else event
        rows = []
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            target, guard = self._choose_back_edge(effect, index, targets)
            rows.append({"event": name, "target": target, "cond": guard})
        if rng.random() < 0.96:
            last = targets[index + 1 :] if rng.random() < 0.93 else targets
            if rng.random() < 0.6:  # mostly the next state, so that most states are reached
                last = targets[index + 1 : index + 2]
            rows.append({"event": name, "target": rng.choice(last or targets)})
        if not event:
            for row in rows:
                del row["event"]
        return rows

    def _choose_target(self, index: int, targets: list[str]) -> str:
        return self._rng.choice(targets[index + 1 :] if self._rng.random() < 0.8 else targets)

    def _choose_back_edge(self, effect: str, index: int, targets: list[str]) -> tuple[str, str]:
        """A target anywhere, with a guard; back edges mostly with one that bounds them."""
        rng = self._rng
        if rng.random() < 0.5 and targets[index + 1 :]:
            return rng.choice(targets[index + 1 :]), self._choose_guard()
        guards = [self._choose_bound(effect)] if rng.random() < 0.9 else []
        if not guards or rng.random() < 0.3:
            guards.append(self._choose_guard())
        joint = "or" if rng.random() < 0.1 else "and"
        return rng.choice(targets), f" {joint} ".join(f"({guard})" for guard in guards)

    def _choose_bound(self, effect: str) -> str:
        """A guard that may bound a cycle through this effect."""
        rng = self._rng
        declared = next(iter(self._effects.get(effect, {}).values()), {})
        result = declared.get("as")
        number = rng.randint(1, 4)
        if result:
            field = rng.choice(["count", "failures", "attempt"])
            return rng.choice(
                [
                    f"{result}.{field} < {number}",
                    f"{result}.{field} != {number}",
                    f"{result}.{field} // 2 < {number}",
                    f"{result}.{field} <= max_attempts",
                ]
            )
        fact, limit = rng.choice(
            [("replies", "max_iterations"), ("attempt", "max_attempts"), ("iteration", "max_iterations")]
        )
        return rng.choice([f"{fact} < {limit}", f"{fact} < {number}", f"{fact} != {number}"])

    def _choose_guard(self) -> str:
        rng = self._rng
        guards = ["has_content", "finish_reason == 'stop'", "tool_calls > 0", "retryable", "attempt == 0"]
        guards += ["pending_calls == 0", "unread_messages > 0", "error_kind == 'server'"]
        for result, has_schema in self._schemas.items():
            guards += [f"{result}.count > 0", f"{result}.pending == 0", f"{result}.error_kind == 'none'"]
            if has_schema:
                field = rng.choice(["score > 3", "score % 2 == 0", "tone == 'warm'", "done"])
                protected = f"{result}.count >= 1 and {result}.{field}"
                guards += [protected, protected, f"{result}.{field}"]
        return rng.choice(guards)


def make_flow(seed: int, kinds_to_leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The random flow of a seed."""
    return FlowMaker(random.Random(seed), kinds_to_leave_out).make_flow()
