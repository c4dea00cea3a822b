"""The options of a turn: what `Engine.run` takes beside the message, and what its driver gets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
from msgspec.structs import replace

from toolchart.engine.runtime.dependencies import DeltaObserver, Dependencies, Observer
from toolchart.engine.runtime.flows.answer_form import AnswerType
from toolchart.states.messages import Message

if TYPE_CHECKING:
    from toolchart.tools.sources.attachments import Attachment


class StreamOptions(TypedDict, total=False):
    """The options of a streamed turn."""

    conversation: str | None
    """Id of the conversation to continue, with its history, or to begin; None begins one with a new id."""
    handler: str | None
    """Name of the handler; None selects one by `match` and the variables."""
    variables: Mapping[str, Any] | None
    """Values for the prompt and for `match`."""
    history: Sequence[Message | Mapping[str, Any]]
    """Earlier messages from elsewhere, for a new conversation: `Message` values, or dicts of OpenAI's form or
    `{type, text}`."""
    attachments: Sequence[Attachment]
    """Pictures, files, sounds: parts, bytes, paths, or public addresses to fetch."""
    llm: str | None
    """Name of an `llms` entry, instead of the handler's."""
    model: str | None
    """Name of a model, instead of that entry's."""
    output_type: Any
    """The type of the answer: a pydantic model, a dataclass, a TypedDict, `list[str]`, ... The host is asked
    for its JSON Schema, an answer that breaks it is `failed` of the kind `bad_output`, which charts with
    retries ask for again, and `TurnResult.data` is the value. With `str` nothing is demanded: it is the
    text."""


class TurnOptions(StreamOptions, total=False):
    """The options of a turn."""

    observer: Observer | None
    """Called with this turn's steps, instead of the engine's observer."""
    on_delta: DeltaObserver | None
    """Called with each delta; where it is set and the provider can stream, replies are streamed."""


class ResumeOptions(TypedDict, total=False):
    """The options of a turn that goes on."""

    output_type: Any
    observer: Observer | None
    on_delta: DeltaObserver | None


class TurnHooks(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn adds to the dependencies of its driver."""

    observer: Observer | None = None
    on_delta: DeltaObserver | None = None
    answer_form: AnswerType | None = None

    def add_to(self, dependencies: Dependencies) -> Dependencies:
        """The dependencies with these callbacks."""
        form = self.answer_form
        return replace(
            dependencies,
            observer=self.observer or dependencies.observer,
            on_delta=self.on_delta,
            answer_form=None if form is None or form.is_text else form,
        )


NO_HOOKS = TurnHooks()


def build_hooks(options: TurnOptions | ResumeOptions) -> TurnHooks:
    """The hooks that the options of a turn ask for.

    Raises:
        SpecError: `output_type` has no JSON Schema.
    """
    output_type = options.get("output_type")
    return TurnHooks(
        observer=options.get("observer"),
        on_delta=options.get("on_delta"),
        answer_form=None if output_type is None else AnswerType(output_type),
    )
