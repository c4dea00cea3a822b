"""The table of commands: name, one-sentence help, and where the click command is.

To add a command, write `<name>.py` in a folder of `app/cli/commands`, with a click command called `command`,
and add one row.
Another package adds a row by an entry point of the group `toolchart.commands`; see `docs/extending.md`.
"""

from __future__ import annotations

from toolchart.states.descriptors import Descriptor, Registry, find_reference_gaps, find_text_gaps


class CommandDescriptor(Descriptor, frozen=True, kw_only=True):
    """One command of `toolchart`."""

    summary: str = ""
    """One sentence for `toolchart --help`."""
    command: str = ""
    """Reference to the click command. It is imported when the command is used."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        return [
            *super().find_gaps(),
            *find_text_gaps(summary=self.summary),
            *find_reference_gaps("command", self.command, "the click command"),
        ]

    def list_references(self) -> dict[str, str]:
        """The click command."""
        return {"command": self.command}


_BUILTIN = {
    "run": ("turns", "Run one turn of an agent."),
    "chat": ("turns", "Chat with an agent."),
    "mcp": ("turns", "Serve an agent to one MCP client, over standard input and output."),
    "serve": ("turns", "Serve an agent over HTTP, with pages for a browser."),
    "worker": ("fleet", "Take turns from a queue in PostgreSQL, and run them."),
    "submit": ("fleet", "Have a turn run by a worker."),
    "batch": ("turns", "Run an agent over many inputs, each once."),
    "show": ("reading", "Show a conversation, step by step."),
    "tail": ("reading", "Print the newest records of a conversation, and follow it."),
    "runs": ("reading", "List the conversations of a log."),
    "stats": ("reading", "Sum up turns, tokens, cost and tool calls."),
    "verify": ("keeping", "Check a log, and seal it."),
    "replay": ("reading", "Recompute a conversation from its log and compare, offline."),
    "check": ("charts", "Prove properties of a chart before it runs."),
    "draw": ("charts", "Draw a chart, or the path of a conversation through it."),
    "coverage": ("charts", "Measure which states and transitions of a chart were visited."),
    "migrate": ("charts", "Move an open conversation to a changed chart."),
    "resume": ("turns", "Continue an unfinished turn."),
    "recover": ("turns", "Go on with turns that no worker goes on with."),
    "cancel": ("turns", "Stop an open turn."),
    "diff": ("reading", "Compare two conversations."),
    "fork": ("turns", "Branch from a record of a conversation, with changes."),
    "rerun": ("turns", "Run recorded conversations again under changes, and compare."),
    "approve": ("turns", "Approve or deny a tool call that waits for a decision."),
    "keys": ("keeping", "Make keys that sign decisions or encrypt logs."),
    "erase": ("keeping", "Erase what somebody said inside a kept conversation."),
    "prune": ("keeping", "Delete old conversations."),
    "import": ("keeping", "Import conversations from message lists into a log."),
    "convert": ("keeping", "Copy a log into another store, or encrypt it."),
    "export": ("keeping", "Print a conversation in another format."),
    "agents": ("agents", "List the agents that ship, and those in this folder."),
    "charts": ("charts", "List the charts that ship, and those in this folder."),
    "tools": ("agents", "List the tools of an agent, or run one of them."),
    "emulate": ("agents", "Serve a model host that refuses like the real one, for tests."),
    "models": ("agents", "List the models of a host, or test one."),
    "init": ("agents", "Write an agent, copied from one that ships."),
    "doctor": ("agents", "Check API keys, hosts, models, packages and the log."),
    "schema": ("charts", "Print a JSON Schema."),
}
"""By name: the folder of its module in `app/cli/commands`, and the sentence."""


def _list_builtin_commands() -> list[CommandDescriptor]:
    modules = {"import": "import_"}  # a module cannot have the name of a keyword
    return [
        CommandDescriptor(
            name=name,
            summary=summary,
            command=f"toolchart.app.cli.commands.{folder}.{modules.get(name, name)}:command",
        )
        for name, (folder, summary) in _BUILTIN.items()
    ]


COMMANDS = Registry("command", "toolchart.commands", CommandDescriptor, _list_builtin_commands)
"""Every command, in the order of `toolchart --help`."""
