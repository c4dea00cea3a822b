"""Telemetry of commands, as `OTEL_*` of the environment asks for it: received over OTLP on loopback."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from agents import make_spec
from command_runs import RunCli
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolchart.engine.log.stores import open_store
from toolchart.engine.reading.figures import read_figures
from toolchart.engine.telemetry.environment import asks_for_telemetry

MESSAGES = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Collector:
    """What has arrived over OTLP."""

    def __init__(self) -> None:
        self.address = ""
        self.received: dict[str, list[Any]] = {path: [] for path in MESSAGES}

    def list_spans(self, beginning: str = "") -> list[Any]:
        """The spans whose names begin so, in the order in which they began."""
        spans = [
            span
            for request in self.received["/v1/traces"]
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            if span.name.startswith(beginning)
        ]
        return sorted(spans, key=lambda span: span.start_time_unix_nano)

    def list_services(self) -> set[str]:
        """The names of the services that have sent something."""
        resources = [r for request in self.received["/v1/traces"] for r in request.resource_spans]
        return {
            attribute.value.string_value
            for resource in resources
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names, until the test ends."""
    collected = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            data = gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data
            message = MESSAGES[self.path]()
            message.ParseFromString(data)
            collected.received[self.path].append(message)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collected.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.address)
    yield collected
    server.shutdown()
    server.server_close()


def read_attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span: texts, numbers and truths."""
    return {
        entry.key: getattr(entry.value, entry.value.WhichOneof("value") or "string_value")
        for entry in span.attributes
    }


def write_agent(folder: Path, *replies: Any, **changes: Any) -> str:
    """Write the spec of an agent whose scripted model gives these replies."""
    spec = make_spec(name="clerk", **changes)
    spec["llms"]["model"]["replies"] = list(replies)
    path = folder / "clerk.yaml"
    path.write_text(yaml.safe_dump(spec))
    return str(path)


def make_reply(tokens: int, **reply: Any) -> dict[str, Any]:
    """A scripted reply that has used so many tokens."""
    return {"usage": {"input": tokens, "output": 1, "total": tokens + 1}, **reply}


def test_run_and_approve_give_one_trace(run_cli: RunCli, collector: Collector, tmp_path: Path) -> None:
    """A turn that waited for a decision is one trace though two commands worked on it: the second part lies
    in the first and has a link to it; the spans of each kind add up to the log."""
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "a"}}]}
    changes: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}
    agent = write_agent(tmp_path, make_reply(100, **call), **changes)
    assert "waiting for approval" in run_cli("run", agent, "pay", "--conversation", "c").err
    first_spans = len(collector.list_spans())
    write_agent(tmp_path, make_reply(200, content="Done."), **changes)  # a script begins with each process
    approved = run_cli("approve", "c", "--spec", agent)
    assert approved.code == 0, approved.err
    assert first_spans
    assert len(collector.list_spans()) > first_spans
    first, second = collector.list_spans("invoke_agent clerk")
    assert second.trace_id == first.trace_id
    assert second.parent_span_id == first.span_id
    assert [(link.trace_id, link.span_id) for link in second.links] == [(first.trace_id, first.span_id)]
    assert {span.trace_id for span in collector.list_spans()} == {first.trace_id}
    store = open_store(None)
    used = read_figures(store, "c").usage
    store.close()
    for name in ("invoke_agent", "chat"):
        spans = map(read_attributes, collector.list_spans(name))
        assert sum(span.get("gen_ai.usage.input_tokens", 0) for span in spans) == used.input
    assert used.input
    assert collector.list_services() == {"toolchart"}
    assert collector.received["/v1/metrics"]
    assert collector.received["/v1/logs"]


def test_batch_sends_spans_under_its_service_name(
    run_cli: RunCli, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each input of a batch has its turn; the resource is what the environment says; contents stay out."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    (tmp_path / "in.jsonl").write_text('"one"\n"two"\n'.replace('"', ""))
    agent = write_agent(tmp_path, "secret words", "secret words")
    assert run_cli("batch", agent, "in.jsonl").code == 0
    assert len(collector.list_spans("invoke_agent clerk")) == 2
    assert len({span.trace_id for span in collector.list_spans()}) == 2
    assert collector.list_services() == {"nightly"}
    assert "secret words" not in str(collector.received)


def test_content_is_sent_where_the_environment_asks_for_it(
    run_cli: RunCli, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the conventions for content decides whether messages are sent."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    assert run_cli("run", write_agent(tmp_path, "secret words"), "hi").code == 0
    assert "secret words" in str(collector.received["/v1/traces"])


def test_serve_sends_spans(collector: Collector, tmp_path: Path) -> None:
    """A server sends the spans of its turns, the last of them when it is stopped."""
    agent = write_agent(tmp_path, "hello")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "toolchart", "serve", agent, "--port", port, "--token", "anna:chat,read"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        address = token = ""
        while not token:
            line = process.stderr.readline()
            assert line or process.poll() is None, "the server has ended"
            address = line.split(" at ")[1].split(";")[0] if line.startswith("serving ") else address
            token = line.rpartition(": ")[2].strip() if line.startswith("token anna") else token
        answer = httpx.post(
            f"{address}/api/conversations",
            json={"message": "hi"},
            headers={"authorization": f"Bearer {token}"},
        )
        assert answer.json()["content"] == "hello"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert [span.name for span in collector.list_spans("invoke_agent")] == ["invoke_agent clerk"]


def test_a_collector_that_is_away_changes_no_answer(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing listens at the address, a turn has its answer and its exit code as without telemetry."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    result = run_cli("run", write_agent(tmp_path, "hello"), "hi", "--json")
    assert (result.code, json.loads(result.out)["content"]) == (0, "hello")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_environment_decides_whether_there_is_telemetry(environment: Any, expected: bool) -> None:
    """Without an exporter or an address nothing is loaded and sent; the standard switch turns all off."""
    assert asks_for_telemetry(environment) is expected


def test_an_unknown_exporter_is_named(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exporter that no package has is an error before anything runs, with those that are installed."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "jaegr")
    result = run_cli("run", write_agent(tmp_path, "hello"), "hi")
    assert result.code != 0
    assert "OTEL_TRACES_EXPORTER" in result.err
    assert "'jaegr'" in result.err
    assert "console" in result.err
    assert not (tmp_path / ".toolchart").exists()
