"""`toolchart chat`: an interactive chat with an agent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.chat.input import LineSource, PipeSource, TerminalSource, can_redraw, use_terminal
from toolchart.app.cli.chat.state import ChatState
from toolchart.app.cli.exit_codes import CANCELLED
from toolchart.app.cli.parameters.options import (
    durability_option,
    list_engine_options,
    log_option,
    read_signer,
    signer_options,
)
from toolchart.app.cli.terminal.log_messages import configure_logging
from toolchart.app.cli.terminal.output import get_output
from toolchart.app.cli.terminal.stopping import GRACE_S, SIGNALS
from toolchart.app.cli.terminal.text import is_terminal, print_notice
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.telemetry.environment import open_telemetry

if TYPE_CHECKING:
    from toolchart.app.cli.chat.session import ChatSession
    from toolchart.engine.runtime.engine import Engine


@click.command(short_help="Chat with an agent.")
@click.argument("spec")
@click.option("--conversation", metavar="ID", help="Continue this conversation.")
@click.option("--llm", metavar="NAME", help="Use this entry of `llms` instead of the handler's.")
@click.option("--model", metavar="NAME", help="Use this model instead of the agent's.")
@signer_options
@durability_option
@log_option
def command(
    spec: str,
    conversation: str | None,
    llm: str | None,
    model: str | None,
    key_file: str | None,
    approver_name: str | None,
    durability: str | None,
    log: str | None,
) -> int:
    """Chat with the agent SPEC. Answers, tool calls and states appear as they happen.

    Lines typed during a turn interrupt it where its chart says so; elsewhere they are queued. /approve and
    /reject decide a call that waits; messages that the open turn does not take wait for its end. Ctrl-C
    cancels the turn, not the chat. Alt-Enter begins another line of a message, arrow up brings back earlier
    ones. /help lists the chat's commands. If standard input is not a terminal, each line is a message and
    answers are plain text.

    \b
    Example:  toolchart chat quickstart
              toolchart chat agent.yaml --conversation c1
              printf '2+2\\n3*3\\n' | toolchart chat quickstart
    """
    from toolchart.app.cli.chat.screen import Screen
    from toolchart.app.cli.chat.session import ChatApprover, ChatSession
    from toolchart.engine.runtime.engine import Engine

    configure_logging(verbose=False)
    signer = read_signer(key_file, approver_name)
    state = ChatState(conversation=conversation or generate_conversation_id(), llm=llm, model=model)
    is_interactive = is_terminal(sys.stdin) and is_terminal(get_output())

    async def run_chat(stack: ExitStack) -> int:
        chats: list[ChatSession] = []
        source: LineSource = PipeSource()
        screen = Screen(is_plain=True)
        if is_interactive:
            source = terminal = _make_terminal_source(chats)
            screen = Screen(is_plain=False, on_preview=terminal.redraw if can_redraw() else None)
        approver = ChatApprover(chats) if is_interactive else None
        asker = (lambda question: chats[0].ask_form(question)) if is_interactive else None
        people: dict[str, Any] = {"approver": approver, "signer": signer, "asker": asker}
        people["telemetry"] = stack.enter_context(open_telemetry())
        async with Engine(**list_engine_options(spec), log=log, durability=durability, **people) as engine:
            chats.append(ChatSession(engine, state, source, screen))
            _stop_chat_on_signals(engine)
            if is_interactive:
                print_notice(f"conversation {state.conversation}; /help lists the commands")
            if conversation:
                chats[0].print_waiting()
            return await chats[0].run()

    try:
        with ExitStack() as stack:
            if is_interactive:  # not in the chat's task: what begins in the context of a task ends there
                stack.enter_context(use_terminal())
            return asyncio.run(run_chat(stack))
    except KeyboardInterrupt:
        print_notice(
            f"toolchart: cancelled; the log of conversation {state.conversation} has every step until now"
        )
        return CANCELLED
    except asyncio.CancelledError:  # a signal has stopped the chat
        print_notice(f"toolchart: stopped; the log of conversation {state.conversation} has every step")
        return CANCELLED


def _make_terminal_source(chats: Sequence[ChatSession]) -> TerminalSource:
    """The source of a chat that stands in the list before the first message is typed."""
    return TerminalSource(
        lambda: chats[0].handle_interrupt(),
        lambda: chats[0].prompt(),
        lambda: chats[0].list_earlier_messages(),
        lambda width, height: chats[0].screen.draw_preview(width, height),
    )


def _stop_chat_on_signals(engine: Engine) -> None:
    """Let SIGTERM and SIGHUP end the chat: what runs may end within the grace time."""
    loop, chat = asyncio.get_running_loop(), asyncio.current_task()
    stopping: list[asyncio.Task[None]] = []

    async def stop() -> None:
        await engine.astop(GRACE_S)
        if chat is not None:
            chat.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, lambda: stopping.append(loop.create_task(stop())))
