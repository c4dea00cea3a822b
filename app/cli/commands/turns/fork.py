"""`toolchart fork`: continue from a record of a conversation in a new one, with changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log, print_json
from toolchart.app.cli.parameters.options import (
    durability_option,
    format_command,
    json_option,
    list_engine_options,
    log_option,
)
from toolchart.app.cli.stored_agent import choose_agent, spec_option, trust_option
from toolchart.app.cli.terminal.approval_prompt import TerminalApprover
from toolchart.app.cli.terminal.line_reading import can_ask_user
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.app.cli.turn_output import build_observer, report_result
from toolchart.engine.log.fork import ForkChanges, plan_fork
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import parse_foreign_json

if TYPE_CHECKING:
    from toolchart.engine.runtime.result import ForkResult


@click.command(short_help="Branch from a record of a conversation, with changes.")
@click.argument("conversation")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Last record to share. Default: the record that the changes need, else the newest one.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="Change a setting: model, llm, tools, temperature, limits.max_iterations, ... Repeatable.",
)
@click.option(
    "--tool-result",
    "results",
    multiple=True,
    metavar="CALL_ID=JSON",
    help="Replace the result of a tool call. Repeatable.",
)
@click.option(
    "--arguments",
    multiple=True,
    metavar="CALL_ID=JSON",
    help="Replace the arguments of a tool call. Repeatable, for calls of one reply.",
)
@click.option(
    "--prompt", type=click.Path(), metavar="FILE", help="Use the text of this file as system prompt."
)
@click.option("--name", metavar="ID", help="Id of the new conversation. Default: a generated id.")
@spec_option
@trust_option
@click.option(
    "--offline",
    is_flag=True,
    help="Answer from the log only; stop at the first request that has no recorded answer.",
)
@click.option(
    "--run-tools",
    is_flag=True,
    help="Run every tool again, and take no recorded results. Asks before a tool that is not idempotent.",
)
@json_option
@durability_option
@log_option
def command(
    conversation: str,
    at: int | None,
    settings: tuple[str, ...],
    results: tuple[str, ...],
    arguments: tuple[str, ...],
    prompt: str | None,
    name: str | None,
    spec: str | None,
    trust_log: bool,
    offline: bool,
    run_tools: bool,
    as_json: bool,
    durability: str | None,
    log: str | None,
) -> int:
    """Continue from a record of CONVERSATION in a new conversation, with changes.

    The records before it are shared, not copied. Effects that were still open there are performed again: a
    changed model repeats the newest turn, and a changed tool result continues after that call. With changed
    arguments the reply that asked for the call is heard again, with them: the call is reviewed, approved and
    run anew. A tool call that the log has already gets its recorded result. Before any other call of a tool
    that is not idempotent a person is asked; no approval of CONVERSATION counts.

    \b
    Example:  toolchart fork 5f0c --spec agent.yaml --set model=qwen3
              toolchart fork 5f0c --spec agent.yaml --tool-result call_1={"sky":"grey"}
              toolchart fork 5f0c --spec agent.yaml --arguments call_1={"city":"Oslo"}
              toolchart fork 5f0c --set limits.max_iterations=2 --offline
    """
    from toolchart.engine.runtime.engine import Engine
    from toolchart.engine.runtime.forks import fork_from_log

    changes = _build_changes(settings, prompt, results, arguments)
    with open_log(log, durability) as store:
        parent = find_conversation(store, conversation)
        replayed = load_conversation(store, parent)
        assert replayed is not None, "find_conversation returns only conversations of this log"
        observer = build_observer(is_silent=as_json)
        if offline:
            plan = plan_fork(store, parent, name or generate_conversation_id(), at, changes)
            fork = asyncio.run(fork_from_log(store, plan, observer=observer))
        else:
            agent = choose_agent(spec, replayed.configured, trust_log=trust_log)
            approver = TerminalApprover() if can_ask_user() else None
            writing: dict[str, Any] = {"log": log, "durability": durability}
            with (
                open_telemetry() as telemetry,
                Engine(
                    **list_engine_options(agent),
                    observer=observer,
                    approver=approver,
                    telemetry=telemetry,
                    **writing,
                ) as engine,
            ):
                if approver is not None:
                    approver.tools = engine.tools
                fork = engine.conversation(parent).fork(
                    at=at, changes=changes, name=name, run_tools=run_tools
                )
    if as_json:
        print_json(fork.to_dict())
        return NEGATIVE if fork.stopped else SUCCESS
    _print_fork(fork)
    if fork.stopped or fork.result is None:
        return NEGATIVE if fork.stopped else SUCCESS
    return report_result(fork.result, observer, as_json=False)


def _build_changes(
    settings: tuple[str, ...], prompt: str | None, results: tuple[str, ...], arguments: tuple[str, ...]
) -> ForkChanges:
    """What `--set`, `--prompt`, `--tool-result` and `--arguments` change."""
    return ForkChanges(
        settings={key: _parse_setting(value) for key, value in _split_pairs(settings, "--set")},
        system=_read_prompt(prompt),
        results={
            key: _parse_tool_result(key, value) for key, value in _split_pairs(results, "--tool-result")
        },
        arguments={
            key: _parse_arguments(key, value) for key, value in _split_pairs(arguments, "--arguments")
        },
    )


def _print_fork(fork: ForkResult) -> None:
    print_notice(f"{fork.conversation} continues from record {fork.at} of {fork.parent}")
    if fork.stopped:
        print_notice(
            f"toolchart: stopped: {escape_controls(fork.stopped)}\n"
            f"  compare:               {format_command('diff', fork.parent, fork.conversation)}\n"
            f"  continue with effects: {format_command('resume', fork.conversation)}"
        )


def _split_pairs(texts: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    """Split `NAME=VALUE` texts of an option into pairs."""
    pairs = [text.partition("=") for text in texts]
    for (name, equals, _), text in zip(pairs, texts, strict=True):
        if not (name and equals):
            raise SpecError(f"{option} {text!r} is not of the form NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def _parse_setting(text: str) -> Any:
    """Return the JSON value of the text; the text itself if it is not JSON."""
    try:
        return parse_foreign_json(text)
    except ValueError:
        return text


def _parse_tool_result(name: str, text: str) -> Any:
    try:
        return parse_foreign_json(text)
    except ValueError as error:
        raise SpecError(
            f"the result of {name!r} is not JSON: {error}", hint='write a text in quotes: "..."'
        ) from None


def _parse_arguments(name: str, text: str) -> dict[str, Any]:
    try:
        value = parse_foreign_json(text)
    except ValueError as error:
        raise SpecError(
            f"the arguments of {name!r} are not JSON: {error}", hint='write an object: {"NAME": VALUE}'
        ) from None
    if not isinstance(value, dict):
        raise SpecError(f"the arguments of {name!r} are no object", hint='write an object: {"NAME": VALUE}')
    return value


def _read_prompt(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the prompt cannot be read: {error}", file=path) from None
