"""Chooses the agent that goes on with a stored conversation.

A log is data: its spec starts no command, calls no host and reads no variable because it stands there.
Whoever goes on names an agent spec of their own; a shipped agent is one, by its name. Without a name only a
shipped agent that can start nothing at all goes on. `--trust-log` lets the stored spec act, after a person
has read what it would start and has agreed at the terminal. What is shown is the manifest of the loaded
agent, whole; what was agreed to is what acts: the agent is the very value that the manifest was computed
from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import click
import msgspec

from toolchart.app.cli.parameters.options import (
    durability_option,
    fleet_options,
    json_option,
    log_option,
    read_signer,
    signer_options,
)
from toolchart.app.cli.terminal.line_reading import can_ask_user
from toolchart.app.cli.terminal.text import print_notice
from toolchart.engine.manifest import Manifest, build_manifest
from toolchart.specs.charts import load_spec_chart
from toolchart.specs.loader import UNLOGGED_SECTIONS, list_shipped_agents, load_spec
from toolchart.specs.models import AgentSpec
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError
from toolchart.states.events import Configured
from toolchart.tools.approvers import Signer

spec_option = click.option("--spec", metavar="SPEC", help="Agent that goes on: your own spec.")

trust_option = click.option(
    "--trust-log",
    is_flag=True,
    help="Use the agent stored in the log; lists what it would start and asks first.",
)

_OWN_SPEC_HINT = "name your own agent spec: --spec agent.yaml"


class AgentChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that goes on with a conversation, in whose name, and how the log is written."""

    spec: str | None
    trust_log: bool
    """Whether the agent stored in the log may act."""
    signer: Signer | None
    """Signs the decisions."""
    approver_name: str | None
    """Who decides; None says nothing of that."""
    log: str | None
    """Address of the log; None is the default one."""
    durability: str | None
    """`full` or `normal`; None takes that of the agent."""
    dsn: str | None
    """Address of the database with the queue of workers; None is that of the log."""
    run_here: bool
    """Whether the turn goes on here, also where workers own the conversation."""
    as_json: bool
    """Whether the result is printed as JSON."""


def agent_choice_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of commands that go on with a turn; the command gets all of them as `choice`."""

    @signer_options
    @fleet_options
    @spec_option
    @trust_option
    @json_option
    @durability_option
    @log_option
    @wraps(function)
    def command(key_file: str | None, **options: Any) -> int:
        names = [name for name in AgentChoice.__struct_fields__ if name in options]
        chosen = {name: options.pop(name) for name in names}
        signer = read_signer(key_file, chosen["approver_name"])
        return function(choice=AgentChoice(signer=signer, **chosen), **options)

    return command


def choose_agent(spec: str | None, stored: Configured, *, trust_log: bool) -> str | AgentSpec:
    """Return the agent that goes on: the named one, a harmless shipped one, or the trusted stored one.

    Args:
        stored: what the log says that the conversation ran with.

    Raises:
        SpecError: none of them is there, nobody can be asked, or the stored agent cannot say what it starts.
        Abort: the person did not agree.
    """
    if spec is not None:
        return spec
    shipped = find_shipped_agent(stored)
    # That a log names a shipped agent gives it nothing to do either: some run programs or send a key.
    if shipped is not None and _is_harmless(shipped):
        return shipped
    if not trust_log:
        raise SpecError(
            "the agent stored in a log does not act by itself: name your own agent spec",
            path="--spec",
            hint=f"--spec {shipped or 'agent.yaml'}; "
            "or --trust-log, which lists what the stored agent starts, and asks",
        )
    return _ask_for_trust(stored)


def find_shipped_agent(stored: Configured) -> str | None:
    """The name of the shipped agent that a conversation ran with: spec, chart and effects, word for word.

    The spec alone does not say it: another chart may stand beside it in a log that somebody wrote. Texts are
    compared and no values, because 1, 1.0 and true are equal values.
    """
    name = _name_shipped_specs().get(encode_canonical_text(stored.spec))
    if name is None:
        return None
    chart = load_spec_chart(load_spec(name))
    has_own_effects = encode_canonical_text(dict(chart.effects)) == encode_canonical_text(stored.effects)
    return name if chart.to_yaml() == stored.chart and has_own_effects else None


def _is_harmless(shipped: str) -> bool:
    """Whether a shipped agent starts, reaches and reads nothing; agents that it runs are followed."""
    return all(start.kind == "agent" for start in build_manifest(load_spec(shipped)).starts)


@cache
def _name_shipped_specs() -> dict[str, str]:
    """The names of the shipped agents by the texts of their specs; reading all of them takes a second."""
    return {encode_canonical_text(load_spec(name).to_public_dict()): name for name in list_shipped_agents()}


def _ask_for_trust(stored_configuration: Configured) -> AgentSpec:
    """The stored agent, after a person has read its manifest and has agreed.

    Raises:
        SpecError: nobody can be asked, or the stored agent cannot say what it starts.
        Abort: the person did not agree.
    """
    for section in UNLOGGED_SECTIONS:
        if section in stored_configuration.spec:
            raise SpecError(
                f"the agent stored in this log has the section {section!r}, which no log should hold",
                path=section,
                hint=f"Toolchart writes none: somebody else did; {_OWN_SPEC_HINT}",
            )
    agent = load_spec(stored_configuration.spec)
    manifest = build_manifest(agent)
    _print_manifest(manifest)
    if not can_ask_user():
        raise SpecError(
            "--trust-log asks a person, and this is no terminal", path="--trust-log", hint=_OWN_SPEC_HINT
        )
    question = f"Trust this log, and let its agent do all that is listed ({len(manifest.starts)})?"
    click.confirm(question, default=False, abort=True, err=True)
    if build_manifest(agent) != manifest:
        raise SpecError(
            "a file that the stored agent names was changed while you read the list",
            path="--trust-log",
            hint="nothing was started; run the command again",
        )
    return agent


def _print_manifest(manifest: Manifest) -> None:
    """Print every line, whole; the number of lines stands before and, by their numbers, beside them."""
    count = len(manifest.starts)
    if not count:
        print_notice("the agent stored in this log starts, reaches and reads nothing outside this process")
        return
    things = "1 thing" if count == 1 else f"{count:,} things"
    print_notice(f"the agent stored in this log can start, reach or read {things}:")
    for line in manifest.format_lines():
        print_notice(f"  {line}")
