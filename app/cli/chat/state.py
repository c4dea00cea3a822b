"""The state that a chat session and its slash commands share: conversation, model and exit code."""

from __future__ import annotations

from dataclasses import dataclass

from toolchart.app.cli.exit_codes import SUCCESS


@dataclass(slots=True)
class ChatState:
    """The current conversation and the model that the next turn uses."""

    conversation: str
    llm: str | None = None
    model: str | None = None
    code: int = SUCCESS
    """Exit code of the newest turn."""
