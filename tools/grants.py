"""Grants: the permission for one run of one call, which a decision gives."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from toolchart.states.events import Decided
from toolchart.states.messages import DecisionSignature, ToolCall
from toolchart.tools.approvers import Approvers, DecisionSubject, encode_call_arguments
from toolchart.tools.whole_definition import Definition, describe_changes


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Permission for one run of one call, with the arguments that were approved."""

    conversation: str
    effect: int = 0
    """The effect in which the call was decided."""
    call_id: str
    tool: str
    arguments: str
    """Canonical JSON; the raw text where they could not be read."""
    approver: str = ""
    """Who approved; empty where the decision does not say."""
    decided_at: datetime | None = None
    expires_at: datetime | None = None
    signature: DecisionSignature | None = None
    definition: dict[str, str] | None = None
    """The whole definition of the tool that was approved; None where the decision does not say, so that the
    grant covers none."""

    def covers_definition(self, definition: Definition) -> bool:
        """Whether this is the tool that was approved."""
        return self.definition is not None and self.definition == definition

    def describe_changes(self, definition: Definition) -> str:
        """What is otherwise than it was approved, by name."""
        if self.definition is None:
            return "the decision does not say for which definition of the tool"
        return f"the tool has changed since it was approved: {describe_changes(self.definition, definition)}"

    def covers(self, conversation: str, call: ToolCall, now: datetime | None = None) -> bool:
        """Whether the grant is for exactly this call and has not expired at `now`."""
        if self.expires_at is not None and (now is None or now >= self.expires_at):
            return False
        granted = (self.conversation, self.call_id, self.tool, self.arguments)
        return granted == (conversation, call.id, call.name, encode_call_arguments(call))

    def is_signed(self, call: ToolCall, approvers: Approvers, now: datetime | None) -> bool:
        """Whether one of these approvers signed it, with a key that is valid at `now`."""
        decision = Decided(
            call_id=self.call_id,
            approved=True,
            by=self.approver or None,
            signature=self.signature,
            definition=self.definition,
        )
        subject = DecisionSubject(conversation=self.conversation, effect=self.effect, call=call)
        return now is not None and approvers.check_decision(decision, subject, now) == "valid"


def create_grant(
    conversation: str,
    call: ToolCall,
    *,
    effect: int = 0,
    approver: str = "",
    decided_at: datetime | None = None,
    expires_s: float | None = None,
    signature: DecisionSignature | None = None,
    definition: dict[str, str] | None = None,
) -> Grant:
    """Create the grant for an approved call, with the arguments that were approved.

    Args:
        effect: the effect in which it was decided.
        decided_at, expires_s: the time of the decision, and the seconds for which it is valid. The
            grant expires where both are set, and at the time that a signature names.
        definition: the whole definition of the tool that was approved.
    """
    ends = []
    if decided_at is not None and expires_s is not None:
        ends.append(decided_at + timedelta(seconds=expires_s))
    if signature is not None and signature.expires_at:
        ends.append(datetime.fromisoformat(signature.expires_at))
    return Grant(
        conversation=conversation,
        effect=effect,
        call_id=call.id,
        tool=call.name,
        arguments=encode_call_arguments(call),
        approver=approver,
        decided_at=decided_at,
        expires_at=min(ends) if ends else None,
        signature=signature,
        definition=definition,
    )
