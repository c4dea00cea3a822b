"""Exchange with other programs: the table of export formats, and the import of messages.

To add an export format, write its function in a module of this package and add a row to the table. Another
package adds a row by an entry point of the group `toolchart.export_formats`.
"""

from __future__ import annotations

from toolchart.states.descriptors import Descriptor, Registry, find_reference_gaps, find_text_gaps


class ExportFormat(Descriptor, frozen=True, kw_only=True):
    """One format of `toolchart export`."""

    summary: str = ""
    """What it prints, in a few words."""
    export: str = ""
    """Reference to a function `(store, conversation, *, content)` that returns a text, or a value that
    becomes JSON. `content` is whether messages and results are included, where that is a choice."""
    ending: str = "json"
    """The ending of the name of a file in this format."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        return [
            *super().find_gaps(),
            *find_text_gaps(summary=self.summary),
            *find_reference_gaps("export", self.export, "the function that exports"),
        ]

    def list_references(self) -> dict[str, str]:
        """The function that exports."""
        return {"export": self.export}


def _list_builtin_formats() -> tuple[ExportFormat, ...]:
    module = "toolchart.engine.exchange.exports"
    return (
        ExportFormat(name="openai", summary="a message list", export=f"{module}:export_openai"),
        ExportFormat(
            name="calls",
            summary="a message list with a call and its result in one message",
            export=f"{module}:export_call_messages",
        ),
        ExportFormat(name="jsonl", summary="the records", export=f"{module}:export_records", ending="jsonl"),
        ExportFormat(name="otel", summary="GenAI spans (OTLP JSON)", export=f"{module}:export_otel"),
        ExportFormat(name="xes", summary="process mining", export=f"{module}:export_process", ending="xes"),
    )


EXPORT_FORMATS = Registry("export format", "toolchart.export_formats", ExportFormat, _list_builtin_formats)
"""Every format of `toolchart export`, in the order of its help."""
