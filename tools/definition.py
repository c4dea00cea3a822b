"""The `Tool` value: its definition for the model, the function behind it, and how it may run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from toolchart.states.content import Value
from toolchart.states.messages import ToolDefinition
from toolchart.tools.services import Search

Runner = Callable[..., Any]
"""Called with the validated arguments as one mapping, and with a `CallContext` where the tool has
`needs_context`. Returns any value that can become JSON. May be sync or async."""

ExecutionMode = Literal["inline", "async", "thread", "process"]
"""Where the executor runs a tool: on the event loop (only for fast, bounded work: nothing else runs until it
returns), as an asyncio task, in a thread, or in a child process that can be killed."""

Risk = Literal["low", "medium", "high"]

NeedScope = Literal["turn", "conversation"]

Trust = Literal["trusted", "untrusted"]
"""Whether strangers may have written something: `untrusted` if so."""


class ToolFailure(Exception):
    """A tool refuses or fails; its text is written for the model (bad input, no result, ...)."""


class ToolRaised(ToolFailure):
    """The code of a tool raised another exception than `ToolFailure`; the text names it."""


class ToolPending(Exception):
    """The outcome of a call comes later, from outside: the turn rests until somebody resumes it.

    The same call is then run again, so such a tool is `idempotent`, and this time it returns.
    """


class ToolTimeout(Exception):
    """A tool did not finish within its `timeout_s`."""


class CallStatus(Value, frozen=True, kw_only=True):
    """What became of a call that was interrupted, as a tool's `status` says.

    >>> CallStatus(state="done", result={"receipt": 7}).state
    'done'
    """

    state: Literal["done", "not_begun", "unknown"]
    """`done`: it took effect, and this is its result. `not_begun`: it took no effect, so it is run now, under
    the same idempotency key. `unknown`: nobody knows, and it stays interrupted."""
    result: Any = None
    """Where it is done: what the tool would have returned."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, ready to run."""

    definition: ToolDefinition
    run: Runner
    execution_mode: ExecutionMode = "inline"
    kind: str = "builtin"
    """`mock`, `builtin`, `internal`, `python`, `http`, `mcp` or `agent`."""
    timeout_s: float = 30.0
    """Seconds for one run. They do not hold for an inline tool, which cannot be interrupted and so must be
    quick for every input."""
    idempotent: bool = False
    """Whether a second run does no harm. Only such a tool runs again when a turn is resumed."""
    status: Callable[..., Any] | None = None
    """Says what became of an interrupted call: called with its `ToolContext`, it returns a `CallStatus`. Sync
    or async, within `timeout_s`. None: such a call stays interrupted."""
    requires_approval: bool = False
    risk: Risk = "low"
    needs_context: bool = False
    """Whether `run` takes the `CallContext` as a second argument."""
    parallel: bool = True
    """Whether it may run while other calls of the conversation run."""
    needs: tuple[str, ...] = ()
    """Tools that must have succeeded earlier; without them a call is denied."""
    needs_in: NeedScope = "turn"
    """Where they must have succeeded: in this turn, or anywhere in the conversation."""
    not_after: tuple[str, ...] = ()
    """Tools after whose success in the conversation a call is denied."""
    max_calls: int | None = None
    """Calls of a turn; further ones are denied. None: no limit of its own."""
    repeatable: bool = False
    """Whether repeating the same call is normal, as in polling."""
    cacheable: bool = False
    """Whether a call may be answered from an earlier run with the same arguments."""
    cache_ttl_s: float | None = None
    """Seconds for which a cached result is valid; None: until the end of the turn."""
    max_result_size: int | None = None
    """Characters of its result that the model sees; None: the spec's `output` limits."""
    listing: bool = False
    """Whether its results are listings, which have a larger output limit."""
    reads_results: bool = False
    """Whether it gives more of earlier results that were cut for the model."""
    search: Search | None = None
    """The search behind the tool; `{{rag_context}}` in a prompt uses it too."""
    function: Callable[..., Any] | None = None
    """The plain function behind `run`; a child process imports it by its name."""
    memory_mb: int = 512
    """Memory of a child process and everything that it starts together, in MiB."""
    environment: tuple[str, ...] = ()
    """Variables of the environment that a child process gets, beyond the plain ones such as PATH."""
    alias: str | None = None
    """The name in the spec or on the server, where providers would refuse that name."""
    rewrites: tuple[str, ...] = ()
    """Changes that an importer made to the schema, described for people."""
    action: Mapping[str, Any] | None = None
    """What running it does, as JSON data without secrets, part by part: for a request its method, its
    address, where arguments go; for a server its command. Pins and approvals hold it
    (`whole_definition.py`). None for a function of the program, whose reference says it; a source of tools
    must say it."""
    agent: Mapping[str, Any] | None = None
    """Which agent a call runs: its `handler`, and its `chart` where it has one of its own."""
    pin_problem: str | None = None
    """How it differs from its pin; then a person is asked about each call, whatever a rule says."""

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.definition.name
