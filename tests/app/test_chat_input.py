"""The chat's input at a terminal: messages of several lines, and what was sent before."""

from __future__ import annotations

import asyncio

from prompt_toolkit.application import create_app_session, get_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from toolchart import Engine
from toolchart.app.cli.chat.input import TerminalSource
from toolchart.app.cli.chat.screen import Screen
from toolchart.app.cli.chat.session import ChatSession
from toolchart.app.cli.chat.state import ChatState

ARROW_UP = "\x1b[A"
ALT_ENTER = "\x1b\r"
CTRL_D = "\x04"


async def type_keys(keys: str) -> list[str]:
    """The messages that a person sends who types these keys."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys + CTRL_D)
        source = TerminalSource(lambda: False, lambda: "> ")
        return [message async for message in source.read_lines()]


async def test_a_message_may_have_several_lines() -> None:
    """Issue 16: Alt-Enter begins another line, Enter sends, and pasted lines stay one message."""
    assert await type_keys(f"one{ALT_ENTER}two\rthree\r") == ["one\ntwo", "three"]
    assert await type_keys("\x1b[200~a\nb\x1b[201~\r") == ["a\nb"]


async def press_until(pipe: PipeInput, key: str, text: str) -> None:
    """Press a key until the line that is typed is this text: the history is loaded in the background."""
    async with asyncio.timeout(120):
        while (app := get_app_session().app) is None or app.current_buffer.text != text:
            pipe.send_text(key)
            await asyncio.sleep(0.01)


async def test_arrow_up_brings_back_what_was_sent() -> None:
    """Issue 16: earlier messages of the conversation and of the session come back."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        source = TerminalSource(lambda: False, lambda: "> ", lambda: ["first", "second"]).read_lines()
        for keys in ("!", "?"):
            message = asyncio.ensure_future(anext(source))
            await press_until(pipe, ARROW_UP, "first")
            pipe.send_text(f"{keys}\r")
            assert await message == f"first{keys}"
        pipe.send_text(CTRL_D)
        assert [line async for line in source] == []


async def test_earlier_messages_come_from_the_log() -> None:
    """No file keeps what was typed: a chat that goes on reads it from its conversation."""
    async with Engine("quickstart", log="memory") as engine:
        for message in ("1+1", "2+2"):
            await engine.arun(message, conversation="c")
        source = TerminalSource(lambda: False, lambda: "> ")
        for name, expected in (("c", ["1+1", "2+2"]), ("new", [])):
            session = ChatSession(engine, ChatState(conversation=name), source, Screen(is_plain=True))
            assert session.list_earlier_messages() == expected
