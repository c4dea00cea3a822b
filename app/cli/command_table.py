"""The table of commands by group: name, one-sentence help, and where the click command is.

To add a command, write `<name>.py` in a folder of `app/cli/commands`, with a click command called `command`,
and add one row.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandRow(NamedTuple):
    """One command of `toolchart`."""

    folder: str
    """The folder of its module in `app/cli/commands`."""
    summary: str
    """One sentence for `toolchart --help`."""


COMMAND_GROUPS = {
    "Talk": {
        "run": CommandRow("turns", "Run one turn of an agent."),
        "chat": CommandRow("turns", "Chat with an agent."),
        "batch": CommandRow("turns", "Run an agent over many inputs, each once."),
        "fork": CommandRow("turns", "Branch from a record of a conversation, with changes."),
    },
    "Look": {
        "runs": CommandRow("reading", "List the conversations of a log."),
        "show": CommandRow("reading", "Show a conversation, step by step."),
        "diff": CommandRow("reading", "Compare two conversations, or two charts."),
        "stats": CommandRow("reading", "Sum up turns, tokens, cost and tool calls."),
        "draw": CommandRow("charts", "Draw a chart, or the path of a conversation through it."),
    },
    "Prove": {
        "check": CommandRow("charts", "Prove properties of a chart before it runs."),
        "verify": CommandRow("keeping", "Check a log, and seal it."),
        "replay": CommandRow("reading", "Recompute a conversation from its log and compare, offline."),
        "rerun": CommandRow("turns", "Run recorded conversations again under changes, and compare."),
    },
    "Decide": {
        "approve": CommandRow("turns", "Approve or deny a tool call that waits for a decision."),
        "resume": CommandRow("turns", "Continue an unfinished turn."),
        "cancel": CommandRow("turns", "Stop an open turn."),
        "migrate": CommandRow("charts", "Move an open conversation to a changed chart."),
    },
    "Keep": {
        "export": CommandRow("keeping", "Print a conversation in another format."),
        "share": CommandRow("keeping", "Write a run as one page that opens without a server."),
        "import": CommandRow("keeping", "Import conversations into a log."),
        "prune": CommandRow("keeping", "Delete old conversations."),
    },
    "Build": {
        "init": CommandRow("agents", "Write an agent, copied from one that ships."),
        "mine": CommandRow("watching", "Propose an agent from recorded conversations."),
        "tools": CommandRow("agents", "List the tools of an agent, or run one of them."),
        "models": CommandRow("agents", "List the models of a host, or test one."),
        "schema": CommandRow("charts", "Print a JSON Schema."),
        "emulate": CommandRow("agents", "Serve a model host that refuses like the real one, for tests."),
    },
    "Operate": {
        "serve": CommandRow("turns", "Serve an agent over HTTP, with pages for a browser."),
        "watch": CommandRow("watching", "Run a program of anybody, and see its exchanges with model hosts."),
        "mcp": CommandRow("turns", "Serve an agent to one MCP client, over standard input and output."),
        "worker": CommandRow("fleet", "Take turns from a queue in PostgreSQL, and run them."),
        "database": CommandRow("fleet", "Make and change the tables of a PostgreSQL database."),
        "submit": CommandRow("fleet", "Have a turn run by a worker."),
        "recover": CommandRow("turns", "Go on with turns that no worker goes on with."),
        "doctor": CommandRow("agents", "Check API keys, hosts, models, packages and the log."),
    },
}
"""The commands by the groups of `toolchart --help`, and by their names."""

COMMANDS = {name: row for group in COMMAND_GROUPS.values() for name, row in group.items()}
"""Every command by its name."""


def find_module(name: str) -> str:
    """The module of a command; that of `import` cannot have the name of a keyword."""
    return f"toolchart.app.cli.commands.{COMMANDS[name].folder}.{'import_' if name == 'import' else name}"
