"""What a turn warns of, in `logging`: once, when it happens, with the id of the conversation.

The logger is `toolchart.engine.turns`, the level is WARNING. Every warning of a result is there, and besides:
calls whose arguments were repaired or refused, model calls that failed, and turns that ended in error. A line
names tools, kinds and numbers, and no arguments, results or words of the model; known secrets are struck out.
"""

from __future__ import annotations

import logging

from toolchart.engine.runtime.result import list_result_warnings
from toolchart.specs.secrets import strike_secrets
from toolchart.states.diagram.visible_text import make_visible_line
from toolchart.states.events import Event, Failed, Reviewed, TurnStarted
from toolchart.states.snapshot import Snapshot

log = logging.getLogger("toolchart.engine.turns")

_NAME_LENGTH = 64
"""Characters of the name of a tool in a line: a model may write any."""


def log_warning(conversation: str, text: str) -> None:
    """Log one warning of a turn."""
    log.warning("conversation %s: %s", conversation, make_visible_line(strike_secrets(text)))


def log_step_warnings(conversation: str, event: Event, before: Snapshot, after: Snapshot) -> None:
    """Log what a step adds to the warnings of its turn."""
    if not log.isEnabledFor(logging.WARNING):
        return
    is_new_turn = isinstance(event, TurnStarted)
    if after.warnings:
        for warning in after.warnings if is_new_turn else after.warnings[len(before.warnings) :]:
            log_warning(conversation, warning)
    match event:
        case Reviewed():
            _log_verdicts(conversation, event, after)
        case Failed():
            status = f", HTTP {event.status}" if event.status is not None else ""
            log_warning(conversation, f"a model call failed: {event.kind}{status}")
    if after.is_over and (is_new_turn or not before.is_over):
        for warning in list_result_warnings(after):
            log_warning(conversation, warning)
        if after.error is not None and after.error.kind != "cancelled":
            log_warning(conversation, f"the turn ended in error in state {after.state!r}: {after.error.kind}")


def _log_verdicts(conversation: str, event: Reviewed, after: Snapshot) -> None:
    """Log whose arguments were repaired or refused; never the arguments."""
    names = {call.call.id: call.call.name for call in after.calls}
    for verdict in event.verdicts:
        name = names.get(verdict.call_id, "")[:_NAME_LENGTH]
        if verdict.ruling == "invalid":
            log_warning(conversation, f"a call of {name!r} was refused: its tool or its arguments do not fit")
        elif verdict.notes:
            log_warning(conversation, f"the arguments of a call of {name!r} were repaired")
