"""The machine moving, on a terminal: states, calls and results as they happen."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from toolchart.app.cli.common import short
from toolchart.engine.step import Step
from toolchart.states.effects import CallModel
from toolchart.states.events import AnyEvent, Failed, Replied, ToolFinished, Waited
from toolchart.states.jsonvalue import canonical_text
from toolchart.states.messages import arguments_text


class Live:
    """An observer that prints each step to the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._state = ""

    def __call__(self, event: AnyEvent, step: Step) -> None:
        """Show what came in, then where the machine went."""
        match event:
            case Replied():
                self._replied(event)
            case ToolFinished():
                self._finished(event)
            case Failed():
                self._line(
                    f"[red]failed[/red] {escape(event.kind)}: {escape(short(event.message, 100))}"
                )
            case Waited():
                self._line(f"[dim]waited {event.seconds:g} s[/dim]")
            case _:
                pass
        self._moved(step)

    def _replied(self, event: Replied) -> None:
        reply = event.reply
        if reply.tool_calls and reply.content:
            self._line(f"[italic]{escape(short(reply.content, 100))}[/italic]")
        for call in reply.tool_calls:
            self._line(
                f"[cyan]{escape(call.name)}[/cyan] {escape(short(arguments_text(call), 90))}"
            )

    def _finished(self, event: ToolFinished) -> None:
        result = event.result
        name, spent = result.get("tool_name", ""), result.get("execution_time_ms", 0)
        if result.get("success"):
            shown = short(canonical_text(result.get("result")), 90)
            self._line(
                f"[green]{escape(str(name))}[/green] = {escape(shown)} [dim]{spent:g} ms[/dim]"
            )
        else:
            shown = short(str(result.get("error")), 110)
            self._line(f"[red]{escape(str(name))} {event.outcome}[/red]: {escape(shown)}")

    def _moved(self, step: Step) -> None:
        if step.target == self._state and not step.effects:
            return
        self._state = step.target
        asked = next((e for e in step.effects if isinstance(e, CallModel)), None)
        model = f" [dim]{escape(asked.request.model)}[/dim]" if asked else ""
        if step.target:
            self._console.print(f"[bold]● {escape(step.target)}[/bold]{model}")

    def _line(self, text: str) -> None:
        self._console.print(f"  [dim]│[/dim] {text}")
