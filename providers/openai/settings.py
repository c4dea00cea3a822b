"""The keys of an `llms` entry that only a host with OpenAI's forms has."""

from __future__ import annotations

from typing import Any, Literal

from toolchart.providers.openai.wire import EchoReasoning
from toolchart.providers.shared.settings import AdapterSettings
from toolchart.states.messages import FinishReason


class OpenAISettings(AdapterSettings):
    """Keys that only an `openai` entry has."""

    api: Literal["chat", "responses"] = "chat"
    """Which API to call: chat completions, or Responses, which are the default at OpenAI's own host."""
    store: bool | None = None
    """Responses: whether the host stores them; if not, encrypted reasoning is kept in the log. By default it
    does where the entry itself says `api: responses`, and does not where that is the host's default."""
    host_profile: str | None = None
    """The host whose rules hold, where the address does not say it: `lmstudio`, `api.mistral.ai`."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How the host spells the token limit; by default the new name at OpenAI and the old one elsewhere."""
    seed_name: Literal["seed", "random_seed"] = "seed"
    """How the host spells the seed."""
    sends_tool_names: bool = False
    """Whether a tool's result carries the tool's name."""
    echo_reasoning: EchoReasoning = "never"
    """Whether reasoning is sent back to the host that sent it; hosts that are not known may refuse it."""
    fill_reasoning: bool = False
    """Whether a message whose reasoning would be sent back gets an empty one where it has none."""
    finish_words: dict[str, FinishReason] | None = None
    """Finish words that only this host sends, and their meaning."""
    refuses: tuple[str, ...] = ()
    """Options that the host refuses; they are left out, with a warning."""
    stream_usage: bool = True
    """Whether to request token counts at the end of a stream; false for hosts that refuse
    `stream_options`."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the host names them."""
    headers: dict[str, str] | None = None
    """More HTTP headers; `${VARIABLE}` is replaced."""
