"""The question to a person about a tool call: what running it does, why they are asked, what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.states.visible_text import make_visible_line
from toolchart.tools.whole_definition import Definition, describe_changes, describe_run


class CallQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked about a call, beside its tool and its arguments."""

    definition: dict[str, str]
    """The whole definition of the tool: what an approval lets run."""
    reason: str = ""
    """Why they are asked, where a pin or a rule says it."""
    asked: Definition | None = None
    """The definition as people were asked about it first, where that was before."""

    def list_lines(self, arguments: Mapping[str, Any] | None) -> list[str]:
        """What is shown beside the call, line by line, with deceptive characters visible.

        Args:
            arguments: those that the call would run with.
        """
        run = describe_run(self.definition, arguments)
        changes = describe_changes(self.asked, self.definition) if self.asked is not None else ""
        lines = [f"it runs: {run}" if run else "", make_visible_line(self.reason)]
        lines += [f"the tool has changed since people were asked: {changes}"] if changes else []
        return [line for line in lines if line]
