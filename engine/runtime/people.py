"""Verdicts and decisions about calls: reviewed while the event loop goes on, signed where the program has a
key, and refused where the spec wants a signature."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.runtime.clock import Clock
from toolchart.states.calls import require_approver, require_waiting_call
from toolchart.states.core.step import find_answered_effect
from toolchart.states.effects import AskPerson, compute_shown_digest
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.tools.approvers import DecisionSubject, SignatureFinding, Signer
from toolchart.tools.execution.executor import CALL_STILL_WAITS, ToolExecutor
from toolchart.tools.questions import CallQuestion
from toolchart.tools.whole_definition import describe_changes, digest_definition, is_named_by

log = logging.getLogger("toolchart.engine")


REFUSALS: dict[SignatureFinding, str] = {
    "unsigned": "it is not signed",
    "missing_key": "the spec has no such approver with this key",
    "not_yet_valid": "the key is not valid yet",
    "expired": "the key is not valid any more",
    "revoked": "the key is revoked",
    "other_call": "it was signed for other arguments",
    "other_question": "it was signed for another question, which this log did not ask",
    "wrong": "the signature is wrong",
}
"""Why a decision is refused, by what its signature proves."""


class DecisionDesk(msgspec.Struct, frozen=True, kw_only=True):
    """Completes the decisions for one agent's calls before they become events."""

    tools: ToolExecutor
    clock: Clock
    signer: Signer | None = None
    """Signs what has no signature yet."""
    find_asking_record: Callable[[str, int], str]
    """The hash of the record of a conversation that asked for an effect; empty where there is none. Called
    where something is signed."""

    def receive_decision(self, decision: Decided, conversation: str, snapshot: Snapshot) -> Decided:
        """A decision from the inbox of a conversation, checked as one that is made now, and never signed:
        whoever left it there may be anybody. One whose call does not wait any more is left to the core.

        Raises:
            IllegalEvent, SpecError: as `complete_decision`.
        """
        waiting_ids = [entry.call.id for entry in snapshot.calls if entry.ruling == "needs_approval"]
        if decision.call_id not in waiting_ids or snapshot.is_over:
            return decision
        return self.complete_decision(decision, conversation, snapshot, may_sign=False)

    def complete_decision(
        self,
        decision: Decided,
        conversation: str,
        snapshot: Snapshot,
        *,
        may_sign: bool = True,
        is_shown: bool = False,
    ) -> Decided:
        """The decision with the effect that it answers, and signed where there is a signer.

        An approval gets the definition of the tool that it lets run. It about the tool as people were
        asked about it, unless it names another definition itself.

        Args:
            is_shown: whether whoever asked says what was shown. Otherwise that is what the desk asks about.

        Raises:
            IllegalEvent: no call waits for this decision, or it waits for another approver's.
            SpecError: the tool is not the one that is approved, or the decision's own arguments do not fit
                it; or the spec requires signatures, and this one is missing or proves something else.
        """
        require_waiting_call(snapshot, decision)
        open_call = next(entry for entry in snapshot.calls if entry.call.id == decision.call_id)
        definition = self._choose_definition(decision, open_call)
        if isinstance(decision.arguments, dict):  # another type is refused with the event
            decision = self._check_arguments(decision, open_call.call, decision.arguments)
        question = self.ask_about(open_call)
        shown_digest = decision.shown_digest if is_shown else ""
        if not shown_digest:
            shown_definition = definition or question.definition
            shown_digest = compute_shown_digest(open_call.call, question.reason, shown_definition)
        decision = replace(decision, definition=definition, shown_digest=shown_digest)
        effect = find_answered_effect(snapshot, decision)
        if effect is None:
            return decision
        decision, call = replace(decision, effect=effect.id), open_call.call
        if decision.arguments is not None:
            call = replace(call, arguments=decision.arguments)
        must_sign = decision.signature is None and self.signer is not None and may_sign
        asking_hash = ""
        if must_sign or decision.signature is not None:
            asking_hash = self.find_asking_record(conversation, effect.id)
        subject = DecisionSubject(conversation=conversation, asked=asking_hash, effect=effect.id, call=call)
        if self.signer is not None and must_sign:
            decision = self.signer.sign_decision(
                decision, subject, self.clock.now(), self._find_expiry(call, decision)
            )
        # After the signing, which says in whose name it is.
        require_approver(snapshot, decision)
        self._require_signature(decision, subject)
        return decision

    def ask_about(self, open_call: OpenCall) -> CallQuestion:
        """What a person is asked about a call that waits: the tool as it is now, and what changed since the
        question was first asked."""
        return CallQuestion(
            definition=self.tools.describe_tool(open_call.call.name) or {},
            reason=open_call.reason or "",
            asked=open_call.definition,
        )

    def _choose_definition(self, decision: Decided, open_call: OpenCall) -> dict[str, str] | None:
        """The definition of the tool that an approval lets run; None for a denial, which needs none.

        Raises:
            SpecError: the tool is another one now.
        """
        name, asked_definition = open_call.call.name, open_call.definition
        now = self.tools.describe_tool(name)
        if not decision.approved or now is None:
            # Nothing runs. What an approver elsewhere has signed stays as it is.
            return decision.definition if decision.signature is not None else None
        # Without either, the question was asked by an executor that describes no tools, or stands in a log of
        # an earlier form: nothing is known that the tool could differ from.
        approved = decision.definition or asked_definition
        if approved is None or is_named_by(approved, now):
            return now
        is_digest = approved.keys() == {"digest"}
        changes = describe_changes(
            asked_definition if is_digest and asked_definition is not None else approved, now
        )
        problem = "has changed since people were asked about it" if changes else "has another definition"
        raise SpecError(
            f"the decision on {open_call.call.id!r} is refused: the tool {name!r} "
            + ": ".join(filter(None, (problem, changes))),
            hint=f"{CALL_STILL_WAITS}; to approve the tool as it is now, name its definition: "
            f"toolchart approve ... --definition {digest_definition(now)}",
        )

    def _check_arguments(self, decision: Decided, call: ToolCall, arguments: dict[str, Any]) -> Decided:
        """The decision with its own arguments as its tool takes them.

        Raises:
            SpecError: they do not fit, or it is no approval, which alone has arguments.
        """
        if not decision.approved:
            raise SpecError(
                f"the decision on {call.id!r} is refused: a denial has no arguments",
                hint=f"{CALL_STILL_WAITS}; deny it without arguments, or approve it with them",
            )
        if self.tools.registry.get(call.name) is None:
            return decision  # nothing runs
        try:
            arguments = self.tools.read_own_arguments(call, arguments)
        except SpecError as error:
            problem = f"the decision on {call.id!r} is refused: {error.message}"
            raise SpecError(problem, hint=error.hint) from None
        # What an approver elsewhere has signed stays as it is.
        return decision if decision.signature is not None else replace(decision, arguments=arguments)

    def accept_decision(self, decision: Decided, conversation: str, snapshot: Snapshot) -> Decided | None:
        """`complete_decision` of an approver's word; None where it does not count, so that the call waits."""
        try:
            return self.complete_decision(decision, conversation, snapshot, is_shown=True)
        except (SpecError, IllegalEvent) as error:
            log.warning("%s", error)
            return None

    def _require_signature(self, decision: Decided, subject: DecisionSubject) -> None:
        policy = self.tools.policy
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
        tool = self.tools.registry.get(call.name)
        rule = self.tools.policy.find_rule(tool, call.arguments or {}) if tool else None
        if rule is None or rule.expires_s is None or not decision.approved:
            return ""
        end = datetime.fromisoformat(self.clock.now()) + timedelta(seconds=rule.expires_s)
        return end.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --------------------------------------------------------------------------------------------------
# Asks people for `ask_person`, and checks what they answer against the form.


def check_answer(question: AskPerson, content: Any) -> None:
    """Check an answer against the form of its question.

    Raises:
        SpecError: it does not fit; the error names the field, and nothing was written.
    """
    problem = find_form_problem(question.form, content)
    if problem is not None:
        field, message = problem
        raise SpecError(
            f"the answer to {question.name!r} does not fit its form: {message}",
            path=field or None,
            hint="nothing was written; the question still waits",
        )


def find_form_problem(form: Mapping[str, Any], content: Any) -> tuple[str, str] | None:
    """What is wrong with an answer: the path of the field, such as `days[0].from`, and why; None where it
    fits.

    Formats such as `date` and `email` are checked too.

    Raises:
        SpecError: the form itself is no JSON Schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(form)
    except SchemaError as error:
        raise SpecError(f"the form is no JSON Schema: {error.message}") from None
    validator = Draft202012Validator(form, format_checker=Draft202012Validator.FORMAT_CHECKER)
    errors = sorted(validator.iter_errors(content), key=lambda error: len(error.absolute_path))
    return (_format_field(errors[0].absolute_path), errors[0].message) if errors else None


def _format_field(path: Iterable[Any]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
