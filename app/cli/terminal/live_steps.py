"""The live display of a turn on stderr: states, tool calls with arguments, results and failures."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

from toolchart.app.cli.terminal.text import escape_controls, shorten
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.core.step import Step
from toolchart.states.effects import CallModel
from toolchart.states.events import Elapsed, Event, Failed, Replied, Reviewed, ToolFinished
from toolchart.states.messages import Request, encode_arguments

_MARGIN = 6
"""Columns of a line that are not available for text."""


class StepDisplay:
    """An observer that prints each step.

    Args:
        is_verbose: whether to print calls and results in full instead of cut to the terminal's width.
        margin: begins every line.
    """

    def __init__(self, console: Console | None = None, *, is_verbose: bool = False, margin: str = "") -> None:
        self._margin = margin
        self._console = console or Console(stderr=True, highlight=False)
        self._is_verbose = is_verbose
        self._state = ""

    def __call__(self, event: Event, step: Step) -> None:
        """Print the event, then the state that the machine entered."""
        self.show(event, step)

    def show(self, event: Event, step: Step, *, is_text_shown: bool = False) -> None:
        """Print the event, then the state that the machine entered.

        Args:
            is_text_shown: whether the person has read the text of the reply already, as it was streamed.
        """
        match event:
            case Replied():
                self._show_reply(event, is_text_shown=is_text_shown)
            case Reviewed():
                self._show_review(event)
            case ToolFinished():
                self._show_tool_result(event)
            case Failed():
                message = self._fit_line(f"{event.kind}: {event.message}", len("failed "))
                self._print_detail(f"[red]failed[/red] {message}")
            case Elapsed():
                self._print_detail("[dim]the wait is over[/dim]")
            case _:
                pass
        self._show_transition(step)

    def nest(self, conversation: str) -> StepDisplay:
        """The display of a child conversation: its steps are indented."""
        self._print_detail(f"[magenta]{_escape_text(conversation)}[/magenta]")
        return StepDisplay(self._console, is_verbose=self._is_verbose, margin=f"{self._margin}    ")

    def _show_reply(self, event: Replied, *, is_text_shown: bool) -> None:
        reply = event.reply
        if reply.tool_calls and reply.content and not is_text_shown:
            self._print_detail(f"[italic]{self._fit_line(reply.content, 0)}[/italic]")
        for call in reply.tool_calls:
            arguments = self._fit_line(encode_arguments(call), len(call.name))
            self._print_detail(f"[cyan]{_escape_text(call.name)}[/cyan] {arguments}")

    def _show_review(self, event: Reviewed) -> None:
        for verdict in event.verdicts:
            if verdict.ruling == "needs_approval":
                self._print_detail(f"[yellow]needs approval[/yellow] {_escape_text(verdict.call_id)}")

    def _show_tool_result(self, event: ToolFinished) -> None:
        result = event.result
        name, duration = (str(result.get("tool_name", "")), f"{result.get('execution_time_ms', 0):g} ms")
        if result.get("success"):
            value = self._fit_line(encode_canonical_text(result.get("result")), len(name) + len(duration) + 4)
            self._print_detail(f"[green]{_escape_text(name)}[/green] = {value} [dim]{duration}[/dim]")
        else:
            run_to_exit_code = f"{name} {event.outcome}"
            value = self._fit_line(str(result.get("error")), len(run_to_exit_code) + 2)
            self._print_detail(f"[red]{_escape_text(run_to_exit_code)}[/red]: {value}")

    def _show_transition(self, step: Step) -> None:
        if not step.target or (step.target == self._state and not step.effects):
            return
        self._state = step.target
        request = next((e.request for e in step.effects if isinstance(e, CallModel)), None)
        details = f" [dim]{_escape_text(self._describe_request(request))}[/dim]" if request else ""
        self._print_markup(f"[bold]● {_escape_text(step.target)}[/bold]{details}")

    def _describe_request(self, request: Request) -> str:
        """Return the model of a request; if verbose also its iteration, messages, options and tools."""
        if not self._is_verbose:
            return request.model
        tools = ", ".join(tool.name for tool in request.tools) or "none"
        options = "".join(f", {key} {value}" for key, value in request.options.items())
        count = len(request.messages)
        return f"{request.model}, iteration {request.iteration}, {count} messages{options}, tools: {tools}"

    def _fit_line(self, text: str, used_columns: int) -> str:
        """Return the text as one line that fits beside `used_columns`; the whole text if verbose."""
        limit = sys.maxsize if self._is_verbose else max(20, self._console.width - used_columns - _MARGIN)
        return escape(shorten(text, limit))

    def _print_detail(self, text: str) -> None:
        self._print_markup(f"  [dim]│[/dim] {text}")

    def _print_markup(self, text: str) -> None:
        self._console.print(self._margin + text, soft_wrap=True)


def _escape_text(text: str) -> str:
    return escape(escape_controls(text))
