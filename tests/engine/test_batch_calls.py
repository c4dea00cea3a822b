"""Model calls in batch jobs: gathered, found again, asked again where a job ended without them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from batch_host import BatchHost, answer_text, build_answer

from toolchart import Engine, SpecError, Turn
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.runtime.wire_replay import WireComparison

PRICES = {"models": {"*": {"input": 10.0, "output": 100.0}}}
FULL_PRICE = (100 * 10.0 + 10 * 100.0) / 1_000_000
"""What 100 tokens in and 10 out cost outside of a batch."""


def make_spec(host: BatchHost, provider: str = "openai", **entry: Any) -> dict[str, Any]:
    own = {"base_url": f"{host.url}/v1", "batches": True} if provider == "openai" else {"base_url": host.url}
    return {
        "llms": {
            "m": {
                "provider": provider,
                "api_key": "k-123456789",
                "model": "gpt-4.1-mini" if provider == "openai" else "claude-haiku-4-5",
                "batch_gather_s": 0.05,
                "batch_poll_s": 0.05,
                **own,
                **entry,
            }
        },
        "responses": [{"llm": "m", "batch": True, "max_tokens": 50}],
        "prices": PRICES,
        "log_answers": True,
    }


def list_events(engine: Engine, conversation: str, type_: str) -> list[dict[str, Any]]:
    events = [json.loads(line)["event"] for line in engine.store.read_lines(conversation)]
    return [event for event in events if event["type"] == type_]


async def wait_for_events(engine: Engine, type_: str, count: int) -> None:
    """Wait until conversation c has so many events of a type."""
    while len(list_events(engine, "c", type_)) < count:  # noqa: ASYNC110  # the log is looked at from outside
        await asyncio.sleep(0.01)


def describe_error(result: Turn) -> str:
    """Kind and message of the error of a turn."""
    assert result.error is not None, result
    return f"{result.error.kind}: {result.error.message}"


def check_replay(engine: Engine, conversation: str) -> tuple[int, int]:
    """Replay a conversation; the numbers of bodies and of answers that were compared and are equal."""
    comparison = WireComparison()
    for _ in comparison.compare_steps(replay_conversation(engine.store, conversation)):
        pass
    return comparison.bodies, comparison.answers


WIRES = [("openai", {"api": "chat"}), ("openai", {"api": "responses"}), ("anthropic", {})]


@pytest.mark.parametrize(("provider", "entry"), WIRES, ids=["chat", "responses", "messages"])
def test_calls_of_many_conversations_are_one_job(provider: str, entry: dict[str, Any]) -> None:
    """Five turns that run together are one job; each gets its own answer although the host sends them in
    another order, at half the price, and replay finds equal bodies and answers."""

    def answer(path: str, body: Any) -> tuple[int, Any]:
        text = json.dumps(body)
        number = next(n for n in range(5) if f"question {n}" in text)
        return 200, build_answer(path, body, f"answer {number}")

    with BatchHost(answer) as host:

        async def run() -> None:
            async with Engine(make_spec(host, provider, **entry), log="memory") as engine:
                results = await asyncio.gather(
                    *(engine.arun(f"question {n}", conversation=f"c{n}") for n in range(5))
                )
                assert [result.content for result in results] == [f"answer {n}" for n in range(5)]
                for n, result in enumerate(results):
                    assert result.usage.cost == pytest.approx(FULL_PRICE / 2)
                    assert check_replay(engine, f"c{n}") == (1, 1)

        asyncio.run(run())
        assert [len(job["calls"]) for job in host.jobs.values()] == [5]


@pytest.mark.parametrize("fate", ["expired", "missing"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_what_a_job_ended_without_is_asked_again(provider: str, fate: Any) -> None:
    """A call that expired, or has no line in the results, goes into the next job; the others keep their
    answers."""
    with BatchHost(
        answer_text("yes"),
        choose_fate=lambda path, body, seen: fate if seen < 2 and "lost" in str(body) else "answered",
    ) as host:

        async def run() -> None:
            async with Engine(make_spec(host, provider), log="memory") as engine:
                lost, kept = await asyncio.gather(
                    engine.arun("lost", conversation="lost"), engine.arun("kept", conversation="kept")
                )
                assert (lost.content, kept.content) == ("yes", "yes")
                submitted = list_events(engine, "lost", "call_submitted")
                assert len({event["key"] for event in submitted}) == 3
                assert check_replay(engine, "lost") == (1, 1)

        asyncio.run(run())
        assert [len(job["calls"]) for job in host.jobs.values()] == [2, 1, 1]
        assert host.answered == 2


def test_a_call_that_no_job_answers_fails_after_three() -> None:
    """Three jobs that end without an answer are the bound: then the call has failed, retryable, and the chart
    decides."""
    with (
        BatchHost(answer_text("yes"), choose_fate=lambda path, body, seen: "expired") as host,
        Engine(make_spec(host, retries=0), log="memory") as engine,
    ):
        result = engine.run("q", conversation="c")
        assert "3 batch jobs ended" in describe_error(result)
        failed = list_events(engine, "c", "failed")
        assert [(event["kind"], event["retryable"]) for event in failed] == [("timeout", True)]
        assert len(host.jobs) == 3


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_error_of_one_call_is_its_failure(provider: str) -> None:
    """A line that the host answered with an error is `failed` with its status; it stands in a second file."""
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no such model"}}
    with (
        BatchHost(lambda path, body: (400, error)) as host,
        Engine(make_spec(host, provider), log="memory") as engine,
    ):
        result = engine.run("q", conversation="c")
        assert "no such model" in describe_error(result)
        (failed,) = list_events(engine, "c", "failed")
        assert (failed["kind"], failed["status"]) == ("bad_request", 400)
        assert check_replay(engine, "c") == (1, 1)


def test_a_job_that_the_host_refuses_fails_its_calls() -> None:
    """A whole job that is refused fails each of its calls with the host's reason."""
    with (
        BatchHost(answer_text(""), refuses_jobs="token_limit_exceeded") as host,
        Engine(make_spec(host, retries=0), log="memory") as engine,
    ):
        result = engine.run("q", conversation="c")
        assert "token_limit_exceeded" in describe_error(result)
        (failed,) = list_events(engine, "c", "failed")
        assert (failed["kind"], failed["retryable"]) == ("rate_limit", True)


@pytest.mark.parametrize(("provider", "named"), [("ollama", "ollama"), ("openai", "127.0.0.1")])
def test_a_host_without_a_batch_api_is_named(
    provider: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`batch: true` at a host without a known batch API, whose address is a variable, is an error of the call
    that names the host and those that have one; nothing is sent."""
    with BatchHost(answer_text("")) as host:
        monkeypatch.setenv("HOST_ADDRESS", host.url)
        entry = {"provider": provider, "base_url": "${HOST_ADDRESS}", "api_key": "k-123456789", "model": "m"}
        spec = {"llms": {"m": entry}, "responses": [{"llm": "m", "batch": True}]}
        with Engine(spec, log="memory") as engine:
            problem = describe_error(engine.run("q"))
        assert named in problem
        assert "`anthropic`" in problem
        assert not host.jobs


class CopyingHost(BatchHost):
    """Copies a log when a job is about to be created: the copy is what a worker leaves that dies then."""

    store: Path
    copy: Path

    def respond(self, method: str, target: str, content: bytes) -> tuple[int, bytes]:
        if method == "POST" and target.endswith("/batches") and not self.copy.exists():
            with closing(sqlite3.connect(self.store)) as source, closing(sqlite3.connect(self.copy)) as copy:
                source.backup(copy)
        return super().respond(method, target, content)


@pytest.mark.parametrize(
    "entry",
    [
        {"provider": "openai", "base_url": "https://api.groq.com/openai/v1"},
        {"provider": "openai", "base_url": "https://api.openai.com/v1", "batches": False},
        {"provider": "gemini"},
        {"provider": "ollama"},
    ],
    ids=["groq", "switched off", "gemini", "ollama"],
)
def test_a_host_without_a_batch_api_is_refused_at_load(entry: dict[str, Any]) -> None:
    """`batch: true` for a host without a known batch API is an error before any conversation: it names the
    place in the spec, and needs no key."""
    spec = {"llms": {"m": {**entry, "model": "x"}}, "responses": [{"llm": "m", "batch": True}]}
    with pytest.raises(SpecError, match="no batch API is known") as caught:
        Engine(spec, log="memory").run("q")
    assert caught.value.path == "responses[0].batch"


def test_a_batch_call_is_no_stream() -> None:
    """A body that asks for a stream cannot go into a job: the call fails before anything is sent, and its
    error says what to leave out."""
    with BatchHost(answer_text("")) as host:
        spec = make_spec(host, extra_body={"stream": True})
        with Engine(spec, log="memory") as engine:
            result = engine.run("q0", conversation="c")
            assert list_events(engine, "c", "call_submitted") == []
    assert "`stream`" in describe_error(result)
    assert describe_error(result).startswith("bad_request")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("knows_id", [True, False], ids=["id", "key"])
def test_another_worker_finds_the_job(provider: str, knows_id: bool, tmp_path: Path) -> None:
    """A worker that takes over an open call finds its job by the host's id, or, where the first one died
    before it had that, by the key; the call is in one job only, and a foreign job is not taken for it."""
    with CopyingHost(answer_text("yes"), looks=4) as host:
        spec = make_spec(host, provider)
        host.store, host.copy = tmp_path / "log.db", tmp_path / "copy.db"

        async def begin() -> None:
            async with Engine(spec, log=host.store, lease_s=1) as engine:
                turn = asyncio.ensure_future(engine.arun("q", conversation="c"))
                await wait_for_events(engine, "call_submitted", 2)
                await engine.astop(0)
                assert not (await turn).is_over

        asyncio.run(begin())
        with Engine(make_spec(host, provider, batch_gather_s=0), log="memory") as other:
            assert other.run("another call of another program").content == "yes"
        with Engine(spec, log=host.store if knows_id else host.copy, lease_s=1) as engine:
            time.sleep(0 if knows_id else 1.2)  # the lease of the dead worker
            assert len(list_events(engine, "c", "call_submitted")) == (2 if knows_id else 1)
            assert engine.conversation("c").resume().content == "yes"
            assert check_replay(engine, "c") == (1, 1)
        assert len(host.jobs) == 2


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_job_that_was_never_created_is_created(provider: str, tmp_path: Path) -> None:
    """Where the first worker died before its job reached the host, the call goes into a new job."""
    with CopyingHost(answer_text("yes")) as host:
        spec = make_spec(host, provider)
        host.store, host.copy = tmp_path / "log.db", tmp_path / "copy.db"
        with Engine(spec, log=host.store, lease_s=1) as engine:
            assert engine.run("q", conversation="c").content == "yes"
        host.jobs.clear()
        time.sleep(1.2)
        with Engine(spec, log=host.copy, lease_s=1) as engine:
            assert engine.conversation("c").resume().content == "yes"
            assert len({event["key"] for event in list_events(engine, "c", "call_submitted")}) == 2
        assert len(host.jobs) == 1


def test_an_answer_after_a_cancellation_is_late() -> None:
    """A cancelled conversation ends at once; what its line of the job used is recorded when the job is over,
    at half the price, and changes nothing else."""
    with BatchHost(answer_text("yes"), looks=5) as host:

        async def run() -> None:
            async with Engine(make_spec(host), log="memory") as engine:
                kept = asyncio.ensure_future(engine.arun("q", conversation="kept"))
                turn = asyncio.ensure_future(engine.arun("q", conversation="c"))
                await wait_for_events(engine, "call_submitted", 2)
                await engine.conversation("c").acancel("enough")
                result = await turn
                assert describe_error(result).startswith("cancelled")
                assert (await kept).content == "yes"
                await wait_for_events(engine, "replied", 1)
                described = engine.conversation("c").read_turn()
                assert describe_error(described).startswith("cancelled")
                assert described.usage.cost == pytest.approx(FULL_PRICE / 2)
                assert check_replay(engine, "c")[0] == 1
                *_, cancelled, late = map(json.loads, engine.store.read_lines("c"))
                assert late["at"] > cancelled["at"], "it has the time at which it came"

        asyncio.run(asyncio.wait_for(run(), 60))
