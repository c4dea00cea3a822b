"""The shape of a chart: which keys it may have, and what stands under each. Checked before every other rule.

The tables below are the library's JSON Schema without what a pure chart must not have (memory, sending,
printing, scripts). A test compares the two. An error says what is expected, what was found, and where; what
passes may be walked by any later code without a further look at types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, NoReturn

from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY, Vocabulary
from toolchart.states.chart.yaml_document import (
    WORDS_HINT,
    LocatedDocument,
    SourcePosition,
    raise_error,
    shorten,
)
from toolchart.states.errors import suggest_name

_TRUE_WORDS = ("true", "yes", "on")
_FALSE_WORDS = ("false", "no", "off")
"""The library reads these texts as flags too."""

_IMPURE_ACTIONS = ("assign", "log", "foreach", "send", "cancel", "script")
"""Actions that compute, print, sleep or run code inside the machine."""

_IMPURE_KEYS = ("datamodel", "invoke", "donedata")

_Check = Callable[["_ShapeCheck", Any, SourcePosition], None]


def check_shape(
    document: Mapping[str, Any], located: LocatedDocument, vocabulary: Vocabulary = GENERAL_VOCABULARY
) -> None:
    """Refuse a resolved chart in which a key is unknown or has a value of the wrong kind.

    Args:
        located: where the chart comes from, for errors.

    Raises:
        SpecError: the first such key, with file, line and key path.
    """
    _ShapeCheck(located, vocabulary).check_keys(document, (), "a chart", _CHART_KEYS)


def normalise_flags(document: Mapping[str, Any]) -> None:
    """Make every flag of a chart of the right shape a boolean, in place: `initial: yes` becomes true."""
    _set_flags(document)
    for state in (document.get("states") or {}).values():
        normalise_flags(state)
    for holder in (document, *(document.get("history") or {}).values()):
        for row in holder.get("transitions") or ():
            _set_flags(row)


def _set_flags(holder: Any) -> None:
    for key in ("initial", "final", "parallel", "internal"):
        if isinstance(holder.get(key), str):
            holder[key] = holder[key] in _TRUE_WORDS


class _ShapeCheck:
    """One check of one document; each method checks one kind of value."""

    def __init__(self, located: LocatedDocument, vocabulary: Vocabulary = GENERAL_VOCABULARY) -> None:
        self._located = located
        self._vocabulary = vocabulary

    def refuse(self, position: SourcePosition, message: str, hint: str | None = None) -> NoReturn:
        """Raise a SpecError at the position."""
        raise_error(self._located, position, message, hint)

    def expect(self, value: Any, kinds: type | UnionType, position: SourcePosition, what: str) -> None:
        """Refuse a value that is none of these kinds; `what` describes what is allowed."""
        if isinstance(value, kinds):
            return
        key = position[-1] if position else "the chart"
        owner = f"an entry of `{position[-2]}`" if isinstance(key, int) else f"`{shorten(key, 60)}`"
        is_word = isinstance(value, bool | int | float)
        hint = WORDS_HINT if is_word else "leave the key out" if value is None else None
        self.refuse(position, f"{owner} is {what}, not {_describe_value(value)}", hint)

    def check_keys(
        self, value: Any, position: SourcePosition, kind: str, table: Mapping[str, _Check]
    ) -> None:
        """Check a mapping whose keys are in a table, and each of its values."""
        self.expect(value, Mapping, position, f"a mapping with the keys of {kind}")
        for key, item in value.items():
            if key in _IMPURE_KEYS:
                self.refuse(
                    (*position, key),
                    f"`{key}` keeps state inside the machine; a chart is pure",
                    "facts come in with events; a chart only decides",
                )
            if key not in table:
                known = [*table, "extends"] if kind == "a chart" else table  # loading has resolved `extends`
                self.refuse(
                    (*position, key), f"unknown key {shorten(key, 60)!r} in {kind}", suggest_name(key, known)
                )
            table[key](self, item, (*position, key))
        if kind == "a chart" and "states" not in value:
            self.refuse(position, "a chart is a mapping with the key `states`")

    # -- values ----------------------------------------------------------------------------------

    def check_text(self, value: Any, position: SourcePosition) -> None:
        """A text."""
        self.expect(value, str, position, "a text")

    def check_flag(self, value: Any, position: SourcePosition) -> None:
        """True or false, or one of the words for them."""
        if not isinstance(value, bool) and value not in (*_TRUE_WORDS, *_FALSE_WORDS):
            self.refuse(position, f"`{position[-1]}` is true or false, not {_describe_value(value)}")

    def check_history_type(self, value: Any, position: SourcePosition) -> None:
        """Shallow or deep."""
        if value not in ("shallow", "deep"):
            self.refuse(position, f"`type` is shallow or deep, not {_describe_value(value)}")

    def check_guards(self, value: Any, position: SourcePosition) -> None:
        """One guard, or a list of guards."""
        self.expect(value, str | list, position, "a guard in quotes or a list of guards")
        for index, guard in enumerate(value if isinstance(value, list) else ()):
            self.expect(guard, str, (*position, index), "a guard in quotes")

    # -- states and rows -------------------------------------------------------------------------

    def check_states(self, value: Any, position: SourcePosition) -> None:
        """A mapping of names to states."""
        self.expect(value, Mapping, position, "a mapping of names to states")
        if not value and len(position) == 1:
            self.refuse(position, "a chart has at least one state")
        for name, state in value.items():
            self.check_keys(state, (*position, name), "a state", _STATE_KEYS)

    def check_histories(self, value: Any, position: SourcePosition) -> None:
        """A mapping of names to history states."""
        self.expect(value, Mapping, position, "a mapping of names to history states")
        for name, history in value.items():
            self.check_keys(history, (*position, name), "a history state", _HISTORY_KEYS)

    def check_rows(self, value: Any, position: SourcePosition) -> None:
        """A list of transitions."""
        self.expect(value, list, position, "a list of transitions such as {event: replied, target: finished}")
        for index, row in enumerate(value):
            self.check_keys(row, (*position, index), "a transition", _ROW_KEYS)

    # -- actions ---------------------------------------------------------------------------------

    def check_actions(self, value: Any, position: SourcePosition) -> None:
        """The name of an effect, a `raise` or an `if`, or a list of these."""
        self.expect(value, str | Mapping | list, position, "the name of an effect or a list of names")
        for index, action in enumerate(value if isinstance(value, list) else ()):
            self.expect(action, str | Mapping, (*position, index), "the name of an effect")
            if isinstance(action, Mapping):
                self.check_action(action, (*position, index))
        if isinstance(value, Mapping):
            self.check_action(value, position)

    def check_inner_actions(self, value: Any, position: SourcePosition) -> None:
        """What may stand inside an `if`: no effects, because the library does not call them there."""
        for index, action in enumerate(value if isinstance(value, list) else [value]):
            action_position = (*position, index) if isinstance(value, list) else position
            if isinstance(action, str):
                self.refuse(
                    action_position,
                    f"the effect {shorten(action)!r} stands inside `if`",
                    "give a transition a guard instead",
                )
            self.check_action(action, action_position)

    def check_action(self, value: Any, position: SourcePosition) -> None:
        """A mapping with the one key `raise` or `if`."""
        self.expect(value, Mapping, position, "an action such as {raise: EVENT}")
        for key in value:
            if key in _IMPURE_ACTIONS:
                self.refuse(
                    (*position, key),
                    f"the action `{key}` is not pure",
                    "name an effect instead: " + ", ".join(self._vocabulary.list_effect_names()),
                )
        if len(value) != 1:
            self.refuse(position, "an action has exactly one key, `raise` or `if`")
        self.check_keys(value, position, "an action", _ACTION_KEYS)

    def check_raise(self, value: Any, position: SourcePosition) -> None:
        """The name of an event, or a mapping with it."""
        self.expect(value, str | Mapping, position, "the name of an event")
        if isinstance(value, Mapping):
            self.check_keys(value, position, "a raise", _RAISE_KEYS)
            self.require_key("event", value, position)

    def check_if(self, value: Any, position: SourcePosition) -> None:
        """A condition with actions."""
        self.check_keys(value, position, "a condition", _IF_KEYS)
        self.require_key("cond", value, position)

    def check_elif(self, value: Any, position: SourcePosition) -> None:
        """A list of further conditions."""
        self.expect(value, list, position, "a list of conditions")
        for index, branch in enumerate(value):
            self.check_keys(branch, (*position, index), "a condition", _ELIF_KEYS)
            self.require_key("cond", branch, (*position, index))

    def require_key(self, key: str, value: Mapping[str, Any], position: SourcePosition) -> None:
        """Refuse a mapping without the key."""
        if key not in value:
            self.refuse(position, f"the key `{key}` is missing")


def _describe_value(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"the text {shorten(value, 60)!r}"
    return f"{value!r}"


_CHART_KEYS: dict[str, _Check] = {
    "name": _ShapeCheck.check_text,
    "description": _ShapeCheck.check_text,
    "states": _ShapeCheck.check_states,
}
_STATE_KEYS: dict[str, _Check] = {
    **dict.fromkeys(("initial", "final", "parallel"), _ShapeCheck.check_flag),
    **dict.fromkeys(("enter", "exit"), _ShapeCheck.check_actions),
    "transitions": _ShapeCheck.check_rows,
    "states": _ShapeCheck.check_states,
    "history": _ShapeCheck.check_histories,
}
_HISTORY_KEYS: dict[str, _Check] = {
    "type": _ShapeCheck.check_history_type,
    "transitions": _ShapeCheck.check_rows,
}
_ROW_KEYS: dict[str, _Check] = {
    **dict.fromkeys(("event", "target"), _ShapeCheck.check_text),
    **dict.fromkeys(("cond", "unless"), _ShapeCheck.check_guards),
    **dict.fromkeys(("internal", "initial"), _ShapeCheck.check_flag),
    **dict.fromkeys(("on", "before", "after"), _ShapeCheck.check_actions),
}
_ACTION_KEYS: dict[str, _Check] = {"raise": _ShapeCheck.check_raise, "if": _ShapeCheck.check_if}
_RAISE_KEYS: dict[str, _Check] = {"event": _ShapeCheck.check_text}
_ELIF_KEYS: dict[str, _Check] = {"cond": _ShapeCheck.check_text, "then": _ShapeCheck.check_inner_actions}
_IF_KEYS: dict[str, _Check] = {
    **_ELIF_KEYS,
    "elif": _ShapeCheck.check_elif,
    "else": _ShapeCheck.check_inner_actions,
}
