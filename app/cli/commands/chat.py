"""`toolchart chat`: a conversation in the terminal."""

from __future__ import annotations

import asyncio
import sys

import click

from toolchart.app.cli.exit_codes import CANCELLED
from toolchart.app.cli.log_access import log_option
from toolchart.app.cli.terminal.text import on_terminal, talk


@click.command(short_help="Talk with an agent.")
@click.argument("spec")
@click.option("--conversation", metavar="ID", help="Go on with this conversation.")
@click.option("--llm", metavar="NAME", help="Another entry of `llms`.")
@click.option("--model", metavar="NAME", help="Another model of that entry's provider.")
@log_option
def command(
    spec: str, conversation: str | None, llm: str | None, model: str | None, log: str | None
) -> int:
    """Talk with the agent SPEC: answers, calls and states are shown as they happen.

    What is typed meanwhile waits its turn. Ctrl-C cancels the turn and not the chat; /help lists the
    commands. Where standard input is no terminal, each line is a message and answers are printed plain.

    \b
    Example:  toolchart chat quickstart
              toolchart chat agent.yaml --conversation c1
              printf '2+2\n3*3\n' | toolchart chat quickstart
    """
    from toolchart.app.cli.chat.input import Input, Piped, Typed
    from toolchart.app.cli.chat.screen import Screen
    from toolchart.app.cli.chat.session import Chat, Talk
    from toolchart.engine.runtime.engine import Engine, new_conversation

    state = Talk(conversation=conversation or new_conversation(), llm=llm, model=model)
    typed = on_terminal(sys.stdin) and on_terminal(sys.stdout)

    async def talking() -> int:
        chats: list[Chat] = []
        source: Input = (
            Typed(lambda: chats[0].interrupted(), lambda: chats[0].prompt()) if typed else Piped()
        )
        approver = (lambda call: chats[0].ask(call)) if typed else None
        async with Engine(spec, log=log, approver=approver) as engine:
            chats.append(Chat(engine, state, source, Screen(plain=not typed)))
            if typed:
                talk(f"conversation {state.conversation}; /help lists the commands")
            return await chats[0].run()

    try:
        return asyncio.run(talking())
    except KeyboardInterrupt:
        talk(f"toolchart: cancelled; conversation {state.conversation} has every step up to here")
        return CANCELLED
