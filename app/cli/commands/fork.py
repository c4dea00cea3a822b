"""`toolchart fork`: a conversation that goes on from a record of another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import find, json_option, log_option, opened, print_json, to_type
from toolchart.app.cli.terminal.text import printable, talk
from toolchart.app.cli.turn_output import tell, watch
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.engine.runtime.result import ForkResult


@click.command(short_help="Go on from a record, with something changed.")
@click.argument("conversation")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="The newest record that is shared; without it the place that the change needs, else the newest.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="model, llm, tools, temperature, max_tokens, limits.max_iterations, ... Repeatable.",
)
@click.option(
    "--tool-result",
    "results",
    multiple=True,
    metavar="CALL_ID=JSON",
    help="Another result of a call. Repeatable.",
)
@click.option("--prompt", type=click.Path(), metavar="FILE", help="Another system prompt.")
@click.option("--name", metavar="ID", help="Id of the fork; a fresh one without.")
@click.option("--spec", metavar="SPEC", help="The agent; without it the one in the log.")
@click.option(
    "--offline",
    is_flag=True,
    help="What-if: the log answers, up to the first thing that was never recorded.",
)
@json_option
@log_option
def command(
    conversation: str,
    at: int | None,
    settings: tuple[str, ...],
    results: tuple[str, ...],
    prompt: str | None,
    name: str | None,
    spec: str | None,
    offline: bool,
    as_json: bool,
    log: str | None,
) -> int:
    """Go on from a record of CONVERSATION in a new conversation, with something changed.

    What came before is shared, not copied. What nothing had answered there is asked for again, so a
    change of the model runs the newest turn anew, and another result goes on from where it arrived.

    \b
    Example:  toolchart fork 5f0c --set model=qwen3
              toolchart fork 5f0c --tool-result call_1={"sky":"grey"}
              toolchart fork 5f0c --set limits.max_iterations=2 --offline
    """
    from toolchart.engine.log.fork import Changes
    from toolchart.engine.log.replay import standing
    from toolchart.engine.runtime.engine import Engine

    changes = Changes(
        settings={key: _value(value) for key, value in _pairs(settings, "--set")},
        system=_prompt(prompt),
        results={key: _json(key, value) for key, value in _pairs(results, "--tool-result")},
    )
    with opened(log) as store:
        parent = find(store, conversation)
        found = standing(store, parent)
        assert found is not None, "the conversation was found in this log"
        agent: Any = spec or found.configured.spec
        seen = watch(silent=as_json)
        with Engine(agent, log=store, observer=seen) as engine:
            done = engine.fork(parent, at=at, changes=changes, name=name, from_log=offline)
    if as_json:
        print_json(_data(done))
        return NO if done.stopped else DONE
    _tell(done)
    if done.stopped or done.result is None:
        return NO if done.stopped else DONE
    return tell(done.result, seen, as_json=False)


def _tell(done: ForkResult) -> None:
    talk(f"{done.conversation} goes on from record {done.at} of {done.parent}")
    if done.stopped:
        talk(
            f"toolchart: stopped: {printable(done.stopped)}\n"
            f"  compare:       {to_type('diff', done.parent, done.conversation)}\n"
            f"  go on for real: {to_type('resume', done.conversation)}"
        )


def _data(done: ForkResult) -> dict[str, Any]:
    return {
        "conversation": done.conversation,
        "parent": done.parent,
        "at": done.at,
        "stopped": done.stopped,
        "result": done.result.to_dict() if done.result else None,
    }


def _pairs(given: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    pairs = [one.partition("=") for one in given]
    for (name, equals, _), one in zip(pairs, given, strict=True):
        if not (name and equals):
            raise SpecError(f"{option} {one!r} is not of the form NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def _value(text: str) -> Any:
    """A number, a truth value or a list where it is one in JSON; else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SpecError(
            f"the result of {name!r} is not JSON: {error}", hint='a text is written "..." in quotes'
        ) from None


def _prompt(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the prompt cannot be read: {error}", file=path) from None
