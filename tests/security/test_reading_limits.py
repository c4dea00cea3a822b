"""How much is read of what comes from outside: an attack meets each limit, which is named and can be raised.

`python tests/security/test_reading_limits.py` writes the table of docs/limits.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from limit_tables import fill_limit_table, write_document
from tool_calls import make_call, make_executor, run_calls
from web import serve_web
from written_logs import write_conversation

from toolchart.engine.exchange.message_files import load_history
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import RecordFile, _check_size, iterate_file_lines
from toolchart.providers.transport.batches import iterate_lines
from toolchart.providers.transport.reply_guard import BodyGuard
from toolchart.providers.transport.stream_frames import EventFrameReader
from toolchart.providers.wire_adapter import StreamDecoder, decode_json
from toolchart.specs.document_files import read_regular_file
from toolchart.specs.models import ToolsConfig
from toolchart.specs.sections.context import RagService
from toolchart.states.content import ImagePart
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.messages import ToolDefinition
from toolchart.states.reading_limits import READING, ReadingLimits, parse_limits
from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.results import convert_result
from toolchart.tools.manager import ToolManager
from toolchart.tools.retrieval.services import fetch_service_json
from toolchart.tools.sources import mcp
from toolchart.tools.sources.attachments import load_attachments
from toolchart.tools.sources.documents import DocumentIndex
from toolchart.tools.sources.foreign_schemas import sanitize_schema
from toolchart.tools.sources.http.settings import parse_http_settings
from toolchart.tools.sources.http.tool import make_http_tool
from toolchart.tools.sources.mcp_messages import _Body, _Lines

DOC = Path(__file__).parents[2] / "docs" / "limits.md"
NAMES = ReadingLimits.__struct_fields__
HOSTILE_SERVER = Path(__file__).parents[1] / "support" / "mcp_hostile_server.py"


def guard(limit: Any) -> list[bytes]:
    """A body of 100 bytes."""
    return list(BodyGuard(limit).add_bytes(b"x" * 100))


def read_frames(data: bytes) -> list[Any]:
    """The values of a stream of events."""
    return list(EventFrameReader().add_bytes(data))


def count_pieces(folder: Path) -> None:
    """A stream of three pieces."""
    accumulator: Any = SimpleNamespace(add_frame=lambda frame: [frame])
    decoder = StreamDecoder(EventFrameReader(), accumulator, lambda body: body)
    list(decoder.add_bytes(b"data: {}\n\n" * 3))


async def read_results(folder: Path) -> None:
    """A file of results with a line of 20 bytes."""

    async def send() -> Any:
        yield b"x" * 20

    async for _ in iterate_lines(send()):
        pass


def ask_service(body: bytes) -> Any:
    """What a retrieval service answers."""
    with serve_web(lambda request: (200, {"Content-Type": "application/json"}, body)) as server:
        service = RagService.model_validate({"url": f"http://127.0.0.1:{server.port}"})
        return asyncio.run(fetch_service_json("desk", service, "/collections"))


def call_http_tool(folder: Path) -> Any:
    """What a tool of a spec says of an answer with 400 values."""
    body = json.dumps([0] * 399).encode()
    with serve_web(lambda request: (200, {"Content-Type": "application/json"}, body)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        settings = parse_http_settings({"url": url, "allow_hosts": ["127.0.0.1"]}, "look")
        definition = ToolDefinition(name="look", description="", parameters={"type": "object"})
        tool = make_http_tool(definition, settings, resolve=lambda text, _: text, idempotent=False)
        (event,) = run_calls(make_executor(tool), make_call("look", {}))
        return event.result


def list_warnings(section: dict[str, Any]) -> str:
    """What is said of the tools of a section, beside them."""
    manager = ToolManager.from_config(ToolsConfig.model_validate(section))
    with closing(manager):
        return "; ".join(manager.warnings)


def connect_hostile(way: str) -> Callable[[Path], str]:
    """What is said of a server that behaves so."""
    server = {"command": sys.executable, "args": [str(HOSTILE_SERVER), way], "start_timeout_ms": 300_000}
    return lambda folder: list_warnings({"mcp": {"hostile": server}})


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "servers": [{"url": "http://127.0.0.1"}],
    "paths": {f"/{name}": {"get": {"operationId": name, "summary": "Look."}} for name in "abc"},
}


def load_document(name: str) -> Callable[[Path], str]:
    """What is said of an OpenAPI document in a file."""

    def load(folder: Path) -> str:
        path = folder / name
        path.write_text(json.dumps(DOCUMENT))
        return list_warnings({"openapi": [{"document": str(path)}]})

    return load


def write_file(folder: Path, text: str) -> Path:
    """A file with this text."""
    path = folder / "file.jsonl"
    path.write_text(text)
    return path


def search(folder: Path) -> str:
    """Search two documents; the problems of the index."""
    documents = folder / "documents"
    documents.mkdir(exist_ok=True)
    for name in "ab":
        (documents / f"{name}.md").write_text("A text of some words.")
    DocumentIndex({"documents": documents}, folder / "index.db").search("words")
    with closing(sqlite3.connect(folder / "index.db")) as db:
        return "; ".join(problem for (problem,) in db.execute("SELECT problem FROM files") if problem)


def export(folder: Path) -> None:
    """Write a file of records."""
    store = MemoryStore()
    write_conversation(store, 1, name="c")
    list(iterate_file_lines(store, ["c"]))


def run_isolated(folder: Path) -> Any:
    """The answer of a tool in a process of its own."""
    from sample_functions import repeat_text

    from toolchart.tools.execution.isolation import run_in_process
    from toolchart.tools.sources.python import make_tool

    tool = make_tool(repeat_text, {"isolation": "process"})
    return asyncio.run(run_in_process(tool, {"count": 10_000}))


PICTURE = ImagePart(data=base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 92).decode(), media_type="image/png")
RESULT = SimpleNamespace(
    content=[SimpleNamespace(type="text", text="x")] * 3, structured_content=None, is_error=False
)

ATTACKS: list[tuple[str, int, Callable[[Path], Any]]] = [
    ("reply_bytes", 100, lambda folder: guard("reply_bytes")),
    ("reply_values", 24, lambda folder: decode_json(json.dumps([0] * 23).encode())),
    ("stream_bytes", 100, lambda folder: guard("stream_bytes")),
    ("stream_values", 48, lambda folder: read_frames(b"data: %b\n\n" % json.dumps([0] * 23).encode() * 2)),
    ("stream_pieces", 3, count_pieces),
    ("stream_lines", 4, lambda folder: read_frames(b"\n" * 4)),
    ("line_bytes", 20, lambda folder: read_frames(b"x" * 20)),
    ("line_bytes", 20, lambda folder: asyncio.run(read_results(folder))),
    ("batch_bytes", 100, lambda folder: guard("batch_bytes")),
    ("tool_values", 400, lambda folder: ask_service(json.dumps([0] * 399).encode())),
    ("tool_values", 400, call_http_tool),
    ("tool_values", 24, lambda folder: _Lines().add_bytes(b"[%b]\n" % (b"0," * 22 + b"0"))),
    ("service_bytes", 100, lambda folder: ask_service(b"[%b]" % (b" " * 98))),
    ("mcp_bytes", 100, lambda folder: _Lines().add_bytes(b"x" * 100)),
    ("mcp_bytes", 100, lambda folder: _Body().add_bytes(b"x" * 100)),
    ("mcp_parts", 3, lambda folder: mcp._extract_result(RESULT)),
    ("mcp_tools", 3, connect_hostile("three")),
    ("mcp_pages", 3, connect_hostile("pages")),
    ("result_characters", 100, lambda folder: convert_result("x" * 100)),
    ("result_part_bytes", 100, lambda folder: convert_result([PICTURE])),
    ("result_part_bytes", 100, lambda folder: asyncio.run(load_attachments([PICTURE]))),
    ("process_bytes", 20_000, run_isolated),
    ("operations", 3, load_document("a.json")),
    ("openapi_bytes", len(json.dumps(DOCUMENT)), load_document("a.json")),
    ("schema_nodes", 5, lambda folder: sanitize_schema({"type": "object", "properties": {"a": {}, "b": {}}})),
    ("file_bytes", 100, lambda folder: read_regular_file(write_file(folder, "x" * 100))),
    ("file_values", 8, lambda folder: load_history(write_file(folder, '[{"role": "user", "content": "x"}]'))),
    ("documents", 2, search),
    ("document_bytes", 21, search),
    ("record_bytes", 5_000, export),
    ("record_values", 400, lambda folder: _check_size(json.dumps([0] * 399).encode(), "c", 0)),
]
"""A limit, a value at which the attack is none any more, and the attack: it fails, or returns words."""

IN_PROCESSES = {
    "spec_characters": "a: " + "x" * 300,
    "spec_entries": "a: [" + "b, " * 150 + "b]",
    "openapi_entries": "a: [" + "b, " * 150 + "b]",
}
"""Limits that are read when a process starts, each with a text that exceeds 100 of them."""
ELSEWHERE = {"error_bytes": "test_of_an_error_the_rest_is_left"}


def test_every_limit_is_attacked() -> None:
    """A limit that nothing here meets could be one that nothing reads."""
    assert {name for name, _, _ in ATTACKS} | IN_PROCESSES.keys() | ELSEWHERE.keys() == set(NAMES)
    assert all(test in globals() for test in ELSEWHERE.values())


@pytest.mark.parametrize(("name", "enough", "attack"), ATTACKS)
def test_a_limit_is_named_and_raised(
    name: str, enough: int, attack: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What exceeds a limit is refused, with its name and what raises it; at the limit it is read."""
    monkeypatch.setattr(READING, "reply_values", 1)  # the values of a stream count from its second byte on
    words = f"(limit `{name}`; TOOLCHART_LIMITS={name}=NUMBER raises it)"
    monkeypatch.setattr(READING, name, max(1, enough // 2))
    try:
        said = attack(tmp_path)
    except (ToolchartError, ToolFailure, ValueError) as error:
        said = error
    assert words in str(said)
    monkeypatch.setattr(READING, name, enough)
    assert words not in str(attack(tmp_path))


def test_of_an_error_the_rest_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an answer with an error status so much is read, and it is no failure of its own."""
    for value, is_over in ((99, True), (100, False)):
        monkeypatch.setattr(READING, "error_bytes", value)
        body = BodyGuard("error_bytes", is_cut=True)
        list(body.add_bytes(b"x" * 100))
        assert body.is_over is is_over


def run_with(limits: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a process does that has these limits."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"TOOLCHART_LIMITS": limits, "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


READ = """
import sys
from toolchart.states.chart.yaml_document import SPEC_LIMITS, read_yaml
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.tools.sources.openapi import parse_yaml

try:
    parse_yaml(sys.argv[2]) if sys.argv[1] == "openapi" else read_yaml(sys.argv[2], None, limits=SPEC_LIMITS)
except SpecError as error:
    print(error)
"""


@pytest.mark.parametrize("name", IN_PROCESSES)
def test_a_process_has_the_limits_of_its_environment(name: str) -> None:
    """A limit of YAML is named where it is met, and a process with a higher one reads on."""
    kind = "openapi" if name.startswith("openapi") else "spec"
    refused = run_with(f"{name}=100", READ, kind, IN_PROCESSES[name])
    assert f"(limit `{name}`; TOOLCHART_LIMITS={name}=NUMBER raises it)" in refused.stdout, refused.stderr
    read = run_with(f"{name}=1000", READ, kind, IN_PROCESSES[name])
    assert (read.returncode, read.stdout) == (0, ""), read.stderr


def test_workers_inherit_the_limits() -> None:
    """A process that reads documents for this one has its limits: they are no secret, and pass to it."""
    from toolchart.workers.pool import build_plain_environment

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLCHART_LIMITS", "documents=7")
        assert build_plain_environment()["TOOLCHART_LIMITS"] == "documents=7"


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_takes_another_value(name: str) -> None:
    """Each limit is changed by its name, and the others stay."""
    assert parse_limits(f" {name} = 7 ,") == msgspec.structs.replace(ReadingLimits(), **{name: 7})
    assert parse_limits("") == ReadingLimits()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replybytes=5", ("there is no limit 'replybytes'", "did you mean 'reply_bytes'?")),
        ("reply_bytes", ("a whole number above 0", "as in reply_bytes=67108864, its default")),
        ("reply_bytes=64M", ("a whole number above 0",)),
        ("reply_bytes=0", ("a whole number above 0",)),
        ("reply_bytes=-1", ("a whole number above 0",)),
        ("reply_bytes=\u0661", ("a whole number above 0",)),
        ("reply_bytes=" + "9" * 5000, ("a whole number above 0",)),
        ("documents=1,documents=2", ("documents is named twice",)),
        ("=1", ("there is no limit ''",)),
    ],
)
def test_a_wrong_limit_is_refused(text: str, words: tuple[str, ...]) -> None:
    """A name that no limit has is refused with the nearest one, and a value that is no number of things."""
    with pytest.raises(SpecError) as caught:
        parse_limits(text)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("command", [["runs"], ["check", "quickstart"], ["doctor"]])
def test_every_command_refuses_a_wrong_limit(command: list[str], tmp_path: Path) -> None:
    """A command ends before it does anything, with one message and no traceback."""
    code = "import sys; from toolchart.app.cli import main; sys.argv[0] = 'toolchart'; main()"
    ended = run_with("replybytes=5", code, "--log", str(tmp_path / "log.db"), *command)
    assert (ended.returncode, "did you mean 'reply_bytes'?" in ended.stderr) == (2, True), ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_engine_refuses_a_wrong_limit() -> None:
    """A program learns it when it makes its engine, and not from the first long answer."""
    ended = run_with("documents=none", "from toolchart import Engine; Engine('quickstart')")
    assert "SpecError: TOOLCHART_LIMITS: documents=none: the value is a whole number" in ended.stderr


def test_the_document_has_every_limit() -> None:
    """docs/limits.md names each limit with its default."""
    text = DOC.read_text()
    assert fill_limit_table(text, ReadingLimits) == text


def test_what_was_written_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of records that could be written is read with the same limits: both sides meet at the same byte,
    the same value and a depth that no record reaches."""
    store = MemoryStore()
    write_conversation(store, 2, name="c")
    path = tmp_path / "log.jsonl"
    lines = list(iterate_file_lines(store, ["c"]))
    longest = max(map(len, lines[1:]))
    for value in (longest, longest - 1):
        monkeypatch.setattr(READING, "record_bytes", value)
        path.write_bytes(b"".join(lines))
        if value == longest:
            assert list(iterate_file_lines(store, ["c"])) == lines
            RecordFile(path).close()
            continue
        with pytest.raises(SpecError, match="record_bytes"):
            list(iterate_file_lines(store, ["c"]))
        with pytest.raises(Exception, match="record_bytes"):
            RecordFile(path)


if __name__ == "__main__":
    write_document(DOC, ReadingLimits)
