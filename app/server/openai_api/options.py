"""Options of a request that this server does not apply: which are refused, and which are named as ignored.

Prompt, options of the model and limits are the operator's. What a client sends of them is never dropped
without a word: an option on whose effect a client relies, because its answer would mean something else, is
refused; any other that is given is named in the answer under `toolchart`, as `ignored`.

Source: `completion_create_params.py` and `response_create_params.py` of the SDK 3.54.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.app.server.answers import Refusal

REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "stop": ((None, "", []), "an answer ends where the agent's model ends it"),
    "logprobs": ((None, False), "an answer has none"),
    "top_logprobs": ((None, 0), "an answer has none"),
    "logit_bias": ((None, {}), "the agent sets what its model is asked for"),
    "audio": ((None,), "the agent decides whether it speaks"),
    "modalities": ((None, [], ["text"]), "the agent decides whether it speaks"),
    "web_search_options": ((None,), "the agent decides which tools run"),
    "max_tool_calls": ((None,), "the agent decides which tools run"),
    "parallel_tool_calls": ((None, True), "the agent decides how many tools run at a time"),
    "prompt": ((None,), "the agent has its own"),
    "conversation": ((None,), "go on with a response: previous_response_id"),
}
"""By option: the values that ask for nothing else than what is done, and why any other is refused."""

SILENT: dict[str, tuple[Any, ...]] = {
    "store": (True,),
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "stream_options": (),
}
"""By option: further values that ask for what is done. `stream_options` only shape the stream."""


def list_ignored(options: Mapping[str, Any]) -> list[str]:
    """The options of a request that have no effect, of those that its form does not have.

    Raises:
        Refusal: 400; the client relies on one of them.
    """
    ignored = []
    for name, value in options.items():
        harmless, reason = REFUSED.get(name, ((), ""))
        if reason and not any(value == other and type(value) is type(other) for other in harmless):
            raise Refusal(400, f"{name}: {reason}; leave it out")
        is_given = value is not None and value != {} and value != []
        if is_given and not reason and name != "stream_options" and value not in SILENT.get(name, ()):
            ignored.append(name)
    return ignored
