"""The part of `toolchart verify` that checks the signatures of decisions with the operator's keys."""

from __future__ import annotations

from collections.abc import Iterable

from toolchart.app.cli.exit_codes import DAMAGED_LOG, NEGATIVE, SUCCESS, USAGE_ERROR
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.terminal.text import escape_line, print_notice, print_text
from toolchart.engine.log.reading.decisions import CheckedDecision, check_decisions
from toolchart.specs.loader import load_spec
from toolchart.states.errors import LogDamaged, MissingKey
from toolchart.states.ports import Store
from toolchart.tools.approval import Policy, parse_policy

FINDINGS = {
    "valid": "signed",
    "unsigned": "unsigned",
    "missing_key": "signed with a key that the spec does not have",
    "not_yet_valid": "signed before the key was valid",
    "expired": "signed with an expired key",
    "revoked": "signed with a revoked key",
    "other_call": "signed for other arguments than the log holds, or redacted",
    "erased": "signed; the arguments were erased",
    "wrong": "WRONG SIGNATURE",
}
"""What is printed about a decision, by what its signature proves."""


def load_policy(spec: str) -> Policy:
    """The approval policy of an agent spec, with its approvers; nothing of the spec is started.

    Raises:
        SpecError: the spec cannot be used.
    """
    loaded_spec = load_spec(spec)
    return parse_policy(loaded_spec.approval, approvers=loaded_spec.approvers)


def verify_decisions(store: Store, conversations: Iterable[str], policy: Policy, *, as_json: bool) -> int:
    """Check every decision and print one line for each. Returns the exit code: 5 where a signature is wrong,
    1 where one cannot be relied on, or is missing although the spec requires it."""
    exit_code, count, valid = SUCCESS, 0, 0
    for name in conversations:
        try:
            for decision in check_decisions(store, name, policy.approvers):
                count, valid = count + 1, valid + (decision.finding == "valid")
                exit_code = max(exit_code, _judge(decision, policy))
                _print_decision(decision, as_json=as_json)
        except LogDamaged:
            exit_code = DAMAGED_LOG  # what is damaged was printed before
        except MissingKey:
            exit_code = max(exit_code, USAGE_ERROR)  # so was what cannot be read
    if not as_json:
        print_notice(f"{valid} of {count} decisions are signed by an approver of the spec")
    return exit_code


def _judge(decision: CheckedDecision, policy: Policy) -> int:
    if decision.finding == "wrong":
        return DAMAGED_LOG
    is_accepted = decision.finding in ("valid", "erased") or (
        decision.finding == "unsigned" and not policy.require_signatures
    )
    return SUCCESS if is_accepted else NEGATIVE


def _print_decision(decision: CheckedDecision, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "conversation": decision.conversation,
                "seq": decision.seq,
                "call": decision.call,
                "tool": decision.tool,
                "approver": decision.approver,
                "approved": decision.approved,
                "signature": decision.finding,
            },
            lines=True,
        )
        return
    ruling = "approved" if decision.approved else "denied"
    who = f" by {escape_line(decision.approver)}" if decision.approver else ""
    what = f"{escape_line(decision.tool)} ({escape_line(decision.call)})"
    place = f"{escape_line(decision.conversation)}: record {decision.seq}"
    print_text(f"{place}: {what} {ruling}{who}: {FINDINGS[decision.finding]}")
