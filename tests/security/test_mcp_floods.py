"""What an MCP server sends is looked at before the library makes objects of it, over both transports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_flooding_server import answer_post
from web import serve_web

from toolchart.tools.sources import mcp_messages

pytest.importorskip("mcp", reason="MCP servers need the extra `mcp`")

SERVER = Path(__file__).parents[1] / "support" / "mcp_flooding_server.py"
ALLOWED_MIB = 300
"""What a process may take in all while it refuses a message."""

CALL = """
import json, sys
from pathlib import Path

from tool_calls import make_call, run_calls
from toolchart.specs.models import ToolsConfig
from toolchart.tools.manager import ToolManager

servers = {"flood": {**json.loads(sys.argv[1]), "start_timeout_ms": 300_000, "timeout_ms": 120_000}}
manager = ToolManager.from_config(ToolsConfig.model_validate({"mcp": servers}))
events = [run_calls(manager, make_call("flood__work"))[0] for _ in range(2)]
manager.close()
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
peak_mib = int(line.split()[1]) / 1024
results = [str(event.result.get("error") or event.result["result"])[:300] for event in events]
print(json.dumps({"outcomes": [event.outcome for event in events], "results": results, "peak_mib": peak_mib}))
"""


def call_twice(server: dict[str, object]) -> dict[str, Any]:
    """What two calls of the server's tool give, and the most memory of the process that made them."""
    done = subprocess.run(
        [sys.executable, "-c", CALL, json.dumps(server)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


WORDS = {
    "endless": "a message is larger than 64 MiB (limit `mcp_bytes`;",
    "values": "it has more than 1,000,000 JSON values; none was read (limit `tool_values`;",
}


@pytest.mark.parametrize("form", ["process", "json", "stream", "lines"])
@pytest.mark.parametrize("flood", ["endless", "values"])
def test_a_flood_is_a_failed_call_with_the_limit(flood: str, form: str) -> None:
    """A message without an end, or of nothing but small objects, fails its call and names the limit, in
    little memory; the server can be called again, and the same happens."""
    if form == "process":
        result = call_twice({"command": sys.executable, "args": [str(SERVER), flood]})
    else:
        with serve_web(lambda request: answer_post(flood, form, request)) as server:
            result = call_twice({"url": f"http://127.0.0.1:{server.port}/mcp"})
    assert result["outcomes"] == ["failed", "failed"]
    assert all(WORDS[flood] in text for text in result["results"]), result["results"]
    assert result["peak_mib"] < ALLOWED_MIB


@pytest.mark.parametrize("form", ["process", "json", "stream"])
def test_a_long_honest_result_is_read(form: str) -> None:
    """A text of 15 million characters arrives, over each transport: an event of a stream may be as long."""
    if form == "process":
        result = call_twice({"command": sys.executable, "args": [str(SERVER), "honest"]})
    else:
        with serve_web(lambda request: answer_post("honest", form, request)) as server:
            result = call_twice({"url": f"http://127.0.0.1:{server.port}/mcp"})
    assert result["outcomes"] == ["succeeded", "succeeded"]
    assert result["results"] == ["x" * 300] * 2


PARTS = ["data:", "data: ", "id:", ":", "\n", "\r", "\r\n", "\n\n", "a", '"', " ", "\ufeff", "\u00e9"]


@given(parts=st.lists(st.sampled_from(PARTS)), size=st.integers(1, 9))
@example(parts=["data:a", "\r", "\n", "\n", "data:b", "\n\n"], size=1)
def test_what_the_library_reads_of_a_stream_is_looked_at(parts: list[str], size: int) -> None:
    """However a stream is made and cut, the data of each event that the library gives on was looked at:
    nothing beside it (a comment, another field, a quote) hides a value. Blanks do not count."""
    content = "".join(parts).encode()
    looked_at: list[bytes] = []

    class Noting(mcp_messages._Message):
        def finish(self) -> bytes:
            looked_at.append(super().finish())
            return looked_at[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcp_messages, "_Message", Noting)
        events = mcp_messages._Events()
        for at in range(0, len(content), size):
            events.add_bytes(content[at : at + size])
        events.finish()
    httpx2 = pytest.importorskip("httpx2")
    headers, request = {"content-type": "text/event-stream"}, httpx2.Request("GET", "http://127.0.0.1")
    response = httpx2.Response(200, headers=headers, content=content, request=request)
    given_on = [text for event in httpx2.EventSource(response) if (text := "".join(event.data.split()))]
    seen = [text for data in looked_at if (text := "".join(data.decode().split()))]
    assert given_on == seen[: len(given_on)]
    assert len(seen) <= len(given_on) + 1, "what the end of the stream cuts off is looked at too"


def test_a_compressed_answer_is_refused() -> None:
    """A few bytes of gzip become any number: an answer is asked for as it is, and refused where it is not."""
    with serve_web(lambda request: answer_post("values", "gzip", request)) as server:
        result = call_twice({"url": f"http://127.0.0.1:{server.port}/mcp"})
    assert result["outcomes"] == ["failed", "failed"]
    assert all("'gzip', and was asked for as it is" in text for text in result["results"]), result
