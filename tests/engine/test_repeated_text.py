"""An answer that broke off and is said once more is shown as one, in time of its length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.engine.runtime import answer_stream
from toolchart.engine.runtime.answer_stream import AnswerStream
from toolchart.states.messages import TextDelta, TextWithdrawn

ACTS = st.lists(st.sampled_from(["a", "ab", "b", "aba", " ", "break"]), max_size=30)
"""Words, and breaks after which the next words are those of another try."""


class LookingBack(AnswerStream):
    """Compares the whole text with each word, as the meaning of it is."""

    _repeated = property(lambda self: None, lambda self, value: None)  # type: ignore[assignment]


def act(stream: AnswerStream, acts: list[str]) -> None:
    """Let tries say their words."""
    speaker: Any = SimpleNamespace(id=1)
    stream.begin_agent(speaker, speaker)
    for word in acts:
        if word == "break":
            stream._forget_words()
            stream.begin_agent(speaker, speaker)
        else:
            stream._take_from_child(TextDelta(text=word))


def read_shown(shown: list[Any]) -> str:
    """The text that stands at whoever watches."""
    text = ""
    for delta in shown:
        text = delta.kept if isinstance(delta, TextWithdrawn) else text + delta.text
    return text


@given(base=st.sampled_from(["", "a", "ab"]), acts=ACTS)
def test_only_new_words_are_compared_and_the_same_is_shown(base: str, acts: list[str]) -> None:
    """Whatever is said, broken off and said again: each delta is that of a stream that compares everything,
    and what stands there begins with what was said last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_stream, "join_last_words", lambda snapshot: base)
        shown: list[Any] = []
        wanted: list[Any] = []
        act(AnswerStream(shown.append), acts)
        act(LookingBack(wanted.append), acts)
    assert shown == wanted
    last = "".join(acts[max((at + 1 for at, word in enumerate(acts) if word == "break"), default=0) :])
    if last.strip():
        assert read_shown(shown).startswith(base + last)


def test_a_long_answer_that_is_said_again_costs_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text so far is joined when a try begins and where it departs, and not with each of its words."""
    monkeypatch.setattr(answer_stream, "join_last_words", lambda snapshot: "")
    joins: list[int] = []
    show_text = AnswerStream._show_text
    monkeypatch.setattr(
        AnswerStream,
        "_show_text",
        lambda self, text, **more: (joins.append(len(text)), show_text(self, text, **more))[1],
    )
    shown: list[Any] = []
    act(AnswerStream(shown.append), ["word "] * 1000 + ["break"] + ["word "] * 1000 + ["more "])
    assert joins == [5, 5]
    assert read_shown(shown) == "word " * 1000 + "more "
