"""Effects: everything that the core can ask the driver to do, as frozen values with imperative names.

A chart names effects (`enter: call_model`). The core turns each name into a value with all that is needed
to perform it. The driver performs it and answers with an event. `EFFECTS` describes each effect and the
events that answer it, so that `check` can find events that a chart does not handle.
"""

from __future__ import annotations

import msgspec

from toolchart.states.messages import Request, ToolCall


class EffectKind(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one effect: its name, its meaning, and the events that answer it."""

    name: str
    meaning: str
    produces: tuple[str, ...] = ()
    """Events with which the driver may answer."""
    external: tuple[str, ...] = ()
    """Events that may come from outside while the effect is open."""


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
        EffectKind(name="wait", meaning="let time pass before the next attempt", produces=("waited",)),
        EffectKind(name="answer", meaning="end the turn with the model's answer"),
        EffectKind(name="answer_at_limit", meaning="end the turn at a limit, keeping what was found"),
        EffectKind(name="answer_with_error", meaning="end the turn with what could be said"),
    )
}


class CallModel(msgspec.Struct, frozen=True, kw_only=True, tag="call_model"):
    """Call the model; answer with `Replied` or `Failed`."""

    name: str
    request: Request


class ReviewCalls(msgspec.Struct, frozen=True, kw_only=True, tag="review_calls"):
    """Review the calls; answer with `Reviewed`."""

    name: str
    calls: tuple[ToolCall, ...]
    allowed: tuple[str, ...]
    """Names of the tools that this turn may run."""


class RunTools(msgspec.Struct, frozen=True, kw_only=True, tag="run_tools"):
    """Run the calls; answer with one `ToolFinished` each, in any order."""

    name: str
    calls: tuple[ToolCall, ...]
    """Calls that may run."""
    refused: tuple[tuple[ToolCall, str, str], ...] = ()
    """Calls that may not, each with outcome and reason."""
    allowed: tuple[str, ...] = ()


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag="wait"):
    """Wait; answer with `Waited`."""

    name: str
    seconds: float


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """End the turn; no event answers."""

    name: str
    content: str
    """The text for the user."""


Effect = CallModel | ReviewCalls | RunTools | Wait | Answer
