"""The machine moving, as it happens: states, calls with their arguments, results, failures."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

from toolchart.app.cli.terminal.text import printable, short
from toolchart.states.canonical_json import canonical_text
from toolchart.states.core.step import Step
from toolchart.states.effects import CallModel
from toolchart.states.events import AnyEvent, Failed, Replied, Reviewed, ToolFinished, Waited
from toolchart.states.messages import Request, arguments_text

_MARGIN = 6
"""Columns that a line needs beside its words."""


class Live:
    """An observer that prints each step.

    Args:
        whole: whether calls and results are shown whole instead of cut to the terminal's width.
    """

    def __init__(self, console: Console | None = None, *, whole: bool = False) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._whole = whole
        self._state = ""

    def __call__(self, event: AnyEvent, step: Step) -> None:
        """Show what came in, then where the machine went."""
        match event:
            case Replied():
                self._replied(event)
            case Reviewed():
                self._reviewed(event)
            case ToolFinished():
                self._finished(event)
            case Failed():
                said = self._cut(f"{event.kind}: {event.message}", len("failed "))
                self._line(f"[red]failed[/red] {said}")
            case Waited():
                self._line(f"[dim]waited {event.seconds:.2g} s[/dim]")
            case _:
                pass
        self._moved(step)

    def _replied(self, event: Replied) -> None:
        reply = event.reply
        if reply.tool_calls and reply.content:
            self._line(f"[italic]{self._cut(reply.content, 0)}[/italic]")
        for call in reply.tool_calls:
            given = self._cut(arguments_text(call), len(call.name))
            self._line(f"[cyan]{_safe(call.name)}[/cyan] {given}")

    def _reviewed(self, event: Reviewed) -> None:
        for verdict in event.verdicts:
            if verdict.ruling == "needs_approval":
                self._line(f"[yellow]needs approval[/yellow] {_safe(verdict.call_id)}")

    def _finished(self, event: ToolFinished) -> None:
        result = event.result
        name, spent = str(result.get("tool_name", "")), f"{result.get('execution_time_ms', 0):g} ms"
        if result.get("success"):
            shown = self._cut(canonical_text(result.get("result")), len(name) + len(spent) + 4)
            self._line(f"[green]{_safe(name)}[/green] = {shown} [dim]{spent}[/dim]")
        else:
            ended = f"{name} {event.outcome}"
            shown = self._cut(str(result.get("error")), len(ended) + 2)
            self._line(f"[red]{_safe(ended)}[/red]: {shown}")

    def _moved(self, step: Step) -> None:
        if not step.target or (step.target == self._state and not step.effects):
            return
        self._state = step.target
        asked = next((e.request for e in step.effects if isinstance(e, CallModel)), None)
        beside = f" [dim]{_safe(self._asked(asked))}[/dim]" if asked else ""
        self._print(f"[bold]● {_safe(step.target)}[/bold]{beside}")

    def _asked(self, request: Request) -> str:
        """The model; and how it is asked, where all is shown."""
        if not self._whole:
            return request.model
        tools = ", ".join(tool.name for tool in request.tools) or "none"
        options = "".join(f", {key} {value}" for key, value in request.options.items())
        count = len(request.messages)
        return f"{request.model}, iteration {request.iteration}, {count} messages{options}, tools: {tools}"

    def _cut(self, text: str, taken: int) -> str:
        """One line that fits beside `taken` columns, unless all is shown."""
        most = sys.maxsize if self._whole else max(20, self._console.width - taken - _MARGIN)
        return escape(short(text, most))

    def _line(self, text: str) -> None:
        self._print(f"  [dim]│[/dim] {text}")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _safe(text: str) -> str:
    return escape(printable(text))
