"""The table of commands: name, one-sentence help, and where the click command is.

To add a command, write `app/cli/commands/<name>.py` with a click command called `command`, and add one row.
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
    "run": "Run one turn of an agent.",
    "chat": "Chat with an agent.",
    "mcp": "Serve an agent to one MCP client, over standard input and output.",
    "serve": "Serve an agent over HTTP, with pages for a browser.",
    "batch": "Run an agent over many inputs, each once.",
    "show": "Show a conversation, step by step.",
    "tail": "Print the newest records of a conversation, and follow it.",
    "runs": "List the conversations of a log.",
    "stats": "Sum up turns, tokens, cost and tool calls.",
    "verify": "Check a log, or an evidence file.",
    "seal": "Seal a log, so that removed records show later.",
    "replay": "Recompute a conversation from its log and compare, offline.",
    "check": "Prove properties of a chart before it runs.",
    "draw": "Draw a chart, or the path of a conversation through it.",
    "coverage": "Measure which states and transitions of a chart were visited.",
    "migrate": "Move an open conversation to a changed chart.",
    "resume": "Continue an unfinished turn.",
    "recover": "Go on with turns that no worker goes on with.",
    "cancel": "Stop an open turn.",
    "diff": "Compare two conversations.",
    "fork": "Branch from a record of a conversation, with changes.",
    "rerun": "Run recorded conversations again under changes, and compare.",
    "approve": "Approve or deny a tool call that waits for a decision.",
    "keys": "Make keys that sign decisions or encrypt logs.",
    "erase": "Erase what somebody said inside a kept conversation.",
    "prune": "Delete old conversations.",
    "import": "Import conversations from message lists into a log.",
    "convert": "Convert conversations of an older format, so that they can go on.",
    "export": "Print a conversation, or a chart, in another format.",
    "agents": "List the agents that ship, and those in this folder.",
    "charts": "List the charts that ship, and those in this folder.",
    "tools": "List the tools of an agent, or run one of them.",
    "models": "List the models of a host, or test one.",
    "init": "Write an agent, copied from one that ships.",
    "doctor": "Check API keys, hosts, models, packages and the log.",
    "schema": "Print a JSON Schema.",
}


def _list_builtin_commands() -> list[CommandDescriptor]:
    modules = {"import": "import_"}  # a module cannot have the name of a keyword
    return [
        CommandDescriptor(
            name=name,
            summary=summary,
            command=f"toolchart.app.cli.commands.{modules.get(name, name)}:command",
        )
        for name, summary in _BUILTIN.items()
    ]


COMMANDS = Registry("command", "toolchart.commands", CommandDescriptor, _list_builtin_commands)
"""Every command, in the order of `toolchart --help`."""
