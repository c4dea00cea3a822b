"""The context of one tool call: its place in the conversation, derived from the snapshot.

Tools and the executor keep no state of a conversation in the process. Repeated calls, the output used
so far, approvals and the plan all follow from the snapshot, and so from the log. A turn that is
resumed on another machine gets the same context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from toolchart.states.effects import RunTools
from toolchart.states.events import Decided
from toolchart.states.messages import DecisionSignature, Message, ToolCall
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.tools.approval import Policy
from toolchart.tools.approvers import Approvers, DecisionSubject, encode_call_arguments
from toolchart.tools.definition import NeedScope, Tool
from toolchart.tools.execution.results import OutputUse
from toolchart.tools.registry import Registry
from toolchart.tools.tool_context import ToolContext, compute_idempotency_key
from toolchart.tools.whole_definition import Definition, describe_changes, describe_definition

FindResult = Callable[[str], dict[str, Any] | None]
"""From a call id to the whole result in the log."""

FindAskingRecord = Callable[[int], str]
"""From the id of an effect to the hash of the record that asked for it; empty where there is none."""

RunAgentCall = Callable[["CallContext", Mapping[str, Any], str], Awaitable[Any]]
"""Runs an agent for a call, with a message, and returns its answer."""

UseGrant = Callable[[Tool, bool], str | None]
"""Uses up the grant for a call of a tool, and returns why there is none; None where it may run. The second
argument says whether it needs one. Without need, only an approval for another definition of the tool counts
against it."""

_DID_NOT_RUN = ("denied", "skipped", "expired")

NOT_APPROVED = "not executed: this call has not been approved"


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """What one call may know about its conversation."""

    conversation: str = ""
    turn: int = 0
    iteration: int = 0
    effect: int = 0
    """The effect that asked for the call."""
    began_under: int = 0
    """The effect under which it began, or may have; 0 where it has not."""
    call_id: str = ""
    tool: str = ""
    """Name of the tool; set by the executor."""
    repeat_count: int = 1
    """Replies of this turn that asked for this tool with these arguments, this one included."""
    max_repeats: int | None = None
    """At this number of replies the model gets a notice; None: no limit."""
    measure_use: Callable[[], OutputUse] = OutputUse
    """Measures what the turn has used of its output limits, before the calls of the newest reply. It is
    called where a result may not fit: most fit whatever was used."""
    use_grant: UseGrant | None = None
    """Not set: the caller is responsible for approvals."""
    is_decided: bool = False
    """Whether a decision let the call run."""
    max_characters: int = 0
    """Characters of the result that the model may see; set by the executor."""
    messages: Sequence[Message] = ()
    """The conversation so far, without its system prompt."""
    reply_calls: Sequence[OpenCall] = ()
    """The calls of the same reply, this one included."""
    find_result: FindResult | None = None
    dependencies: Any = None
    """What the turn gives its tools; see `ToolContext.dependencies`."""
    run_agent: RunAgentCall | None = None
    """Runs the agent behind a tool; None where there is no conversation."""

    @property
    def idempotency_key(self) -> str:
        """See `ToolContext.idempotency_key`."""
        return compute_idempotency_key(self.conversation, self.effect, self.call_id)

    def list_finished_siblings(self) -> list[tuple[str, dict[str, Any]]]:
        """Tool name and result of each call of the same reply that has already ended."""
        return [
            (open_call.call.name, open_call.result)
            for open_call in self.reply_calls
            if open_call.result is not None
        ]

    def describe_call(self) -> ToolContext[Any]:
        """What a tool written as a function may know about the call."""
        return ToolContext(
            conversation=self.conversation,
            turn=self.turn,
            iteration=self.iteration,
            call_id=self.call_id,
            tool=self.tool,
            idempotency_key=self.idempotency_key,
            dependencies=self.dependencies,
        )


NO_CONVERSATION = CallContext()
"""The context of a call outside any conversation."""


def get_none() -> None:
    """The dependencies where there are none."""


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

    def is_signed(self, call: ToolCall, asked: str, approvers: Approvers, now: datetime | None) -> bool:
        """Whether one of these approvers signed it, with a key that is valid at `now`.

        Args:
            asked: hash of the record that asked for the decision.
        """
        decision = Decided(
            call_id=self.call_id,
            approved=True,
            by=self.approver or None,
            signature=self.signature,
            definition=self.definition,
        )
        subject = DecisionSubject(conversation=self.conversation, asked=asked, effect=self.effect, call=call)
        return now is not None and approvers.check_decision(decision, subject, now) == "valid"


class CallContextBuilder:
    """Builds the context of each call of one conversation.

    Args:
        get_snapshot: returns the newest snapshot of the conversation.
        find_result: the whole result of an earlier call, from the log, by its call id.
        find_asking_record: the hash of the record that asked for an effect.
        get_dependencies: returns what the turn that runs gives its tools.
        run_agent: runs the agents behind tools.
    """

    def __init__(
        self,
        registry: Registry,
        policy: Policy,
        conversation: str,
        get_snapshot: Callable[[], Snapshot],
        find_result: FindResult | None = None,
        find_asking_record: FindAskingRecord | None = None,
        get_dependencies: Callable[[], Any] = get_none,
        run_agent: RunAgentCall | None = None,
    ) -> None:
        self._registry = registry
        self._policy = policy
        self._conversation = conversation
        self._get_snapshot = get_snapshot
        self._find_result = find_result
        self._find_asking_record = find_asking_record
        self._get_dependencies = get_dependencies
        self._run_agent = run_agent
        self._shown_sum = (0, 0, 0)
        """Turn, messages counted, characters shown: a running sum, so that no message is counted
        twice."""
        self._successes: dict[str, bool] = {}
        """By call: whether it has succeeded, where the log was asked."""
        self._used_grants: tuple[tuple[int, int], set[str]] = ((0, 0), set())
        """Turn and reply, and the calls whose grants were used in it."""

    def build_context(self, call: ToolCall) -> CallContext:
        """The context of a call of the latest reply."""
        snapshot = self._get_snapshot()
        open_call = snapshot.calls.find(call.id)
        limits = snapshot.settings.limits if snapshot.settings else None
        return CallContext(
            conversation=self._conversation,
            turn=snapshot.turn,
            iteration=snapshot.iteration,
            effect=_find_effect(snapshot),
            call_id=call.id,
            began_under=open_call.began_under if open_call else 0,
            repeat_count=open_call.repeat if open_call else 1,
            max_repeats=limits.max_repeats if limits else None,
            measure_use=partial(self._measure_use, snapshot),
            use_grant=partial(self._use_grant, snapshot, call, open_call),
            is_decided=open_call is not None and open_call.decided_at != "",
            messages=snapshot.messages,
            reply_calls=snapshot.calls,
            find_result=self._find_result,
            dependencies=self._get_dependencies(),
            run_agent=self._run_agent,
        )

    def _measure_use(self, snapshot: Snapshot) -> OutputUse:
        return OutputUse(
            characters_shown=self._count_characters_shown(snapshot),
            earlier_calls=len(snapshot.tracked_calls),
            calls_in_reply=max(1, len(snapshot.calls)),
        )

    def find_broken_rule(self, tool: Tool, call: ToolCall) -> str | None:
        """Why other calls rule out a call: one that its tool needs has not succeeded, one that it must not
        follow has, or the turn has had its calls of the tool; else None.

        Calls of the same reply have no outcome yet, so for `needs` and `not_after` they do not count.
        """
        snapshot = self._get_snapshot()
        if tool.needs:
            scope = tool.needs_in
            missing = [need for need in tool.needs if not self._has_succeeded(snapshot, need, scope)]
            if missing:
                return f"{tool.name} needs {' and '.join(missing)} to have succeeded first"
        for earlier in tool.not_after:
            if self._has_succeeded(snapshot, earlier, "conversation"):
                return f"{tool.name} must not run after {earlier} has succeeded in this conversation"
        if tool.max_calls is not None and self._count_calls(snapshot, tool, call) >= tool.max_calls:
            times = "once" if tool.max_calls == 1 else f"{tool.max_calls} times"
            return f"{tool.name} may run at most {times} in a turn"
        return None

    def _has_succeeded(self, snapshot: Snapshot, name: str, scope: NeedScope) -> bool:
        """Whether a tool has succeeded in this turn, or in the conversation as far as the log has its
        results: what a history from elsewhere says of them proves nothing."""
        if any(done.outcome == "succeeded" and self._is(done.tool, name) for done in snapshot.tracked_calls):
            return True
        if scope == "turn" or self._find_result is None:
            return False
        for message in snapshot.messages:
            for call in message.tool_calls:
                if self._is(call.name, name) and self._was_successful(call.id, self._find_result):
                    return True
        return False

    def _was_successful(self, call_id: str, find_result: FindResult) -> bool:
        """Whether the log says that a call has succeeded. A call has one outcome, so none is read twice."""
        if call_id not in self._successes:
            result = find_result(call_id)
            if result is None:
                return False
            self._successes[call_id] = result.get("success") is True
        return self._successes[call_id]

    def _count_calls(self, snapshot: Snapshot, tool: Tool, call: ToolCall) -> int:
        """The calls of a tool that the turn has had before this one, without those that nobody ran."""
        earlier = sum(
            done.outcome not in _DID_NOT_RUN and self._is(done.tool, tool.name)
            for done in snapshot.tracked_calls
        )
        for open_call in snapshot.calls:
            if open_call.call.id == call.id:
                break
            earlier += self._is(open_call.call.name, tool.name)
        return earlier

    def _is(self, called_name: str, name: str) -> bool:
        """Whether a call by one name is one of the tool with the other; a tool may have an alias."""
        if called_name == name:
            return True
        called, tool = self._registry.get(called_name), self._registry.get(name)
        return called is not None and tool is not None and called.name == tool.name

    def _count_characters_shown(self, snapshot: Snapshot) -> int:
        """Characters of tool output in the messages of this turn."""
        turn, counted_messages, characters = self._shown_sum
        if turn != snapshot.turn or counted_messages > len(snapshot.messages):
            counted_messages, characters = find_turn_start(snapshot), 0
        length = len(snapshot.messages)
        for message in snapshot.messages[counted_messages:]:
            if message.role == "tool":
                characters += len(message.content or "")
        self._shown_sum = (snapshot.turn, length, characters)
        return characters

    def _use_grant(
        self, snapshot: Snapshot, call: ToolCall, open_call: OpenCall | None, tool: Tool, needs_grant: bool
    ) -> str | None:
        """Why there is no unused grant for exactly this call of this tool; None where there is one, which is
        used up: one grant, one run. A call that needs none is refused where it was approved for another
        definition: then a person was asked, and about something else."""
        is_granted = open_call is not None and open_call.ruling == "run" and open_call.decided_at
        if open_call is None or not is_granted or open_call.outcome is not None:
            return NOT_APPROVED if needs_grant else None
        definition = describe_definition(tool)
        grant = self._create_grant(open_call)
        if not grant.covers_definition(definition) and (needs_grant or grant.definition is not None):
            return f"{NOT_APPROVED}: {grant.describe_changes(definition)}"
        if not needs_grant:
            return None
        reply = (snapshot.turn, snapshot.replies)
        if self._used_grants[0] != reply:
            self._used_grants = (reply, set())
        used_calls = self._used_grants[1]
        now = _parse_time(snapshot.now)
        if grant.call_id in used_calls or not grant.covers(self._conversation, call, now):
            return NOT_APPROVED
        if self._policy.require_signatures:
            find = self._find_asking_record
            record_hash = find(grant.effect) if find is not None else ""
            if not grant.is_signed(call, record_hash, self._policy.approvers, now):
                return NOT_APPROVED
        # The last check: a receipt cannot be taken back, so nothing after it may refuse the call.
        problem = self._note_use(grant, tool, _find_effect(snapshot))
        if problem is not None:
            return f"{NOT_APPROVED}: {problem}"
        used_calls.add(grant.call_id)
        return None

    def _note_use(self, grant: Grant, tool: Tool, effect: int) -> str | None:
        """Write the receipt of a signed approval; why it lets nothing run, or None."""
        receipts = self._policy.receipts
        if receipts is None or grant.signature is None:
            return None
        return receipts.note_use(
            grant.signature,
            tool=grant.tool,
            key=compute_idempotency_key(self._conversation, effect, grant.call_id),
            may_repeat=tool.idempotent,
        )

    def _create_grant(self, open_call: OpenCall) -> Grant:
        """The grant that the decision about a call gave: for the arguments that were approved, until the time
        that the rule about the call sets, or the signature names, whichever is first."""
        call, signature = open_call.call, open_call.signature
        tool = self._registry.get(call.name)
        rule = self._policy.find_rule(tool, call.arguments or {}) if tool else None
        decided_at = _parse_time(open_call.decided_at)
        ends = []
        if decided_at is not None and rule is not None and rule.expires_s is not None:
            ends.append(decided_at + timedelta(seconds=rule.expires_s))
        if signature is not None and signature.expires_at:
            ends.append(datetime.fromisoformat(signature.expires_at))
        return Grant(
            conversation=self._conversation,
            effect=open_call.decided_effect,
            call_id=call.id,
            tool=call.name,
            arguments=encode_call_arguments(call),
            approver=open_call.decided_by,
            decided_at=decided_at,
            expires_at=min(ends) if ends else None,
            signature=signature,
            definition=open_call.definition,
        )


def _find_effect(snapshot: Snapshot) -> int:
    """The open effect that runs the calls of the latest reply; 0 where none does."""
    for effect in snapshot.open_effects:
        if isinstance(effect, RunTools):
            return effect.id
    return 0


def _parse_time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def find_turn_start(snapshot: Snapshot) -> int:
    """Index of a message behind which all tool output is of this turn.

    User messages do not tell, because the user may send more of them during a turn.
    """
    return snapshot.messages.find_nth_last("tool", snapshot.tracked_calls.length)
