"""The answer of a turn as it comes: one stream of text for every door.

What a model streams may turn out to be no part of the answer: it goes on to ask for tools, its host cuts it
off and it is asked again, the text breaks the form that it must have, or the chart asks once more. Whoever
watches a turn must end up with the text that the result and the record have. So every delta of a turn passes
here, and so does every step. The rule:

    the texts of all `TextDelta` since the newest `TextWithdrawn`, joined, are what has been said so far;
    when the turn is over without an error, they are `Turn.content`

A text that its host cut off is not withdrawn at once. If the next reply begins with the same text, only what
follows is shown; else the text is withdrawn at the first character that differs.

Steps alone give the same text as deltas and steps, in larger pieces. So a turn that is read from the log
shows what its watchers saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolchart.engine.runtime.answer_form import find_answer_format
from toolchart.states.content import UNSEEN, has_words
from toolchart.states.core.step import Step, step
from toolchart.states.effects import CallModel, RunAgent
from toolchart.states.errors import ToolchartError
from toolchart.states.events import AgentFailed, AgentFinished, AgentRested, Event, Failed, Replied
from toolchart.states.messages import (
    Delta,
    Doubt,
    Reply,
    ResultDelta,
    TextDelta,
    TextWithdrawn,
    WithdrawalReason,
)

if TYPE_CHECKING:
    from toolchart.states.machine import Machine
    from toolchart.states.snapshot import Snapshot


class AnswerStream:
    """Shows the text of one turn to whoever watches it, and takes back what is no part of the answer.

    The words of an agent that the conversation was handed to are part of the text (`open_child`).

    Args:
        show: receives every delta.
    """

    def __init__(self, show: Callable[[Delta], None]) -> None:
        self._show = show
        self._shown: list[str] = []
        """The text that stands at whoever watches."""
        self._base = ""
        """What was said in a row before the words that come now: the answer is all of it."""
        self._words: list[str] = []
        """The words that come now: those of one model call, or of one agent."""
        self._has_spoken = False
        """Whether they are more than white space."""
        self._speaker = 0
        """Id of the effect whose words they are; 0 for none."""
        self._doubt: Doubt = ""
        self._is_level = True
        """Whether the text that stands there is what has been said."""
        self._repeated: int | None = None
        """How much of the text that stands there has been said once more, where that is all that was said."""
        self._reason: WithdrawalReason = "chart"
        """Why the text is no part of the answer, where it is none."""

    # -- deltas ----------------------------------------------------------------------------------

    def take_delta(
        self, delta: Delta, effect: CallModel, snapshot: Snapshot, machine: Machine, *, has_form: bool
    ) -> None:
        """Show a delta of a model call.

        Args:
            has_form: whether its reply must have a form.
        """
        if not isinstance(delta, TextDelta):
            self._show(delta)
        elif effect.result:
            self._show(ResultDelta(result=effect.result, text=delta.text))
        elif delta.text:
            if effect.id != self._speaker:
                self._begin(
                    effect.id, snapshot, "form" if has_form else find_doubt(effect, snapshot, machine)
                )
            self._say(delta.text)

    def begin_agent(self, effect: RunAgent, snapshot: Snapshot) -> None:
        """Note that an agent speaks now."""
        self._begin(effect.id, snapshot, "agent")

    def open_child(self) -> AnswerStream:
        """The stream of an agent that the conversation was handed to: its words are shown here."""
        return AnswerStream(self._take_from_child)

    def _take_from_child(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._say(delta.text)
        elif isinstance(delta, TextWithdrawn):
            self._words, self._has_spoken, self._reason = [], False, delta.reason
            self._show_text(self._base, is_whole=True)
        else:
            self._show(delta)

    # -- steps -----------------------------------------------------------------------------------

    def take_step(self, event: Event, taken: Step) -> None:
        """Show what a step decides about the text: a reply that came whole, one that failed, the answer.

        A late event decides nothing.
        """
        before = taken.before
        if before is None:
            return
        if isinstance(event, _CLOSING_EVENTS):
            for effect in before.open_effects:
                if effect.id == event.effect and isinstance(effect, CallModel | RunAgent):
                    if not effect.result:
                        self._end_words(event, effect, taken)
                    break
        if self._speaker in taken.cancels:
            self._forget_words()
        if taken.ends_turn:
            snapshot = taken.snapshot
            content, shown = snapshot.answer or "", "".join(self._shown)
            self._doubt, self._speaker = "", 0
            if snapshot.error is None:
                self._show_text(content, is_whole=True)
            elif content != shown:  # the text of an error is no answer
                self._show_text("", is_whole=True)

    def _end_words(self, event: _Closing, effect: CallModel | RunAgent, taken: Step) -> None:
        before, has_streamed = taken.before, effect.id == self._speaker
        assert before is not None, "it has the effect"
        if not has_streamed:
            self._begin(effect.id, before, _find_doubt_of_whole(effect, before, event, taken))
        match event:
            case Replied() if event.reply.tool_calls:
                self._show_whole_words(event.reply.content)
                self._words, self._base, self._reason = [], "", "calls"
                self._show_text("", is_whole=True)
            case Failed() if event.reply is None or event.kind not in _FORM_KINDS:
                self._show_whole_words(None if has_streamed else event.content)
                self._forget_words()
            case Failed() | AgentFailed():
                self._words, self._reason = [], "form" if isinstance(event, Failed) else "failure"
                self._show_text(self._base, is_whole=True)
            case _:
                self._show_whole_words(event.reply.content if isinstance(event, Replied) else event.content)
                if not taken.ends_turn:
                    self._doubt, self._reason = "chart", "chart"
                    self._show_text(join_last_words(taken.snapshot), is_whole=True)
        self._speaker = 0

    def _show_whole_words(self, text: str | None) -> None:
        """Show what a reply said, where no deltas of it came."""
        if text and not self._words and has_words(text):
            self._words = [text]
            self._show_text(self._base + text, is_whole=False)

    def _forget_words(self) -> None:
        """Take the words back that were broken off: when other words come, since these may be the same."""
        self._words, self._speaker, self._reason = [], 0, "failure"
        self._is_level, self._repeated = False, None

    # -- the text --------------------------------------------------------------------------------

    def _begin(self, speaker: int, snapshot: Snapshot, doubt: Doubt) -> None:
        self._speaker, self._doubt, self._words, self._has_spoken = speaker, doubt, [], False
        self._base = join_last_words(snapshot)
        self._is_level, self._repeated = "".join(self._shown) == self._base, None

    def _say(self, text: str) -> None:
        self._words.append(text)
        if self._has_spoken and self._is_level:
            self._shown.append(text)
            self._show(TextDelta(text=text, doubt=self._doubt))
        elif self._repeated is not None and self._shown[0].startswith(text, self._repeated):
            # Only the new words are compared: a long answer may be said once more in many small pieces.
            self._repeated += len(text)
            self._is_level = self._repeated == len(self._shown[0])
        elif self._has_spoken or text.strip(
            UNSEEN
        ):  # else it may be an empty reply, which is asked for again
            self._has_spoken = True
            self._show_text(self._base + "".join(self._words), is_whole=False)

    def _show_text(self, text: str, *, is_whole: bool) -> None:
        """Make this the text that stands at whoever watches.

        Args:
            is_whole: whether no more of it comes; else what stands there may still be its beginning.
        """
        shown = "".join(self._shown)
        self._shown, self._repeated = [shown] if shown else [], None
        if not text.startswith(shown):
            # It may be the text that was cut off, said once more from its beginning: nothing is taken back
            # yet.
            if not is_whole and shown.startswith(text):
                self._is_level, self._repeated = False, len(text)
                return
            self._shown = []
            self._show(TextWithdrawn(reason=self._reason, kept=text if shown.startswith(text) else ""))
            shown = ""
        self._is_level = True
        if len(text) > len(shown):
            self._shown.append(text[len(shown) :])
            self._show(TextDelta(text=text[len(shown) :], doubt=self._doubt))


_FORM_KINDS = ("bad_output", "content_filter")
"""Failures of whole replies whose words are known to be no answer; others may come again as they were."""

_Closing = Replied | Failed | AgentFinished | AgentFailed | AgentRested

_CLOSING_EVENTS = (Replied, Failed, AgentFinished, AgentFailed, AgentRested)
"""Events after which it is known what became of the words that came."""


def join_last_words(snapshot: Snapshot) -> str:
    """What was said since the newest message of somebody else: the answer, if nothing else follows."""
    return "".join(message.content or "" for message in snapshot.messages.list_last("assistant"))


def find_doubt(effect: CallModel, snapshot: Snapshot, machine: Machine | None = None) -> Doubt:
    """Why the text of a model call may be no part of the answer, though its host does not fail.

    Args:
        machine: asked where the chart goes after such a text; None does not ask.
    """
    request = effect.request
    if effect.schema is not None or find_answer_format(request.options) is not None:
        return "form"
    if request.tools and request.options.get("tool_choice") != "none":
        return "calls"
    return "chart" if machine is not None and not _ends_with_text(effect, snapshot, machine) else ""


def _find_doubt_of_whole(
    effect: CallModel | RunAgent, before: Snapshot, event: _Closing, taken: Step
) -> Doubt:
    """Why words may be no part of the answer that are shown when it is known how they ended."""
    if isinstance(effect, RunAgent):
        return "agent"
    if find_doubt(effect, before) == "form":
        return "form"
    is_answer = isinstance(event, Replied) and not event.reply.tool_calls and taken.ends_turn
    return "" if is_answer else "chart"


_PROBE = "text"


def _ends_with_text(effect: CallModel, snapshot: Snapshot, machine: Machine) -> bool:
    """Whether the chart would end the turn now with what a reply says, and with nothing else.

    The core is pure: a step that nobody records asks the chart what it would do. What it appends must not
    stand in the lists of the conversation, or the real reply would copy them.
    """
    shown = snapshot.shown.branch() if snapshot.shown is not None else None
    probed = replace(snapshot, messages=snapshot.messages.branch(), shown=shown)
    event = Replied(at=snapshot.now, effect=effect.id, reply=Reply(content=_PROBE, finish_reason="stop"))
    try:
        after = step(machine, probed, event).snapshot
    except ToolchartError:
        return False
    return after.is_over and after.error is None and after.answer == join_last_words(snapshot) + _PROBE
