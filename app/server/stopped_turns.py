"""Turns that the end of the server has stopped: each client reads so in the form of its protocol.

Such a turn is as after the death of a process: nothing of it is lost, it is open, and whoever goes on with it
(the next server, `resume`, a further message) asks again only for what had no answer yet.
"""

from __future__ import annotations

from toolchart.app.server.answers import Refusal
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import TurnResult

CODE = "server_stopping"
"""What programs read in errors of this kind."""


class TurnStopped(Refusal):
    """A turn that is open because the server stops; 503.

    Clients of OpenAI must not send the request again by themselves: it would begin a second turn.
    """

    def __init__(self, conversation: str) -> None:
        super().__init__(
            503,
            f"the server was stopped before the answer was whole: conversation {conversation!r} stays open, "
            "and can be resumed",
            headers={"x-should-retry": "false"},
            details={"code": CODE, "conversation": conversation},
        )


def require_rest(result: TurnResult, engine: Engine, *, is_stopping: bool) -> None:
    """Return where a turn is over, or waits for something that its client can give.

    Raises:
        TurnStopped: the end of the server has stopped it.
    """
    if not is_stopping or result.is_over or result.pending_approvals or result.questions:
        return
    # A call of the agent's own tool that was begun is none that a client could answer.
    if any(engine.tools.registry.get(call.tool) is None for call in result.waiting_calls):
        return
    raise TurnStopped(result.conversation)
