"""Ids of responses: they name a conversation, a turn of it, and the record with which the response begins.

So the log alone is enough to go on with a response, or to show it again.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from toolchart.app.server.answers import Refusal


class ResponseName(msgspec.Struct, frozen=True, kw_only=True):
    """What the id of a response says."""

    conversation: str
    turn: int
    seq: int
    """Number of its first record."""

    @property
    def id(self) -> str:
        """The id: letters, digits, `-` and `_`."""
        text = f"{self.conversation}\n{self.turn}\n{self.seq}"
        return "resp_" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_response_id(text: str) -> ResponseName:
    """What the id of a response names.

    Raises:
        Refusal: 404; it is none of this server's.
    """
    data = text.removeprefix("resp_")
    try:
        conversation, turn, seq = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode().split("\n")
        name = ResponseName(conversation=conversation, turn=int(turn), seq=int(seq))
    except (ValueError, binascii.Error):
        raise Refusal(404, f"there is no response {text!r}") from None
    if name.turn < 1 or name.seq < 0:
        raise Refusal(404, f"there is no response {text!r}")
    return name
