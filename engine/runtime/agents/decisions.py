"""Verdicts and decisions about calls: reviewed while the event loop goes on, signed where the program has a
key, and refused where the spec wants a signature."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from toolchart.engine.runtime.clock import Clock
from toolchart.states.core.answers import find_answered_effect
from toolchart.states.core.calls import require_approver, require_waiting_call
from toolchart.states.effects import ReviewCalls
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Decided, Verdict
from toolchart.states.messages import ToolCall
from toolchart.states.ports import Executor
from toolchart.states.snapshot import Snapshot
from toolchart.tools.approval import Policy
from toolchart.tools.approvers import DecisionSubject, SignatureFinding, Signer
from toolchart.tools.registry import Registry

log = logging.getLogger("toolchart.engine")


async def review_calls(executor: Executor, effect: ReviewCalls) -> tuple[Verdict, ...]:
    """One verdict for each call. A review that may wait for a worker runs in a thread, so that the event loop
    goes on."""
    verdicts = []
    for call in effect.calls:
        if executor.may_wait(call):
            verdicts.append(await asyncio.to_thread(executor.review, call, effect.allowed))
        else:
            verdicts.append(executor.review(call, effect.allowed))
    return tuple(verdicts)


REFUSALS: dict[SignatureFinding, str] = {
    "unsigned": "it is not signed",
    "missing_key": "the spec has no such approver with this key",
    "not_yet_valid": "the key is not valid yet",
    "expired": "the key is not valid any more",
    "revoked": "the key is revoked",
    "other_call": "it was signed for other arguments",
    "wrong": "the signature is wrong",
}
"""Why a decision is refused, by what its signature proves."""


class DecisionDesk(msgspec.Struct, frozen=True, kw_only=True):
    """Completes the decisions for one agent's calls before they become events."""

    registry: Registry
    policy: Policy
    clock: Clock
    signer: Signer | None = None
    """Signs what has no signature yet."""

    def complete_decision(self, decision: Decided, conversation: str, snapshot: Snapshot) -> Decided:
        """The decision with the effect that it answers, and signed where there is a signer.

        Raises:
            IllegalEvent: no call waits for this decision, or it waits for another approver's.
            SpecError: the spec requires signatures, and this one is missing or does not prove the decision.
        """
        require_waiting_call(snapshot, decision)
        effect = find_answered_effect(snapshot, decision)
        if effect is None:
            return decision
        decision = replace(decision, effect=effect.id)
        call = next(entry.call for entry in snapshot.calls if entry.call.id == decision.call_id)
        if decision.arguments is not None:
            call = replace(call, arguments=decision.arguments)
        subject = DecisionSubject(conversation=conversation, effect=effect.id, call=call)
        if decision.signature is None and self.signer is not None:
            decision = self.signer.sign_decision(
                decision, subject, self.clock.now(), self._find_expiry(call, decision)
            )
        require_approver(snapshot, decision)
        self._require_signature(decision, subject)
        return decision

    def accept_decision(self, decision: Decided, conversation: str, snapshot: Snapshot) -> Decided | None:
        """`complete_decision` of an approver's word; None where it does not count, so that the call waits."""
        try:
            return self.complete_decision(decision, conversation, snapshot)
        except (SpecError, IllegalEvent) as error:
            log.warning("%s", error)
            return None

    def _require_signature(self, decision: Decided, subject: DecisionSubject) -> None:
        policy = self.policy
        finding = policy.approvers.check_decision(decision, subject, datetime.fromisoformat(self.clock.now()))
        if finding == "valid" or (finding == "unsigned" and not policy.require_signatures):
            return
        raise SpecError(
            f"the decision on {subject.call.id!r} is refused: {REFUSALS[finding]}",
            path="approval.require_signatures" if policy.require_signatures else "approvers",
            hint="sign it as an approver of the spec: toolchart approve ... --key FILE --as NAME",
        )

    def _find_expiry(self, call: ToolCall, decision: Decided) -> str:
        """When the approval of a call stops to hold by the rule about it; empty for never."""
        tool = self.registry.get(call.name)
        rule = self.policy.find_rule(tool, call.arguments or {}) if tool else None
        if rule is None or rule.expires_s is None or not decision.approved:
            return ""
        end = datetime.fromisoformat(self.clock.now()) + timedelta(seconds=rule.expires_s)
        return end.isoformat(timespec="milliseconds").replace("+00:00", "Z")
