"""The facts of Toolchart, each with the function that reads it from a snapshot; and `FactView`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec

from toolchart.states.content import has_words
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import FAILURE_KINDS
from toolchart.states.flows.budgets import exceeds_call_budget, find_spent_budget, is_retryable
from toolchart.states.flows.compaction import count_context_tokens, count_long_results, get_context_limit
from toolchart.states.flows.results import name_failure_kind, read_result_fact
from toolchart.states.messages import FINISH_REASONS
from toolchart.states.snapshot import SnapshotFields
from toolchart.states.vocabulary import Fact, get_facts

PRIMARY = "primary"
"""The word for host and model of the turn. A chart adds those that its declared effects name."""
_WORDS_OF_MODEL = ("replied", "agent_finished", "agent_rested")
"""Events that bring words of the conversation's own model, or of an agent that speaks in its place."""


def _may_warn(row: EffectDescriptor) -> bool:
    """Whether asking for it may add a warning: a list of items may be cut."""
    return getattr(row.parameters, "at_most", None) is not None


FACT_ROWS = (
    Fact(
        name="finish_reason",
        changed_by=_WORDS_OF_MODEL,
        type="text",
        meaning="why the latest reply ended, normalised",
        changes="with every reply",
        read=lambda s: s.reply.finish_reason if s.reply else "unknown",
        words=FINISH_REASONS,
    ),
    Fact(
        name="has_content",
        changed_by=_WORDS_OF_MODEL,
        type="boolean",
        meaning="whether the latest reply contains text",
        changes="with every reply",
        read=lambda s: s.reply is not None and has_words(s.reply.content),
    ),
    Fact(
        name="tool_calls",
        changed_by=(*_WORDS_OF_MODEL, "tool_finished"),
        cleared_by_effect=lambda row: row.closes_calls,
        type="integer",
        meaning="calls that the latest reply requests",
        changes="with every reply",
        read=attrgetter("calls.length"),
    ),
    Fact(
        name="pending_calls",
        type="integer",
        meaning="calls of the latest reply that have no outcome yet",
        changes="with every reply and every finished call",
        read=attrgetter("calls.pending"),
        moved_by=("tool_finished",),
        reset_by=("replied",),
    ),
    Fact(
        name="undecided_calls",
        type="integer",
        meaning="calls that need approval and have no decision yet",
        changes="with the review and every decision",
        read=attrgetter("calls.undecided"),
        moved_by=("decided",),
        reset_by=("replied", "reviewed"),
    ),
    Fact(
        name="approved_calls",
        changed_by=("decided",),
        type="integer",
        meaning="calls that a person approved in this turn",
        changes="with every decision",
        read=attrgetter("approved"),
    ),
    Fact(
        name="denied_calls",
        changed_by=("reviewed", "decided"),
        type="integer",
        meaning="calls that were denied in this turn, by a rule or by a person",
        changes="with the review and every decision",
        read=attrgetter("denied"),
    ),
    Fact(
        name="iteration",
        type="integer",
        meaning="replies of this turn whose calls have all been answered",
        changes="grows by one when the last call of a reply has its outcome",
        read=attrgetter("iteration"),
        moved_by=("tool_finished",),
        limit="max_iterations",
    ),
    Fact(
        name="max_iterations",
        changed_by=(),
        reads_limits=("max_iterations",),
        type="integer",
        meaning="the limit of iterations in this turn",
        changes="never within a turn",
        read=attrgetter("limits.max_iterations"),
    ),
    Fact(
        name="tool_only_streak",
        changed_by=("replied",),
        type="integer",
        meaning="consecutive replies that call tools and contain no text",
        changes="with every reply",
        read=attrgetter("tool_only_streak"),
    ),
    Fact(
        name="max_tool_only_streak",
        changed_by=(),
        reads_limits=("max_tool_only_streak",),
        type="integer",
        meaning="the limit of consecutive replies without text in this turn; `max_steps` where it is not set",
        changes="never within a turn",
        read=lambda s: s.limits.max_tool_only_streak or s.limits.max_steps,
    ),
    Fact(
        name="repeated_calls",
        changed_by=(*_WORDS_OF_MODEL, "reviewed", "tool_finished"),
        cleared_by_effect=lambda row: row.closes_calls,
        type="integer",
        meaning="how many replies of this turn have requested the most repeated call of the latest reply",
        changes="with every reply, and with the review, which leaves out tools that may repeat",
        read=lambda s: max((call.repeat for call in s.calls if not call.may_repeat), default=0),
    ),
    Fact(
        name="max_repeats",
        changed_by=(),
        reads_limits=("max_repeats",),
        type="integer",
        meaning="the limit of replies in this turn that request the same call",
        changes="never within a turn",
        read=attrgetter("limits.max_repeats"),
    ),
    Fact(
        name="replies",
        type="integer",
        meaning="replies of this turn",
        changes="grows with every reply",
        read=attrgetter("replies"),
        moved_by=("replied",),
        limit="max_iterations",
    ),
    Fact(
        name="attempt",
        type="integer",
        meaning="failed model calls since the latest reply",
        changes="grows with every failure, back to 0 with a reply",
        read=attrgetter("attempt"),
        moved_by=("failed", "agent_failed"),
        reset_by=("replied", "agent_finished", "agent_rested"),
        limit="max_attempts",
    ),
    Fact(
        name="unusable_replies",
        changed_by=(*_WORDS_OF_MODEL, "failed", "agent_failed"),
        type="integer",
        meaning="the latest replies in a row that were empty, or had a call that cannot be read",
        changes="grows with every such reply, back to 0 with any other reply or failure",
        read=attrgetter("unusable_replies"),
    ),
    Fact(
        name="max_attempts",
        changed_by=(),
        reads_limits=("max_attempts",),
        type="integer",
        meaning="the limit of attempts for one model call in this turn",
        changes="never within a turn",
        read=attrgetter("limits.max_attempts"),
    ),
    Fact(
        name="error_kind",
        changed_by=(*_WORDS_OF_MODEL, "failed", "agent_failed"),
        type="text",
        meaning="class of the latest failure, `none` when there is none",
        changes="with every failure, back to `none` with a reply",
        read=lambda s: name_failure_kind(s.failure.kind) if s.failure else "none",
        words=("none", *FAILURE_KINDS, "other"),
    ),
    Fact(
        name="retryable",
        changed_by=(*_WORDS_OF_MODEL, "failed", "agent_failed"),
        reads_limits=("max_wait_s",),
        type="boolean",
        meaning="whether the same request may succeed later, after a wait that the limits allow",
        changes="with every failure, back to false with a reply",
        read=is_retryable,
    ),
    Fact(
        name="tools_offered",
        changed_by=(),
        type="integer",
        meaning="tools that this turn offers to the model",
        changes="never within a turn",
        read=lambda s: len(s.offered_tools),
    ),
    Fact(
        name="tools_sent",
        changed_by=(),
        changed_by_effect=lambda row: row.asks_main_model,
        type="boolean",
        meaning="whether the latest model call offered tools",
        changes="with every model call",
        read=attrgetter("tools_sent"),
    ),
    Fact(
        name="budget_spent",
        reads_limits=("max_tokens", "max_cost", "max_seconds", "max_tool_calls"),
        type="boolean",
        meaning="whether a budget of the turn (tokens, money, seconds, tool calls) is used up",
        changes="with every event",
        read=lambda s: find_spent_budget(s) is not None,
    ),
    Fact(
        name="calls_over_budget",
        reads_limits=("max_tool_calls",),
        type="boolean",
        meaning="whether running the calls of the latest reply would exceed the budget of tool calls",
        changes="with every reply, back to false once every call has its outcome",
        read=exceeds_call_budget,
    ),
    Fact(
        name="strict_warnings",
        changed_by=("replied", "replied.*", "reviewed", "tool_finished"),
        changed_by_effect=_may_warn,
        is_latched=True,
        type="boolean",
        meaning="whether the policy is strict and the turn has a warning",
        changes="with the start of the turn, every reply, a review that repairs arguments or finds a call"
        " that is repeated too often, and a tool that raises an exception",
        read=lambda s: bool(s.warnings) and s.settings is not None and s.settings.strict,
    ),
    Fact(
        name="writes_tools_as_text",
        changed_by=(),
        set_by=("describe_tools_in_text",),
        type="boolean",
        meaning="whether model calls describe the tools in the prompt",
        changes="with the effect `describe_tools_in_text`",
        read=attrgetter("writes_tools_as_text"),
    ),
    Fact(
        name="unread_messages",
        changed_by=("user_said",),
        cleared_by_effect=lambda row: row.asks_main_model,
        type="integer",
        meaning="messages that the user sent during the turn and that no request contains yet",
        changes="with every message of the user, back to 0 with a model call",
        read=lambda s: len(s.inbox),
    ),
    Fact(
        name="long_results",
        reads_limits=("long_result_size",),
        type="integer",
        meaning="results of the latest reply's calls that are long and have no summary",
        changes="when the last call has its outcome, with every summary, back to 0 with a model call",
        read=count_long_results,
    ),
    Fact(
        name="context_tokens",
        type="integer",
        meaning="tokens that the next request takes: what the host counted last, and an estimate of the rest",
        changes="with every message, with `compact`, to `context_limit` where the host refuses the length",
        read=count_context_tokens,
    ),
    Fact(
        name="context_limit",
        changed_by=(),
        type="integer",
        meaning="tokens that the model takes in one request",
        changes="never within a turn",
        read=get_context_limit,
    ),
    Fact(
        name="host",
        type="text",
        meaning="the `llm` that the effect of the newest model call names; `primary` where it names none",
        changes="with every model call of the conversation",
        read=lambda s: s.asked_host or PRIMARY,
        words=(PRIMARY,),
    ),
    Fact(
        name="model",
        type="text",
        meaning="the `model` that the effect of the newest model call names; `primary` where it names none",
        changes="with every model call of the conversation",
        read=lambda s: s.asked_model or PRIMARY,
        words=(PRIMARY,),
    ),
    Fact(
        name="fallbacks",
        type="integer",
        meaning="how often in this turn another host or model was asked after a failure",
        changes="with a model call after a failure",
        read=attrgetter("fallbacks"),
    ),
)


@lru_cache(maxsize=1024)
def _find_reader(name: str) -> Callable[[SnapshotFields], Any]:
    read = partial(read_result_fact, name) if "." in name else get_facts()[name].read
    assert read is not None, "a row without it is refused"
    return read


class FactView(msgspec.Struct, gc=False):
    """The facts of one snapshot by name; each fact is read when a guard needs it."""

    snapshot: SnapshotFields

    def __getitem__(self, name: str) -> Any:
        """The value of a fact."""
        return _find_reader(name)(self.snapshot)

    def keys(self) -> Iterator[str]:
        """The names of the facts."""
        return iter(get_facts())
