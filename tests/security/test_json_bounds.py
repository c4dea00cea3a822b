"""Foreign JSON that is nothing but small values is refused before it becomes large in memory."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from flooding_hosts import ask_flooding_host, ask_host
from hypothesis import given
from hypothesis import strategies as st
from web import serve_web
from wire_requests import ENTRIES, WIRE_ENTRIES

from toolchart.engine.exchange.message_files import _parse_json
from toolchart.engine.log.stores.record_file import RecordFile
from toolchart.providers.bedrock.stream import EventStreamReader
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.shared.choices import MAX_CHOICES
from toolchart.providers.transport import stream_frames
from toolchart.providers.transport.stream_frames import EventFrameReader, LineFrameReader
from toolchart.providers.wire_adapter import decode_json
from toolchart.specs.sections.context import RagService
from toolchart.states import json_bounds
from toolchart.states.call_arguments import parse_arguments
from toolchart.states.errors import ProviderError, SpecError, ToolchartError
from toolchart.states.json_bounds import MAX_DEPTH, MAX_VALUES, has_more_values, is_deeper, parse_foreign_json
from toolchart.states.reading_limits import READING
from toolchart.tools.definition import ToolFailure
from toolchart.tools.retrieval.services import fetch_service_json

ALLOWED_MIB = 300
"""What a process may take in all while it refuses an answer or a file."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a,{}[]"\\\n\u00e9\u20ac')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('b,{["\\')), inner),
)


def count_values(value: Any) -> int:
    """Every value once, an object three times, and an empty object or list once more."""
    if isinstance(value, dict):
        return 3 + (sum(map(count_values, value.values())) or 1)
    if isinstance(value, list):
        return 1 + (sum(map(count_values, value)) or 1)
    return 1


@pytest.mark.parametrize("piece", [1, 2, 7, 2**18])
@given(value=json_values, is_ascii=st.booleans())
def test_exactly_what_would_be_built_is_counted(piece: int, value: Any, is_ascii: bool) -> None:
    """The count over a text is that over its values, wherever it is cut, as text and as bytes: commas,
    brackets and escapes in strings do not count."""
    text, values = json.dumps(value, ensure_ascii=is_ascii), count_values(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bounds, "_PIECE", piece)
        for form in (text, text.encode()):
            assert not has_more_values(form, values)
            assert has_more_values(form, values - 1)


def measure_depth(value: Any) -> int:
    """How deep lists and objects are nested."""
    if isinstance(value, dict):
        return 1 + max(map(measure_depth, value.values()), default=0)
    return 1 + max(map(measure_depth, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize("piece", [1, 2, 7, 2**18])
@given(value=json_values)
def test_the_depth_is_that_of_the_value(piece: int, value: Any) -> None:
    """The depth over a text is that over its value, wherever it is cut: brackets in strings do not count."""
    text, depth = json.dumps(value), measure_depth(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bounds, "_PIECE", piece)
        for form in (text, text.encode()):
            assert not is_deeper(form, depth)
            assert depth == 0 or is_deeper(form, depth - 1)


def nest(depth: int) -> bytes:
    """A list in lists, so deep."""
    return b"[" * depth + b"]" * depth


def read_event(data: bytes) -> Any:
    """The value of a piece of a stream."""
    [value] = EventFrameReader().add_bytes(frame_event(data))
    return value


def read_arguments(data: bytes) -> Any:
    """The arguments of a call."""
    values, problem = parse_arguments(f'{{"a": {data[1:-1].decode()}}}')
    if problem is not None:
        raise ValueError(problem)
    return values


DOORS = [
    (parse_foreign_json, ValueError),
    (lambda data: parse_foreign_json(data.decode()), ValueError),
    (decode_json, ProviderError),
    (read_event, ProviderError),
    (read_arguments, ValueError),
    (lambda data: _parse_json(data.decode(), Path("h")), SpecError),
]


@pytest.mark.parametrize(("read", "error"), DOORS)
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
def test_deep_json_is_a_clear_error_at_every_door(read: Any, error: type[Exception], depth: int) -> None:
    """JSON may be nested so deep and not deeper, however deep: the error says so and is none of the stack."""
    assert read(nest(MAX_DEPTH)) is not None
    with pytest.raises(error, match="nested too deeply: more than 190"):
        read(nest(depth))


@pytest.mark.parametrize("length", [1, 50, 200, 4096])
def test_the_counts_look_at_each_byte_a_fixed_number_of_times(length: int) -> None:
    """A count takes time in proportion to the text: it goes over its pieces once, whatever stands in them."""
    for text in (b"[" * 300 * length, b'"' * 300 * length, b"\\" * 300 * length, b'[",{' * 75 * length):
        pieces = list(json_bounds._iterate_outside(text))
        assert len(pieces) <= len(text) // json_bounds._PIECE + 1
        assert sum(map(len, pieces)) <= len(text)


@given(value=json_values)
def test_another_encoding_hides_no_values(value: Any) -> None:
    """The JSON decoder reads UTF-16 and UTF-32 too, and no string can be told there: each comma counts."""
    text = json.dumps(value)
    for encoding in ("utf-16-le", "utf-32-be"):
        assert has_more_values(text.encode(encoding), count_values(value) - 1)


EDGE = b"[" + b"0," * (MAX_VALUES - 2) + b"0]"
"""A list that has, itself included, as many values as are allowed."""
TOO_MANY = b"[0," + EDGE[1:]


def test_an_answer_may_have_so_many_values_and_no_more() -> None:
    """One value more than the limit is a failed call that is not tried again; so many are read."""
    assert len(decode_json(EDGE)) == MAX_VALUES - 1
    with pytest.raises(ProviderError, match="more than 1,000,000 JSON values") as refused:
        decode_json(TOO_MANY)
    assert (refused.value.kind, refused.value.retryable) == ("bad_response", False)


def frame_event(data: bytes) -> bytes:
    """A server-sent event."""
    return b"data: " + data + b"\n\n"


def frame_line(data: bytes) -> bytes:
    """A JSON line."""
    return data + b"\n"


def frame_message(data: bytes) -> bytes:
    """An event of Bedrock's stream."""
    headers = b"".join(
        bytes([len(name)]) + name + b"\7" + len(value).to_bytes(2, "big") + value
        for name, value in ((b":message-type", b"event"), (b":event-type", b"any"))
    )
    head = (16 + len(headers) + len(data)).to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    head += zlib.crc32(head).to_bytes(4, "big") + headers + data
    return head + zlib.crc32(head).to_bytes(4, "big")


READERS = [(EventFrameReader, frame_event), (LineFrameReader, frame_line), (EventStreamReader, frame_message)]


@pytest.mark.parametrize(("reader", "frame"), READERS)
def test_the_pieces_of_a_stream_have_one_limit_together(reader: Any, frame: Any) -> None:
    """However the values of a stream are spread over its pieces, so many are read and not one more. What is
    counted begins with the piece that the first million bytes end in."""
    uncounted = frame(b"[" + b" " * (MAX_VALUES - 2) + b"]")
    half = frame(b"[" + b"0," * (READING.stream_values // 2 - 2) + b"0]")
    stream = reader()
    assert len([*stream.add_bytes(uncounted), *stream.add_bytes(half), *stream.add_bytes(half)]) == 3
    with pytest.raises(ProviderError, match="more than 2,800,000 JSON values") as refused:
        list(stream.add_bytes(frame(b"0")))
    assert (refused.value.kind, refused.value.retryable) == ("bad_response", False)


def test_an_ordinary_stream_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of the first million bytes are read without a count, so an ordinary answer does not pay."""
    monkeypatch.setattr(stream_frames, "count_values", None)
    stream = EventFrameReader()
    assert len([*stream.add_bytes(frame_event(b"[0]") * 100_000)]) == 100_000


@pytest.mark.parametrize(("name", "flood"), [("openai", "wide deltas"), ("gemini", "wide parts")])
def test_a_stream_of_small_values_stays_small(name: str, flood: str) -> None:
    """A stream whose pieces have many small values each ends while it is small; one took 1.9 GB."""
    entry = {**ENTRIES[name], "timeout_s": 600}
    result = asyncio.run(ask_flooding_host(flood, entry, stream=True))
    assert (result["kind"], result["retryable"]) == ("bad_response", False)
    assert re.search("more than (2,800,000 JSON values|250,000 pieces)", result["message"])
    assert result["peak_mib"] < ALLOWED_MIB


@pytest.mark.parametrize("name", ["openai", "gemini"])
def test_a_stream_may_have_so_many_choices(name: str) -> None:
    """Each choice more than the limit is a failed call: a piece of one is compared with all others."""

    def build_piece(index: int) -> dict[str, Any]:
        if name == "gemini":
            return {"candidates": [{"index": index, "content": {"parts": [{"text": "a"}]}}]}
        return {"choices": [{"index": index, "delta": {"content": "a"}}]}

    accumulator = GeminiAccumulator() if name == "gemini" else ChatAccumulator()
    for index in range(MAX_CHOICES):
        accumulator.add_frame(build_piece(index))
    accumulator.add_frame(build_piece(0))
    with pytest.raises(ProviderError, match="more than 128 choices") as refused:
        accumulator.add_frame(build_piece(MAX_CHOICES))
    assert (refused.value.kind, refused.value.retryable) == ("bad_response", False)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIRE_ENTRIES)
def test_a_reply_of_small_objects_stays_small(name: str) -> None:
    """60 MB of empty objects, which are over 1 GB once they are built, are a failed call on every wire."""
    check_reply(name, 20_000_000)


def test_a_reply_of_some_small_objects_stays_small() -> None:
    """The small form of it, on one wire: 12 MB, which are 300 MB once they are built."""
    check_reply("openai", 4_000_000)


def check_reply(name: str, objects: int) -> None:
    """Ask a host whose answer has so many empty objects, in a process of its own."""
    body = b'{"choices":[' + b"{}," * objects + b"{}]}"
    with serve_web(lambda request: (200, {"Content-Type": "application/json"}, body)) as server:
        address = f"http://127.0.0.1:{server.port}"
        result = asyncio.run(ask_host(address, {**ENTRIES[name], "timeout_s": 120}, stream=False))
    assert (result["kind"], result["retryable"]) == ("bad_response", False)
    assert "JSON values" in result["message"]
    assert result["grown_mib"] < len(body) / 2**20 * 3 + 32  # what came, its join, and what the guard holds


MEASURED_IMPORT = """
from toolchart.app.cli import main
try:
    main()
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(int(peak.split()[1]) // 1024)
"""


@pytest.mark.parametrize("form", ["one list", "lines", "short lines"])
def test_a_file_of_small_values_is_refused(tmp_path: Path, form: str) -> None:
    """An import of 45 MB of empty objects, in one list or in lines, says the limit and what to do; it took
    1.2 GB."""
    content = {
        "one list": b"[" + b"{}," * 15_000_000 + b"{}]",
        "lines": b"[{},{},{}]\n" * 4_000_000,
        "short lines": b"1\n" * 20_000_000,
    }[form]
    (tmp_path / "bomb.json").write_bytes(content)
    child = subprocess.run(
        [sys.executable, "-c", MEASURED_IMPORT, "import", "bomb.json", "--log", "log.db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 2, child.stderr
    assert "more than 2,000,000 JSON values" in child.stderr
    assert "split it into several files" in child.stderr
    assert int(child.stdout) < ALLOWED_MIB


def test_a_deep_line_of_a_log_file_is_refused(tmp_path: Path) -> None:
    """A log file with a line that is nested 100,000 deep is refused before it is read."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(nest(100_000) + b"\n")
    with pytest.raises(ToolchartError, match="nested too deeply: more than 210"):
        RecordFile(path)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'"' + b" " * 17 * 2**20 + b'"', "larger than 16 MiB"),
        (b'{"results": [' + b"0," * 1_000_001 + b"0]}", "more than 1,000,000 JSON values"),
        (nest(100_000), "nested too deeply"),
    ],
)
def test_a_retrieval_service_is_read_within_the_limits(body: bytes, problem: str) -> None:
    """An answer of a document service that is too large, has too many values or is nested too deeply is the
    failure of the call, which says so."""
    with serve_web(lambda request: (200, {"Content-Type": "application/json"}, body)) as server:
        service = RagService.model_validate({"url": f"http://127.0.0.1:{server.port}"})
        with pytest.raises(ToolFailure, match=problem):
            asyncio.run(fetch_service_json("desk", service, "/collections"))
