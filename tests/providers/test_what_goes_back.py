"""Properties: whatever a host once sent, it takes the next request, and so does the host that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from failure_rows import ROWS, build_answer, list_forms
from host_answers import ENTRIES
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_replies import MISSING, OddCall, build_reply, encode_reply
from web import WebAnswer, serve_web

from toolchart import Engine, tool
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.shared.host_rows import find_row
from toolchart.testing.emulators.checks import check_request, read_view
from toolchart.testing.plugin import _assert_replays

HOSTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{wire: (wire, "", {**entry}) for wire, (_, entry) in ENTRIES.items()},
    **{
        f"chat at {name}": ("chat", name, {"provider": "openai", "api": "chat", "host_profile": name})
        for name in ("openai", "vllm", "llamacpp", "mistral", "gemini")
    },
    "responses at openai": (
        *("responses", "openai"),
        {"provider": "openai", "api": "responses", "host_profile": "openai"},
    ),
}
"""By name: wire format, word of the row whose rules hold, and an `llms` entry."""


@tool(idempotent=True)
def look_up(city: str = "Oslo") -> str:
    """Look up a city."""
    return city


Answer = Callable[[str, bool], WebAnswer]
"""What a host answers, by wire format and whether a stream was asked for."""


class CheckedHosts:
    """Hosts of every wire format on one server. What the row of one refuses, also where somebody only says
    so, is noted; the conversations stand in one log."""

    def __init__(self, server: Any, log: Any, answer: Answer) -> None:
        self._server = server
        self._log = log
        self._engines: dict[str, Engine] = {}
        self._name = ""
        self.answer = answer
        self.bodies: list[Any] = []
        self.refusals: list[tuple[str, str, Any]] = []
        """Host, words and body of each refusal."""

    def check_and_answer(self, request: dict[str, Any]) -> WebAnswer:
        """Check a request, and answer it all the same."""
        body = json.loads(request["body"])
        self.bodies.append(body)
        wire, row, _ = HOSTS[self._name]
        refusals = check_request(find_row(row), read_view(wire, body, "m"))  # type: ignore[arg-type]
        self.refusals += [(self._name, refusal.message, body) for refusal in refusals]
        return self.answer(wire, bool(body.get("stream")) or "stream" in request["path"])

    def run_turn(self, name: str, conversation: str, *, is_streamed: bool) -> str:
        """One turn at a host, with a tool; the state in which it ends."""
        self._name = name
        engine = self._engines.get(name)
        if engine is None:
            wire, _, entry = HOSTS[name]
            llm = {"model": "m", "api_key": "k", **entry, "base_url": self._server.url + ENTRIES[wire][0]}
            spec = {
                "chart": "tool_loop",
                "llms": {"main": llm},
                "limits": {"max_iterations": 3},
                "responses": [{"llm": "main", "prompt": "p", "tools": {"enabled": True}}],
            }
            engine = self._engines[name] = Engine(spec, log=self._log, functions=[look_up])
        if not is_streamed:
            return engine.run("go", conversation=conversation).state
        return [*engine.stream_blocking("go", conversation=conversation)][-1].state

    def close(self) -> None:
        """Close the engines."""
        for engine in self._engines.values():
            engine.close()


def answer_done(wire: str, is_streamed: bool) -> WebAnswer:
    """A reply with a text."""
    return encode_reply(wire, build_reply(wire, "Done.", []), is_streamed=is_streamed)


@pytest.fixture(scope="module")
def hosts() -> Iterator[CheckedHosts]:
    """The hosts; engines are made once, because each makes an HTTP client."""
    with serve_web(lambda request: checked.check_and_answer(request)) as server:
        checked = CheckedHosts(server, MemoryStore(), answer_done)
        yield checked
        checked.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["look_up", "", "a b", "functions.look_up", "n" * 200, "jít", MISSING, None, 7])
ARGUMENTS = (
    st.sampled_from(
        ["{}", "", "null", '{"city": "Br', '{"city": "Brno",}', "[1]", "Brno", '"{}"', MISSING, "\x00"]
    )
    | JSON
    | st.dictionaries(st.text(max_size=3), JSON, max_size=2).map(json.dumps)
)
IDS = st.sampled_from(["c1", "c1", "", "call 2", "i" * 90, "ein/e:id", MISSING, None])
KEYS = st.sampled_from(["", "", "arguments", "parameters"])
CALLS = st.lists(st.builds(OddCall, name=NAMES, arguments=ARGUMENTS, id=IDS, key=KEYS), max_size=3)
REPLIES = st.tuples(st.sampled_from([None, "", " ", "Text."]), CALLS)
TAKERS = (
    "chat at vllm",
    "chat at mistral",
    "responses at openai",
    "messages",
    "gemini",
    "ollama",
    "converse",
)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", HOSTS)
def test_a_host_takes_what_it_sent(name: str, is_streamed: bool, hosts: CheckedHosts) -> None:
    """Whatever calls, texts, names, arguments and ids a host sends, it takes each later request, three turns
    on with the tools offered, and so does every other host that goes on with the conversation."""
    replies: list[tuple[str | None, list[OddCall]]] = []
    conversations = count()

    def answer(wire: str, streams: bool) -> WebAnswer:
        text, calls = replies.pop() if replies else ("Done.", [])
        return encode_reply(wire, build_reply(wire, text, calls), is_streamed=streams)

    @settings(max_examples=6)
    @given(st.lists(REPLIES, min_size=1, max_size=5), st.sampled_from(TAKERS))
    def check(odd: list[tuple[str | None, list[OddCall]]], taker: str) -> None:
        replies[:], hosts.answer = odd, answer
        hosts.refusals.clear()
        conversation = f"{name} {is_streamed} {next(conversations)}"
        for _ in range(3):
            hosts.run_turn(name, conversation, is_streamed=is_streamed)
        replies.clear()
        for host in (name, taker):
            assert hosts.run_turn(host, conversation, is_streamed=is_streamed) == "finished"
        assert hosts.refusals == []

    check()


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("key", ["", "parameters"], ids=["own key", "another key"])
@pytest.mark.parametrize("name", ENTRIES)
def test_repaired_arguments_go_back(name: str, key: str, is_streamed: bool, tmp_path: Path) -> None:
    """Where arguments were repaired, or stood under another key, and the tool ran, the host gets what it ran
    with: in this turn, and in later ones that go on from the log; the log replays."""
    calls = [OddCall(arguments='{"city": "Brno"}' if key else '{"city": "Brno",}', id="c1", key=key)]
    checked: list[CheckedHosts] = []

    def answer(wire: str, streams: bool) -> WebAnswer:
        body = build_reply(wire, None, [calls.pop()]) if calls else build_reply(wire, "Done.", [])
        return encode_reply(wire, body, is_streamed=streams)

    path = str(tmp_path / "log.db")
    with serve_web(lambda request: checked[-1].check_and_answer(request)) as server:
        for _ in range(2):
            checked.append(CheckedHosts(server, path, answer))
            assert checked[-1].run_turn(name, "c", is_streamed=is_streamed) == "finished"
            checked[-1].close()
    assert [one for hosts in checked for one in hosts.refusals] == []
    for body in (checked[0].bodies[1], checked[1].bodies[0]):
        entries = read_view(HOSTS[name][0], body, "m").entries  # type: ignore[arg-type]
        [arguments] = [one for entry in entries for one in entry.arguments]
        assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"city": "Brno"}
        assert not key or f'"{key}"' not in json.dumps(
            body.get("messages", body.get("contents", body.get("input")))
        )
    assert set(_assert_replays(Path(path))) == {"c"}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ENTRIES)
def test_a_host_takes_the_request_after_a_failure(name: str, is_streamed: bool, hosts: CheckedHosts) -> None:
    """After each failure of the corpus the host takes the next request, in one conversation that has met them
    all, and other hosts go on with it."""
    wire = HOSTS[name][0]
    script: list[WebAnswer] = []

    def answer(wire: str, streams: bool) -> WebAnswer:
        return script.pop() if script else answer_done(wire, streams)

    form = "first" if is_streamed else "whole"
    failures = [
        build_answer(row, wire, "status streamed" if "status" in row else form)
        for row in ROWS
        if (row["wires"] == "all" or wire in row["wires"]) and ("status" in row or form in list_forms(row))
    ]
    call = build_reply(wire, None, [OddCall(arguments='{"city": "Br', id="c1")])
    conversation = f"failures {name} {is_streamed}"
    hosts.answer = answer
    hosts.refusals.clear()
    for failure in failures:
        script[:] = [failure, encode_reply(wire, call, is_streamed=is_streamed)]
        hosts.run_turn(name, conversation, is_streamed=is_streamed)
        assert script == []
    for host in (name, *TAKERS):
        assert hosts.run_turn(host, conversation, is_streamed=is_streamed) == "finished"
    assert hosts.refusals == []
    assert len(failures) > 20
