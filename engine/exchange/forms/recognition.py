"""Tells of which form a list of messages is, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.engine.exchange.forms import anthropic, gemini, langchain, ollama, pydantic_ai, responses
from toolchart.engine.exchange.forms.form import FormReader

_LISTS = (pydantic_ai, langchain, anthropic, gemini, responses, ollama)


def read_form(data: Any, source: str | None = None) -> FormReader | None:
    """The messages of a list, or of a request, that is of another form than chat completions; None for all
    others.

    Raises:
        SpecError: it is of that form, and something in it cannot be read; names the place.
    """
    if isinstance(data, FormReader):
        return data
    if isinstance(data, Mapping):
        return _read_request(data, source)
    if isinstance(data, list):
        for form in _LISTS:
            if form.is_list(data):
                return form.collect(data, source=source)
    return None


def is_request(data: Mapping[str, Any]) -> bool:
    """Whether an object is a request of another API, whose prompt stands beside its messages."""
    has_prompt = isinstance(data.get("messages"), list) and bool(data.get("system"))
    return "type" not in data and (
        "contents" in data or isinstance(data.get("input"), list | str) or has_prompt
    )


def _read_request(data: Mapping[str, Any], source: str | None) -> FormReader | None:
    if not is_request(data):
        return None
    if "contents" in data:
        system = data.get("systemInstruction") or data.get("system_instruction")
        return gemini.collect(data["contents"], system, source, "contents")
    if "input" in data:
        return responses.collect(data["input"], data.get("instructions"), source, "input")
    return anthropic.collect(data["messages"], data["system"], source, "messages")
