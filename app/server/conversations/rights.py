"""What a request may change of a recorded turn: with the role chat it may only narrow it.

The rows say for each field of a form what it gives to whoever sends it. A field without a row needs the role
`debug`, so a new field of a form is refused until somebody has thought about it; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from toolchart.app.server.access.tokens import Access, Role
from toolchart.app.server.answers import Refusal
from toolchart.engine.log.fork import NarrowTurn
from toolchart.engine.runtime.engine import Engine
from toolchart.specs.turn_bounds import TurnBounds
from toolchart.states.errors import SettingsWidened

FieldRight = Literal["free", "narrow", "debug"]
"""`free`: gives nothing that a new turn would not give. `narrow`: may change a turn within what its handler
has. `debug`: may give more, so it needs that role."""

DEBUG_ROLE: Role = "debug"

FORK_RIGHTS: Mapping[str, FieldRight] = {
    "at": "free",  # a fork carries no approval, and asks again for what was open at the record
    "settings": "narrow",
    "system": "debug",  # the prompt is the operator's
    "results": "debug",  # charts and rules trust the results of tools; a caller's own words are no result
    "conversation": "free",
    "run_tools": "free",  # tools of the handler's list; one that is not idempotent still asks
    "from_log": "free",  # the log alone answers
}
"""What each field of `ForkForm` gives."""

RERUN_RIGHTS: Mapping[str, FieldRight] = {
    "settings": "narrow",
    "system": "debug",
    "offline": "free",  # asks the models of the agent with narrowed settings; no tool runs
}
"""What each field of `RerunForm` gives."""


def require_rights(access: Access, form: msgspec.Struct, rights: Mapping[str, FieldRight]) -> None:
    """Refuse a form with a field that needs another role.

    Raises:
        Refusal: 403; it names the field and the role.
    """
    if access.may(DEBUG_ROLE):
        return
    for field in msgspec.structs.fields(form):
        is_set = getattr(form, field.name) != _get_default(field)
        if is_set and rights.get(field.name, "debug") == "debug":
            raise _refuse_field(access, field.name, "it may change more than the agent's handlers give")


def _get_default(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def find_narrowing(access: Access, engine: Engine) -> NarrowTurn | None:
    """What remains of recorded settings for a token; None for one that may have any."""
    if access.may(DEBUG_ROLE):
        return None
    return TurnBounds(engine.spec, engine.tools.names(), engine.tools.aliases).narrow


def refuse_widening(access: Access, error: SettingsWidened) -> Refusal:
    """The refusal of a change that gives a turn more than its handler has."""
    return _refuse_field(access, error.path or "settings", error.message)


def _refuse_field(access: Access, field: str, reason: str) -> Refusal:
    return Refusal(
        403,
        f"{field}: {reason}; the token {access.name!r} lacks the role {DEBUG_ROLE!r}",
        details={"field": field},
    )
