"""What an open turn waits for, in one form for all protocols, and what a client may answer to it.

There are three kinds: a decision about a tool call, the answer to a question of the chart, and the outcome of
a tool that the client has declared. Each item has a wire id that names conversation and item, so that a later
request needs nothing else to go on, also after a restart of the server.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolchart.app.server.access.tokens import Role
from toolchart.app.server.answers import Refusal
from toolchart.app.server.protocols.client_tools import CallOutcome
from toolchart.engine.reading.waiting import PendingApproval, Waiting
from toolchart.states.events import Decided
from toolchart.states.visible_text import make_visible_line
from toolchart.tools.whole_definition import name_by_digest

DECISION_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call may run."},
        "reason": {"type": "string", "description": "For a call that may not run: why."},
        "arguments": {"type": "object", "description": "Arguments to run it with instead."},
        "definition": {
            "type": "string",
            "description": "Digest of the tool's definition, where it has changed since.",
        },
    },
    "required": ["approved"],
}
"""The form of a decision."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision as a client sends it."""

    approved: bool
    reason: str | None = None
    arguments: dict[str, Any] | None = None
    definition: str | None = None
    """Digest of the definition of the tool, where it has changed since the question."""


Answer = Decided | dict[str, Any] | CallOutcome
"""What the engine gets for an item: a decision, the fields of a form, an outcome."""


class WaitingKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of items."""

    letter: str
    """In the wire id."""
    reason: str
    """Why the turn waits: the name that clients see."""
    role: Role
    """What a token needs to answer."""
    read: Callable[[str, Any, str], Answer]
    """The answer for an item id, from the client's JSON data, by somebody.

    Raises:
        Refusal: 400; it does not have the form.
    """


class WaitingItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an open turn waits for."""

    kind: WaitingKind
    root: str
    """The conversation that a client knows."""
    conversation: str
    """Where the item is open: the same, or one of its children."""
    id: str
    """Id of the call, or name of the effect that asks."""
    tool: str
    """Name of the tool; of a question, of its effect."""
    arguments: dict[str, Any]
    """Of a call: its arguments. Of a question: the question and its form."""
    form: dict[str, Any]
    """JSON Schema of the answer; empty for any value."""
    message: str
    """What a person reads."""
    runs: str = ""
    """Of a call that waits for a decision: what running it does, on one line."""
    due: str | None = None
    """When it is too late: RFC 3339."""

    @property
    def call_name(self) -> str:
        """The name of the call that clients see: the tool of a client's own; else what the turn wants."""
        return self.tool if self.kind is CLIENT_CALL else self.kind.reason

    @property
    def wire_id(self) -> str:
        """A name for the item that no other item of the log has: letters, digits, `-` and `_`."""
        return make_wire_id(self.kind, self.root, self.conversation, self.id)


class ItemName(msgspec.Struct, frozen=True, kw_only=True):
    """What a wire id says."""

    kind: WaitingKind
    root: str
    conversation: str
    id: str


def _read_decision(id_: str, data: Any, by: str) -> Decided:
    try:
        decision = msgspec.convert(data, Decision)
    except msgspec.ValidationError as error:
        raise Refusal(400, f'a decision is {{"approved": true or false, ...}}: {error}') from None
    return Decided(
        call_id=id_,
        approved=decision.approved,
        reason=decision.reason,
        arguments=decision.arguments,
        by=by,
        definition=name_by_digest(decision.definition) if decision.definition is not None else None,
    )


def _read_form(id_: str, data: Any, by: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise Refusal(400, f"the answer to {id_!r} is a JSON object with the fields of its form")
    return dict(data)


def _read_outcome(id_: str, data: Any, by: str) -> CallOutcome:
    return data if isinstance(data, CallOutcome) else CallOutcome(value=data)


APPROVAL = WaitingKind(letter="a", reason="ask_approval", role="approve", read=_read_decision)
QUESTION = WaitingKind(letter="q", reason="ask_person", role="approve", read=_read_form)
CLIENT_CALL = WaitingKind(letter="c", reason="tool_call", role="chat", read=_read_outcome)

KINDS = {kind.letter: kind for kind in (APPROVAL, QUESTION, CLIENT_CALL)}


def list_waiting_items(waiting: Waiting, root: str) -> list[WaitingItem]:
    """What the open turn of a conversation waits for, in order.

    Args:
        root: the conversation that a client knows.
    """
    approvals = [
        WaitingItem(
            kind=APPROVAL,
            root=root,
            conversation=call.conversation,
            id=call.id,
            tool=call.tool,
            arguments=call.params or {},
            form=DECISION_FORM,
            message=_ask_about(call),
            runs=call.runs,
            due=waiting.due,
        )
        for call in waiting.approvals
    ]
    questions = [
        WaitingItem(
            kind=QUESTION,
            root=root,
            conversation=question["conversation"],
            id=question["effect"],
            tool=question["effect"],
            arguments={"question": question["question"], "form": question["form"]},
            form=question["form"],
            message=question["question"],
            due=question["due"],
        )
        for question in waiting.questions
    ]
    calls = [
        WaitingItem(
            kind=CLIENT_CALL,
            root=root,
            conversation=call.conversation,
            id=call.id,
            tool=call.tool,
            arguments=call.params or {},
            form={},
            message=f"Run {call.tool}.",
        )
        for call in waiting.calls
    ]
    return [*approvals, *questions, *calls]


def _ask_about(call: PendingApproval) -> str:
    """The question about a call: what it runs, and why people are asked."""
    words = [f"May {make_visible_line(call.tool)} run?"]
    words += [f"It runs: {call.runs}"] if call.runs else []
    return "\n".join([*words, call.reason] if call.reason else words)


def make_wire_id(kind: WaitingKind, root: str, conversation: str, id_: str) -> str:
    """The wire id of an item, as `WaitingItem` describes it."""
    text = "\n".join((kind.letter, root, conversation.removeprefix(root), id_))
    return "call_" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_wire_id(text: str) -> ItemName | None:
    """What a wire id names; None for a text that is none of ours."""
    try:
        data = text.removeprefix("call_")
        plain = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode()
        letter, root, suffix, id_ = plain.split("\n")
        return ItemName(kind=KINDS[letter], root=root, conversation=root + suffix, id=id_)
    except (ValueError, KeyError, binascii.Error):
        return None
