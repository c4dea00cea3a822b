"""Histories of other APIs and libraries, for the `history` of a turn: one function for each form.

Each returns a `History`, whose `warnings` say what was put right. What no message can say is refused with its
place. A system prompt is left out with a warning: the agent's spec has the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.engine.exchange.forms import (
    anthropic,
    gemini,
    langchain,
    ollama,
    pydantic_ai,
    responses,
    spans,
)
from toolchart.specs.chat_messages import History


def read_responses_items(
    items: str | Sequence[Mapping[str, Any]], *, instructions: str | None = None
) -> History:
    """Read the items of OpenAI's Responses API: those of `input`, and those of `output` behind them.

    Reasoning and what the host ran itself are kept, and go back to that host.

    Raises:
        SpecError: an item breaks the form, is a reference to one that only the host has, or holds something
            that no message can say.
    """
    return responses.collect(items, instructions).read_history()


def read_anthropic_messages(
    messages: Sequence[Mapping[str, Any]], *, system: str | Sequence[Mapping[str, Any]] | None = None
) -> History:
    """Read the messages of the Anthropic API. Thinking is kept with its signature, and goes back to that
    host.

    Raises:
        SpecError: a message breaks the form, or holds something that no message can say.
    """
    return anthropic.collect(messages, system).read_history()


def read_gemini_contents(
    contents: str | Sequence[Mapping[str, Any] | str], *, system_instruction: Any = None
) -> History:
    """Read the contents of the Gemini API: data as JSON has them, or values of its SDK. Thought signatures
    are kept, and go back to that host.

    Raises:
        SpecError: a content breaks the form, or holds something that no message can say.
    """
    return gemini.collect(contents, system_instruction).read_history()


def read_ollama_messages(messages: Sequence[Mapping[str, Any]]) -> History:
    """Read the messages of Ollama's chat API.

    Raises:
        SpecError: a message breaks the form.
    """
    return ollama.collect(messages).read_history()


def read_pydantic_ai_messages(messages: Sequence[Any]) -> History:
    """Read a message history of Pydantic AI: its own values, or the JSON data of `all_messages_json()`.

    Raises:
        SpecError: a message breaks the form, or holds something that no message can say.
    """
    return pydantic_ai.collect(messages).read_history()


def read_langchain_messages(messages: Sequence[Any]) -> History:
    """Read messages of LangChain and LangGraph: their own values, or what `messages_to_dict`, `dumpd` or
    `model_dump` makes of them.

    Raises:
        SpecError: a message breaks the form, or holds something that no message can say.
    """
    return langchain.collect(messages).read_history()


def read_spans(data: Any) -> list[History]:
    """Read the conversations in spans of OpenTelemetry, as GenAI conventions, OpenInference and OpenLLMetry
    name their attributes: an OTLP document, a span, or a list of them.

    Model calls whose messages continue one another are one conversation; the conversations stand in the order
    in which they began.

    Raises:
        SpecError: there is no model call, its contents were not recorded, or they hold something that no
            message can say.
    """
    return [reader.read_history() for reader in spans.collect_all(data)]
