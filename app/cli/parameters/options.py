"""The options that commands share (`--log`, `--json`, keys), the types of their values (names of a table,
ages, times, `--var`), and the spelling of commands in hints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from toolchart.engine.log.stores import DEFAULT_LOG, STORES
from toolchart.states.call_arguments import parse_arguments
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.engine.agents import Agent
    from toolchart.specs.models import AgentSpec
    from toolchart.tools.approvers import Signer

# -- names of tables ------------------------------------------------------------------------------------


def _suggest_nearest(value: Any, names: Iterable[str]) -> str:
    """A sentence with the most similar name, for the end of a message; empty where none is similar."""
    matches = get_close_matches(str(value), sorted(names), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]!r}?" if matches else ""


class NameChoice(click.Choice[str]):
    """One of a few names that are known here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, if it is one of them."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            nearest = _suggest_nearest(value, map(str, self.choices))
            if "," in str(value):
                nearest = " Name one at a time."
            raise click.BadParameter(f"{error.message}{nearest}", ctx, param) from None


# -- ages and times -------------------------------------------------------------------------------------

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Age(click.ParamType[timedelta]):
    """A duration: a number followed by s, m, h, d or w."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """Return the duration."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", str(value))
        if not match:
            self.fail(f"{value!r} is not an age; examples: 90s, 15m, 12h, 30d, 8w", param, ctx)
        try:
            return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        except OverflowError:
            self.fail(f"{value!r} is too long an age", param, ctx)


class Moment(click.ParamType[datetime]):
    """A point in time: a date, a date with a time, or an age before now. UTC if no time zone is given."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Return the point in time, with a time zone."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            if not re.fullmatch(r"[\d.]+[smhdw]", str(value)):
                self.fail(f"{value!r} is not a time; examples: 2026-11-01, 2026-11-01T12:30, 2h", param, ctx)
            return datetime.now(UTC) - Age().convert(value, param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object, as the value of an option."""

    name = "json"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, Any]:
        """Return the object.

        Raises:
            SpecError: it is none.
        """
        if isinstance(value, dict):
            return value
        fields, problem = parse_arguments(value)
        if fields is None:
            hint = "write a JSON object, quoted for the shell"
            raise SpecError(str(problem), path=param.opts[0], hint=hint)
        return fields


# -- owner and tags ------------------------------------------------------------------------------------

owner_option = click.option(
    "--owner", metavar="NAME", help="Whose conversation it is; recorded when it begins."
)
"""`--owner`: what `prune --owner` deletes."""

tag_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME=VALUE",
    help="Tag of the conversation, recorded when it begins; with lists: only those with it. Repeatable.",
)


def parse_tags(pairs: tuple[str, ...]) -> dict[str, str]:
    """The tags of `name=value` pairs.

    Raises:
        SpecError: a pair has no name or no `=`.
    """
    tags = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SpecError(
                f"--tag {pair!r} is not of the form name=value", hint="example: --tag ticket=4711"
            )
        tags[name] = value
    return tags


# -- variables ------------------------------------------------------------------------------------------


def parse_variables(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse `name=value` pairs: dots nest, `@FILE` reads a file, `@@` stands for a plain @.

    >>> parse_variables(("intent=weather", "who.name=Ada", "handle=@@ada"))
    {'intent': 'weather', 'who': {'name': 'Ada'}, 'handle': '@ada'}

    Raises:
        SpecError: a pair without `=`, a name with an empty part, a name that is both a value and a
            group, or a file that cannot be read.
    """
    variables: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        *parents, last = name.split(".")
        if not equals or not all((*parents, last)):
            raise SpecError(
                f"--var {pair!r} is not of the form name=value",
                hint="examples: --var intent=weather, --var user.name=Ada, --var notes=@FILE",
            )
        group = _find_group(variables, parents, pair)
        if isinstance(group.get(last), dict):
            raise SpecError(f"--var {pair!r}: {last!r} is already a group of variables")
        group[last] = _read_variable(value, name)
    return variables


def _find_group(variables: dict[str, Any], parents: list[str], pair: str) -> dict[str, Any]:
    group = variables
    for parent in parents:
        inner = group.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise SpecError(f"--var {pair!r}: {parent!r} already has a value")
        group = inner
    return group


def _read_variable(value: str, name: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text("utf-8-sig")
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SpecError(
        f"--var {name}: the file {value[1:]!r} {problem}",
        hint="a value that begins with @ names a file; write @@ for a plain @",
    )


# -- options --------------------------------------------------------------------------------------------

Command = TypeVar("Command", bound=Callable[..., Any])

_LOG_KEY = "toolchart.log"


def _resolve_log(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the log named after the command, else the one named before it, else the environment's."""
    if context.get_parameter_source("log") is ParameterSource.COMMANDLINE:
        context.meta[_LOG_KEY] = value
    log: str | None = context.meta.get(_LOG_KEY, value)
    return log


_BUILTIN_STORES = STORES.builtin_rows[::-1]
"""The stores of Toolchart, the usual ones first."""


def _describe_addresses(added: Iterable[str] = (), default: str = DEFAULT_LOG) -> str:
    """Return what may stand after `--log`, from the table of stores, and the log without it.

    Args:
        added: the addresses of stores of other packages.
    """
    own = [f"{row.address} ({row.summary})" for row in _BUILTIN_STORES if row.is_durable]
    return f"Log to use: {', '.join([*own, *added])}.  [default: {default}]"


class _LogOption(click.Option):
    """The option `--log`, whose help also names the stores of other packages, without loading them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        has_queue = any(parameter.name == "dsn" for parameter in ctx.command.params)
        default = "the database of --dsn" if has_queue else DEFAULT_LOG
        added = [f"{point.name}://... (from the package {point.package})" for point in STORES.list_added()]
        self.help = _describe_addresses(added, default)
        return super().get_help_record(ctx)


log_option = click.option(
    "--log",
    "log",
    metavar="LOG",
    envvar="TOOLCHART_LOG",
    show_envvar=True,
    callback=_resolve_log,
    cls=_LogOption,
    help=_describe_addresses(),
)
"""`--log`: accepted before or after the command; falls back to TOOLCHART_LOG."""

durability_option = click.option(
    "--durability",
    type=NameChoice(["full", "normal"]),
    help="What the log survives: a loss of power (full), or the end of the process only (normal). "
    "Default: that of the agent, else full.",
)
"""`--durability`: goes before the `durability` of the agent spec."""

limits_option = click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another value for a limit: turns=200. docs/serve.md names them all. Repeatable.",
)
"""`--limit`: a limit of a server (`toolchart.app.server.site.Limits`)."""

dsn_option = click.option(
    "--dsn",
    metavar="ADDRESS",
    envvar="TOOLCHART_DSN",
    show_envvar=True,
    required=True,
    help="PostgreSQL database with the queue: postgresql://USER@HOST/NAME.",
)
"""`--dsn`: the database of a durable host; falls back to TOOLCHART_DSN."""


def fleet_options(function: Command) -> Command:
    """`--dsn` and `--run-here` of commands that go on with a conversation."""
    function = click.option(
        "--run-here",
        is_flag=True,
        help="Go on with the turn on this machine, also where workers own the conversation.",
    )(function)
    return click.option(
        "--dsn",
        metavar="ADDRESS",
        envvar="TOOLCHART_DSN",
        show_envvar=True,
        help="PostgreSQL database with the queue of the workers. Default: that of the log.",
    )(function)


def signer_options(function: Command) -> Command:
    """Add `--key` and `--as` to a command, which gets them as `key_file` and `approver_name`."""
    for option in (
        click.option(
            "--as", "approver_name", metavar="NAME", help="Decide about calls as this approver of the spec."
        ),
        click.option(
            "--key",
            "key_file",
            type=click.Path(),
            metavar="FILE",
            help="Sign decisions with this private key; see `approve --new-key`. Needs --as.",
        ),
    ):
        function = option(function)
    return function


def read_signer(key_file: str | None, approver_name: str | None) -> Signer | None:
    """The signer of `--key` and `--as`, or None without a key.

    Raises:
        UsageError: there is a key and no name.
        SpecError: the key cannot be read.
    """
    if key_file is None:
        return None
    from toolchart.tools.approvers import Signer

    if not approver_name:
        raise click.UsageError("--key needs --as NAME: whose key it is.")
    return Signer.from_file(approver_name, key_file)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""`--json`: machine-readable output."""


_CONTINUING_COMMANDS = ("resume", "approve", "fork", "cancel")
"""Commands that go on with a conversation, and so need the operator's agent spec."""


def format_command(*words: str) -> str:
    """Return a command line to copy, with the log of the present command and, to go on, its agent.

    >>> format_command("show", "my chat")
    "toolchart show 'my chat'"
    """
    context: Any = click.get_current_context(silent=True)
    log = context.meta.get(_LOG_KEY) if context else None
    spec = context.params.get("spec") if context and words[0] in _CONTINUING_COMMANDS else None
    options = [*(["--spec", spec] if spec else []), *(["--log", log] if log else [])]
    return shlex.join(["toolchart", *words, *options])


# -- agents -------------------------------------------------------------------------------------------------

_PYTHON_NAME = re.compile(r"(?P<file>.+\.py)(?::(?P<name>.*))?", re.DOTALL)


def find_python_agent(text: str) -> Agent[Any, Any] | None:
    """The agent in a Python file that a text names (`FILE.py:NAME`); None where it names no Python file.

    Raises:
        SpecError: there is no such file, it cannot be imported, or it has no such agent.
    """
    match = _PYTHON_NAME.fullmatch(text)
    if match is None:
        return None
    from toolchart.app.cli.parameters.python_files import load_python_agent

    return load_python_agent(match["file"], match["name"])


def load_named_spec(text: str) -> AgentSpec:
    """The spec of the agent that a text names: one that ships, a file, or one in a Python file.

    Raises:
        SpecError: there is none, or it cannot be used.
    """
    from toolchart.specs.loader import load_spec

    agent = find_python_agent(text)
    return load_spec(text) if agent is None else agent.spec()


def list_engine_options(agent: AgentSpec | dict[str, Any] | str) -> dict[str, Any]:
    """What `Engine` takes to run an agent: its spec, and what of it is Python.

    Args:
        agent: a text that names it, as for `load_named_spec`, or a loaded spec.

    Raises:
        SpecError: there is none, it cannot be used, or its tools need objects that no command can give.
    """
    python_agent = find_python_agent(agent) if isinstance(agent, str) else None
    if python_agent is None:
        return {"spec": agent}
    python_agent.require_no_dependencies()
    return python_agent.list_engine_options()
