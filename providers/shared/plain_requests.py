"""The body of providers without a wire format: the request itself, by its digest."""

from __future__ import annotations

from typing import Any

from toolchart.states.message_list import compute_request_digest
from toolchart.states.messages import Request


def encode_plain_request(request: Request) -> dict[str, Any]:
    """The request as JSON data: its digest stands for all of it.

    A script and a recording are given the request as it is, so there is no wire map that could change it.
    Writing out the messages at each call would only make a long conversation cost its length at each step.
    """
    return {"digest": compute_request_digest(request)}
