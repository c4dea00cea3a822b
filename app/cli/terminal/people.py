"""The person at the terminal, if there is one: decides about tool calls and answers questions of a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolchart.app.cli.terminal.line_reading import can_ask_user

if TYPE_CHECKING:
    from toolchart.app.cli.terminal.approval_prompt import TerminalApprover
    from toolchart.app.cli.terminal.forms import FormPrompt


def find_people() -> tuple[TerminalApprover | None, FormPrompt | None]:
    """The approver and the asker of an engine; None and None where nobody can be asked."""
    if not can_ask_user():
        return None, None
    from toolchart.app.cli.terminal.approval_prompt import TerminalApprover
    from toolchart.app.cli.terminal.forms import FormPrompt

    return TerminalApprover(), FormPrompt()
