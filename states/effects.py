"""Effects: what the core asks for, in the imperative.

A chart names effects (`enter: call_model`); the core turns each name into a value with everything
that the driver needs; the driver performs it and answers with an event. `EFFECTS` is the whole
vocabulary and says which events each one can produce, so that a chart can be checked for holes.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolchart.states.messages import Request, ToolCall
from toolchart.states.quick import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectKind:
    """One word of the vocabulary."""

    name: str
    meaning: str
    produces: tuple[str, ...] = ()
    """Events with which the driver may answer."""
    external: tuple[str, ...] = ()
    """Events that somebody outside may send while the effect is awaited."""


EFFECTS: dict[str, EffectKind] = {
    kind.name: kind
    for kind in (
        EffectKind(
            name="call_model",
            meaning="call the model with the conversation and the offered tools",
            produces=("replied", "failed"),
        ),
        EffectKind(
            name="call_model_without_tools",
            meaning="call the model with the conversation and no tools, so that it must answer",
            produces=("replied", "failed"),
        ),
        EffectKind(
            name="review_calls",
            meaning="look at every call of the reply: known, allowed, valid, approved?",
            produces=("reviewed",),
            external=("decided",),
        ),
        EffectKind(
            name="run_tools",
            meaning="run the calls that may run and answer for those that may not",
            produces=("tool_finished",),
        ),
        EffectKind(
            name="wait",
            meaning="let time pass before the next attempt",
            produces=("waited",),
        ),
        EffectKind(name="answer", meaning="end the turn with the model's answer"),
        EffectKind(
            name="answer_at_limit", meaning="end the turn at a limit, keeping what was found"
        ),
        EffectKind(name="answer_with_error", meaning="end the turn with what could be said"),
    )
}


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the model; answer with `Replied` or `Failed`."""

    name: str
    request: Request


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCalls:
    """Judge the calls; answer with `Reviewed`."""

    name: str
    calls: tuple[ToolCall, ...]
    allowed: tuple[str, ...]
    """Names of the tools that this turn may run."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Run the calls; answer with one `ToolFinished` each, in any order."""

    name: str
    calls: tuple[ToolCall, ...]
    """Calls that may run."""
    refused: tuple[tuple[ToolCall, str, str], ...] = ()
    """Calls that may not, each with outcome and reason."""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Let time pass; answer with `Waited`."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The turn is over; nothing is expected."""

    name: str
    content: str
    """The text that the user gets."""


Effect = CallModel | ReviewCalls | RunTools | Wait | Answer
