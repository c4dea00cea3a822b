"""The JSON bodies of the API of conversations."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from toolchart.app.server.answers import Refusal
from toolchart.states.content import ContentPart, make_part

_NEW_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class AttachmentForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A picture, file or sound. A request cannot name a path or an address."""

    data: str
    """The bytes as base64."""
    media_type: str
    name: str = ""


class MessageForm(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the user."""

    message: str
    handler: str | None = None
    variables: dict[str, Any] = {}
    llm: str | None = None
    """Name of an `llms` entry of the agent."""
    model: str | None = None
    attachments: list[AttachmentForm] = []


class NewConversation(MessageForm, frozen=True, kw_only=True):
    """The first message of a conversation."""

    owner: str | None = None
    """Whose conversation it is."""
    tags: dict[str, str] | None = None
    """What is attached to it, by name, to find it again."""
    conversation: str | None = None
    """Its id: letters, digits, `-` and `_`; made up where it is left out."""
    history: list[dict[str, Any]] = []
    """Earlier messages from elsewhere, in OpenAI's form or as `{type, text}`."""


class DecisionForm(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a call that waits."""

    call_id: str
    approved: bool
    reason: str | None = None
    arguments: dict[str, Any] | None = None
    """Run the call with these instead."""
    definition: str | None = None
    """Approve the tool in the definition with this digest, which has changed since people were asked."""


class AnswerForm(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question of the chart."""

    content: dict[str, Any]
    question: str | None = None
    """Name of the effect that asks, where several questions are open."""


class CancelForm(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn is stopped."""

    reason: str | None = None


class ForkForm(msgspec.Struct, frozen=True, kw_only=True):
    """A new conversation from a record of this one, with changes."""

    at: int | None = None
    settings: dict[str, Any] = {}
    system: str | None = None
    results: dict[str, Any] = {}
    """New results of tool calls, by call id."""
    arguments: dict[str, dict[str, Any]] = {}
    """New arguments of calls of one reply, by call id."""
    conversation: str | None = None
    run_tools: bool = False
    from_log: bool = False


class RerunForm(msgspec.Struct, frozen=True, kw_only=True):
    """Run a recorded conversation again and compare; nothing is written."""

    settings: dict[str, Any] = {}
    system: str | None = None
    offline: bool = True
    """Whether recorded replies answer; otherwise the agent's models do."""


def check_new_id(conversation: str | None) -> str | None:
    """The id of a new conversation, if it may be one. Ids with a dot belong to children.

    Raises:
        Refusal: 400.
    """
    if conversation is not None and not _NEW_ID.fullmatch(conversation):
        raise Refusal(400, "the id of a conversation has 1 to 128 letters, digits, - and _")
    return conversation


def decode_attachments(forms: Sequence[AttachmentForm]) -> list[ContentPart]:
    """The parts of attachments.

    Raises:
        Refusal: 400; one is not base64.
    """
    try:
        return [
            make_part(base64.b64decode(form.data, validate=True), form.media_type, form.name)
            for form in forms
        ]
    except (binascii.Error, ValueError):
        raise Refusal(400, "the data of an attachment is not base64") from None
