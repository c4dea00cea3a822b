"""A model host on this machine that has only batch APIs: OpenAI's files and batches, Anthropic's batches.

It keeps the jobs of its own process, so a worker may be killed and another one finds its job. What happens to
each call is decided by the test: it is answered, or the job ends without it.

    with BatchHost(answer_text("4")) as host:
        spec = {"llms": {"m": {"provider": "openai", "base_url": f"{host.url}/v1", "api_key": "k",
                               "batches": True, "model": "gpt-4.1-mini"}}, ...}

It refuses what the real hosts refuse: a `custom_id` twice, a call for another path, `stream`, no key.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from web import QuietHandler, run_server

AnswerCall = Callable[[str, Mapping[str, Any]], tuple[int, Mapping[str, Any]]]
"""Answers one call: from its path and body to a status and a body."""

Fate = Literal["answered", "expired", "missing"]
"""What becomes of a call: `missing` has no line in any file of results."""

ChooseFate = Callable[[str, Mapping[str, Any], int], Fate]
"""Chooses it by the path, the body, and how often this very body was in a job before."""


def answer_text(text: str, *, input_tokens: int = 100, output_tokens: int = 10) -> AnswerCall:
    """Answers every call with a text, in the form of its path."""

    def answer(path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return 200, build_answer(path, body, text, input_tokens=input_tokens, output_tokens=output_tokens)

    return answer


def build_answer(
    path: str, body: Mapping[str, Any], text: str, *, input_tokens: int = 100, output_tokens: int = 10
) -> dict[str, Any]:
    """The body of an answer with a text, in the form of a path."""
    model = body["model"]
    if path == "/v1/messages":
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
        }
    if path == "/v1/responses":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return {
            "id": "resp_1",
            "object": "response",
            "status": "completed",
            "model": model,
            "output": [{**message, "content": content}],
            "usage": {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "total_tokens": input_tokens + output_tokens,
            },
        }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    }


class BatchHost:
    """The host; within a `with` block it answers on a port of this machine.

    Args:
        answer: answers the calls that are answered.
        choose_fate: what becomes of each call; by default all are answered.
        looks: how often a job is looked at before it is over.
        refuses_jobs: why whole jobs fail (OpenAI's code of an error); empty: they do not.
    """

    def __init__(
        self,
        answer: AnswerCall,
        *,
        choose_fate: ChooseFate | None = None,
        looks: int = 2,
        refuses_jobs: str = "",
    ) -> None:
        self._answer = answer
        self._choose_fate: ChooseFate = choose_fate or (lambda path, body, seen: "answered")
        self._looks = looks
        self._refuses_jobs = refuses_jobs
        self.lock = threading.Lock()
        self.files: dict[str, bytes] = {}
        """Uploaded files and files of results, by id."""
        self.jobs: dict[str, dict[str, Any]] = {}
        """Jobs by id, the oldest first: what the host says of each, and under `calls` what it was asked."""
        self.bodies: Counter[str] = Counter()
        """How often each body was in a job, as JSON."""
        self.answered = 0
        """Calls that were answered, and so are charged."""
        self._running = run_server(_build_handler(self))
        self.url = ""

    def __enter__(self) -> BatchHost:
        self.url = f"http://127.0.0.1:{self._running.__enter__()}"
        return self

    def __exit__(self, *error: Any) -> None:
        self._running.__exit__(*error)

    # -- requests --------------------------------------------------------------------------------

    def respond(self, method: str, target: str, content: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to a request."""
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self.lock:
            for pattern, respond in _ROUTES:
                match = re.fullmatch(pattern, f"{method} {url.path}")
                if match is not None:
                    status, body = respond(self, content, query, *match.groups())
                    return status, body if isinstance(body, bytes) else json.dumps(body).encode()
        return 404, json.dumps(_build_error_body("not_found_error", f"no such path: {target}")).encode()

    # -- OpenAI ----------------------------------------------------------------------------------

    def _take_file(self, content: bytes, query: Mapping[str, str]) -> tuple[int, Any]:
        data = content.partition(b'filename="')[2].partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0]
        if b"batch" not in content.partition(b'name="purpose"')[2][:40]:
            return 400, _build_error_body("invalid_request_error", "purpose")
        id_ = f"file-{len(self.files)}"
        self.files[id_] = data
        return 200, {"id": id_, "object": "file", "purpose": "batch", "bytes": len(data)}

    def _create_openai_job(self, content: bytes, query: Mapping[str, str]) -> tuple[int, Any]:
        asked = json.loads(content)
        lines = [json.loads(line) for line in self.files[asked["input_file_id"]].splitlines()]
        job = {
            "id": f"batch_{len(self.jobs)}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "created_at": int(datetime.now(UTC).timestamp()),
            "metadata": asked.get("metadata"),
            "status": "validating",
        }
        problem = self._refuses_jobs or _find_job_problem(lines, asked["endpoint"])
        if problem:
            job |= {"status": "failed", "errors": {"data": [{"code": problem, "message": problem}]}}
        self._keep_job(job, [(line["custom_id"], asked["endpoint"], line["body"]) for line in lines])
        return 200, _show_job(job)

    def _show_openai_job(self, content: bytes, query: Mapping[str, str], id_: str) -> tuple[int, Any]:
        job = self.jobs.get(id_)
        if job is None:
            return 404, _build_error_body("invalid_request_error", f"no batch {id_}")
        if job["status"] in ("validating", "in_progress"):
            job["status"] = "in_progress"
            job["looks"] += 1
            if job["looks"] >= self._looks:
                self._end_openai_job(job)
        return 200, _show_job(job)

    def _end_openai_job(self, job: dict[str, Any]) -> None:
        output: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for custom_id, path, body, fate in self._decide_fates(job):
            line: dict[str, Any] = {"id": f"batch_req_{custom_id}", "custom_id": custom_id}
            if fate == "expired":
                error = {"code": "batch_expired", "message": "This request could not be executed in time."}
                errors.append({**line, "response": None, "error": error})
            elif fate == "answered":
                status, answer = self._answer(path, body)
                response = {"status_code": status, "request_id": "r", "body": answer}
                self.answered += status < 400
                (output if status < 400 else errors).append({**line, "response": response, "error": None})
        job["status"] = (
            "expired" if any("batch_expired" in json.dumps(line) for line in errors) else "completed"
        )
        for name, lines in (("output_file_id", output), ("error_file_id", errors)):
            if lines:
                job[name] = f"file-{len(self.files)}"
                self.files[job[name]] = b"\n".join(json.dumps(line).encode() for line in reversed(lines))

    def _list_openai_jobs(self, content: bytes, query: Mapping[str, str]) -> tuple[int, Any]:
        rows, has_more = self._list_page(query.get("after"), int(query.get("limit", 20)))
        return 200, {"object": "list", "data": rows, "has_more": has_more}

    def _read_kept_file(self, content: bytes, query: Mapping[str, str], id_: str) -> tuple[int, Any]:
        return 200, self.files[id_]

    # -- Anthropic -------------------------------------------------------------------------------

    def _create_anthropic_job(self, content: bytes, query: Mapping[str, str]) -> tuple[int, Any]:
        rows = json.loads(content)["requests"]
        lines = [{**row, "url": "/v1/messages", "body": row["params"]} for row in rows]
        problem = _find_job_problem(lines, "/v1/messages")
        if problem:
            return 400, _build_error_body("invalid_request_error", problem)
        job = {
            "id": f"msgbatch_{len(self.jobs)}",
            "type": "message_batch",
            "processing_status": "in_progress",
            "created_at": datetime.now(UTC).isoformat(),
            "request_counts": {"processing": len(lines), "succeeded": 0},
            "results_url": None,
        }
        self._keep_job(job, [(line["custom_id"], "/v1/messages", line["body"]) for line in lines])
        return 200, _show_job(job)

    def _show_anthropic_job(self, content: bytes, query: Mapping[str, str], id_: str) -> tuple[int, Any]:
        job = self.jobs.get(id_)
        if job is None:
            return 404, _build_error_body("not_found_error", f"no batch {id_}")
        job["looks"] += 1
        if job["looks"] >= self._looks and job["processing_status"] != "ended":
            job["processing_status"] = "ended"
            job["results_url"] = f"{self.url}/v1/messages/batches/{id_}/results"
            job["results"] = b"\n".join(reversed([*self._write_anthropic_results(job)]))
        return 200, _show_job(job)

    def _write_anthropic_results(self, job: dict[str, Any]) -> Iterator[bytes]:
        for custom_id, path, body, fate in self._decide_fates(job):
            result: dict[str, Any] = {"type": "expired"}
            if fate == "missing":
                continue
            if fate == "answered":
                status, answer = self._answer(path, body)
                self.answered += status < 400
                is_message = status < 400
                result = (
                    {"type": "succeeded", "message": answer}
                    if is_message
                    else {"type": "errored", "error": answer}
                )
            yield json.dumps({"custom_id": custom_id, "result": result}).encode()

    def _list_anthropic_jobs(self, content: bytes, query: Mapping[str, str]) -> tuple[int, Any]:
        rows, has_more = self._list_page(query.get("after_id"), int(query.get("limit", 20)))
        last_id = rows[-1]["id"] if rows else None
        return 200, {"data": rows, "has_more": has_more, "last_id": last_id}

    def _read_results(self, content: bytes, query: Mapping[str, str], id_: str) -> tuple[int, Any]:
        return 200, self.jobs[id_]["results"]

    # -- jobs ------------------------------------------------------------------------------------

    def _keep_job(self, job: dict[str, Any], calls: list[tuple[str, str, Mapping[str, Any]]]) -> None:
        self.jobs[job["id"]] = job
        job |= {"calls": calls, "looks": 0}

    def _decide_fates(self, job: dict[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], Fate]]:
        """Each call of a job, with what becomes of it."""
        for custom_id, path, body in job["calls"]:
            text = json.dumps(body, sort_keys=True)
            fate = self._choose_fate(path, body, self.bodies[text])
            self.bodies[text] += 1
            yield custom_id, path, body, fate

    def _list_page(self, after: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """The jobs after one, the newest first."""
        rows = [_show_job(job) for job in reversed(self.jobs.values())]
        ids = [row["id"] for row in rows]
        start = ids.index(after) + 1 if after in ids else 0
        return rows[start : start + limit], len(rows) > start + limit


_ROUTES: tuple[tuple[str, Callable[..., tuple[int, Any]]], ...] = (
    (r"POST /v1/files", BatchHost._take_file),
    (r"GET /v1/files/([\w-]+)/content", BatchHost._read_kept_file),
    (r"POST /v1/batches", BatchHost._create_openai_job),
    (r"GET /v1/batches", BatchHost._list_openai_jobs),
    (r"GET /v1/batches/([\w-]+)", BatchHost._show_openai_job),
    (r"POST /v1/messages/batches", BatchHost._create_anthropic_job),
    (r"GET /v1/messages/batches", BatchHost._list_anthropic_jobs),
    (r"GET /v1/messages/batches/([\w-]+)", BatchHost._show_anthropic_job),
    (r"GET /v1/messages/batches/([\w-]+)/results", BatchHost._read_results),
)


def _show_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the host says of a job."""
    return {name: value for name, value in job.items() if name not in ("calls", "looks", "results")}


def _build_error_body(type_: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_, "code": type_, "message": message}}


def _find_job_problem(lines: list[dict[str, Any]], path: str) -> str:
    """Why a host refuses the calls of a job; empty where it does not."""
    ids = [line["custom_id"] for line in lines]
    if not lines:
        return "empty_batch"
    if len(set(ids)) < len(ids):
        return "duplicate_custom_id"
    if not all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id_) for id_ in ids):
        return "invalid_custom_id"
    if any(line["url"] != path or line["body"].get("stream") for line in lines):
        return "invalid_url_or_stream"
    return ""


def _build_handler(host: BatchHost) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def answer_request(self) -> None:
            content = self.read_body()
            if self.headers.get("authorization") or self.headers.get("x-api-key"):
                status, body = host.respond(self.command, self.path, content)
            else:
                status, body = 401, b'{"error": {"type": "authentication_error", "message": "no key"}}'
            self.send_whole(status, {"content-type": "application/json"}, body)

    return Handler
