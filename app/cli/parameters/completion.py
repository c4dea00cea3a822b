"""Shell completion: files, agents, charts, handlers, models and ids of conversations.

A parameter is completed by its name: `spec` alike in every command. Whatever goes wrong, there is no
suggestion and no message.

Click's script for bash forgets all suggestions when files may stand there too, so it has one of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from toolchart.app.cli.parameters.options import load_named_spec
from toolchart.engine.log.stores import open_store_for_reading
from toolchart.specs.charts import list_shipped_charts

MAX_SUGGESTIONS = 200

Completer = Callable[[click.Context], Iterable[str]]


def list_agent_names(context: click.Context) -> Iterable[str]:
    """The agents that ship."""
    from toolchart.specs.loader import list_shipped_agents

    return list_shipped_agents()


def list_chart_names(context: click.Context) -> Iterable[str]:
    """The charts and the agents that ship."""
    return (*list_shipped_charts(), *list_agent_names(context))


def list_handler_names(context: click.Context) -> Iterable[str]:
    """The handlers of the agent that the line names."""
    return [handler.name for handler in _load_agent(context).responses if handler.name]


def list_host_names(context: click.Context) -> Iterable[str]:
    """The `llms` entries of the agent that the line names."""
    return list(_load_agent(context).llms)


def list_model_names(context: click.Context) -> Iterable[str]:
    """The models that the agent on the line names itself; no host is asked."""
    spec = _load_agent(context)
    models = [*(handler.model for handler in spec.responses), *(host.model for host in spec.llms.values())]
    return list(dict.fromkeys(name for name in models if name))


def list_conversation_ids(context: click.Context) -> Iterable[str]:
    """The conversations of the log, the newest first."""
    store = open_store_for_reading(context.params.get("log"))
    try:
        return list(store.list_conversations())[::-1]
    finally:
        store.close()


def _load_agent(context: click.Context) -> Any:
    # Before an option without its value click has not yet told which word is the spec.
    return load_named_spec(str(context.params.get("spec") or context.args[0]))


_COMPLETERS: dict[str, tuple[Completer, bool]] = {
    "spec": (list_agent_names, True),
    "name": (list_chart_names, True),
    "origin": (list_agent_names, False),
    "conversation": (list_conversation_ids, False),
    "left": (list_conversation_ids, False),
    "right": (list_conversation_ids, False),
    "handler": (list_handler_names, False),
    "llm": (list_host_names, False),
    "model": (list_model_names, False),
    "inputs": (lambda context: (), True),
    "history": (lambda context: (), True),
    "output": (lambda context: (), True),
    "attachments": (lambda context: (), True),
    "log": (lambda context: (), True),
}
"""By the name of a parameter: what completes it, and whether files do too."""


class _BashScript(BashComplete):
    """The script for bash: names and files are suggested together.

    `-o default` lets bash look for files itself where nothing is suggested: it knows `~` and `$HOME`.
    """

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value file

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete $1)

    while IFS=',' read -r type value; do
        if [[ $type == 'dir' ]]; then
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            compopt -o default -o filenames
            while IFS= read -r file; do
                COMPREPLY+=("$file")
            done < <(compgen -f -- "$value")
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
        fi
    done <<< "$response"

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


def use_own_scripts() -> None:
    """Let click print the scripts of this module when a shell asks for one."""
    add_completion_class(_BashScript)


def add_completion(command: click.Command) -> click.Command:
    """Let the parameters of a command complete; those that complete themselves keep their way."""
    for parameter in command.params:
        row = _COMPLETERS.get(parameter.name or "")
        is_new_file = command.name == "init" and parameter.name == "name"
        if row is not None and not is_new_file:
            setattr(parameter, "shell_complete", partial(_complete, *row))  # noqa: B010  a method of click
    return command


def _complete(
    complete: Completer, completes_files: bool, context: click.Context, incomplete: str
) -> list[CompletionItem]:
    """The suggestions for a word; the shell adds the names of files where `file` is among them."""
    try:
        names = [name for name in complete(context) if name.startswith(incomplete)]
    except Exception:  # a wrong spec, no log: then there is nothing to suggest
        names = []
    items = [CompletionItem(name) for name in names[:MAX_SUGGESTIONS]]
    # First: click's script for bash, which somebody may have saved, empties the list at `file`.
    return [CompletionItem(incomplete, type="file"), *items] if completes_files else items
