"""How much is read of what comes from outside: the one table of limits, which an operator can change.

`TOOLCHART_LIMITS="reply_bytes=134217728,documents=50000"` gives limits other values, for this process and
those that it starts. A number of the core is none of them (`call_arguments.py`, a chart's size, the depth of
JSON): a conversation is replayed by the same rules everywhere.
"""

from __future__ import annotations

import os

import msgspec

from toolchart.states.errors import SpecError, suggest_name

VARIABLE = "TOOLCHART_LIMITS"
MIB = 2**20


class ReadingLimits(msgspec.Struct, kw_only=True):
    """What is read at most of answers, results, files and logs."""

    # -- answers of model hosts
    reply_bytes: int = 64 * MIB
    """Bytes of a whole answer of a model host, as sent and decompressed; the largest known ones hold pictures
    (30 MiB)."""
    reply_values: int = 1_000_000
    """JSON values of a whole answer; an object counts as three. With log probabilities of 20 candidates for
    each token that is some 5,000 tokens."""
    stream_bytes: int = 128 * MIB
    """Bytes of a streamed answer, as sent and decompressed: 1,000 for each token of the longest replies."""
    stream_values: int = 2_800_000
    """JSON values of all pieces of a streamed answer, counted after its first `reply_values` bytes: 22, as in
    the largest known piece of one token, for each token of the longest replies (128,000)."""
    stream_pieces: int = 250_000
    """Pieces of a streamed answer, as a reader is shown them: two for each token of the longest replies."""
    stream_lines: int = 1_000_000
    """Lines of a streamed answer: with each piece may come its event, its id and an empty line."""
    line_bytes: int = 32 * MIB
    """Bytes of one line of a streamed answer, or of a file of results; the longest known ones hold a
    picture."""
    error_bytes: int = MIB
    """Bytes that are read of an answer with an error status; its beginning decides, and the rest is left."""
    batch_bytes: int = 4 * 2**30
    """Bytes of a file of results of a batch, which is read line by line."""

    # -- tools
    tool_values: int = 1_000_000
    """JSON values of an answer to an HTTP tool, of a retrieval service or of an MCP server."""
    service_bytes: int = 16 * MIB
    """Bytes of an answer of a retrieval service."""
    mcp_bytes: int = 64 * MIB
    """Bytes of one message of an MCP server."""
    mcp_parts: int = 1_000
    """Parts of the result of an MCP tool."""
    mcp_tools: int = 500
    """Tools of an MCP server; the others are left out, and a warning says so."""
    mcp_pages: int = 100
    """Pages of an MCP server's list of tools."""
    result_characters: int = 16_000_000
    """Characters of a result of any tool."""
    result_part_bytes: int = 20_000_000
    """Bytes of the pictures, sounds and files of a result, or of the attachments of a message, together."""
    process_bytes: int = 16_000_000
    """Bytes of the answer of a tool that runs in a process of its own."""
    operations: int = 500
    """Operations of an OpenAPI document; the others are left out, and a warning says so."""
    openapi_bytes: int = 10_000_000
    """Bytes of an OpenAPI document."""
    openapi_entries: int = 500_000
    """Keys and items of such a document in YAML; of one in JSON `file_values` counts."""
    schema_nodes: int = 10_000
    """Parts of a schema of a foreign tool, references expanded."""

    # -- files
    file_bytes: int = 512 * MIB
    """Bytes of a file that a person names: a spec, an import, a list of messages or cases."""
    file_values: int = 2_000_000
    """JSON values of such a file: some 250,000 messages."""
    spec_characters: int = 5_000_000
    """Characters of an agent spec."""
    spec_entries: int = 200_000
    """Keys and items of an agent spec."""
    documents: int = 20_000
    """Files of a folder of documents."""
    document_bytes: int = 20_000_000
    """Bytes of one document; four times as many of its text."""
    record_bytes: int = 256 * MIB
    """Bytes of one record in a file of records, written or read."""
    record_values: int = 4_000_000
    """JSON values of such a record: all messages of an imported file may stand in one."""


def parse_limits(text: str) -> ReadingLimits:
    """The limits with changes, written `NAME=NUMBER` and joined by commas.

    Raises:
        SpecError: there is no such limit, it is named twice, or its value is no whole number above 0.
    """
    limits, named = ReadingLimits(), set[str]()
    for word in filter(None, map(str.strip, text.split(","))):
        name, _, digits = (part.strip() for part in word.partition("="))
        if name not in ReadingLimits.__struct_fields__:
            hint = suggest_name(name, ReadingLimits.__struct_fields__)
            raise SpecError(f"{VARIABLE}: there is no limit {name!r}", hint=hint)
        if name in named:
            raise SpecError(f"{VARIABLE}: {name} is named twice")
        named.add(name)
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
        if value < 1:
            raise SpecError(
                f"{VARIABLE}: {word}: the value is a whole number above 0",
                hint=f"as in {name}={getattr(limits, name)}, its default",
            )
        setattr(limits, name, value)
    return limits


def _read_environment() -> tuple[ReadingLimits, SpecError | None]:
    try:
        return parse_limits(os.environ.get(VARIABLE, "")), None
    except SpecError as error:
        return ReadingLimits(), error


READING, _fault = _read_environment()
"""The limits of this process."""


def require_limits() -> None:
    """Refuse a wrong `TOOLCHART_LIMITS`; each command and each engine begins with it.

    Raises:
        SpecError: there is no such limit, or its value is wrong.
    """
    if _fault is not None:
        raise _fault


def name_limit(name: str) -> str:
    """The words behind an error that tell which limit was met, and what raises it.

    >>> name_limit("documents")
    '(limit `documents`; TOOLCHART_LIMITS=documents=NUMBER raises it)'
    """
    return f"(limit `{name}`; {VARIABLE}={name}=NUMBER raises it)"


def format_bytes(count: int) -> str:
    """A number of bytes as it is written in an error.

    >>> format_bytes(64 * 2**20), format_bytes(16_000_000)
    ('64 MiB', '16,000,000 bytes')
    """
    return f"{count:,} bytes" if count % MIB else f"{count // MIB:,} MiB"
