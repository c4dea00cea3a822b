"""`toolchart replay` of exported files, with `--spec`, and of what model hosts were sent and sent back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from host_answers import CHAT_USAGE, chat_choice
from web import WebAnswer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.stores import open_store
from toolchart.providers.ollama.client import OllamaProvider
from toolchart.providers.openai.client import OpenAIProvider
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request
from toolchart.testing import ScriptedModel, call_tool
from toolchart.tools.execution import executor
from toolchart.tools.sources.python import tool

RunCli = Callable[..., Any]


@pytest.fixture
def conversation(run_cli: RunCli) -> str:
    """A conversation of two requests in the default log."""
    run_cli("run", "quickstart", "1+1", "--conversation", "talk")
    return "talk"


@pytest.mark.parametrize(
    ("change", "blame", "pointer"),
    [
        (("chart: tool_loop", "chart: forced_answer"), "chart", "/event/chart"),
        (("description: Say it.", "description: Shout it."), "tool schema", "/event/tools/0/description"),
        (("prompt: Be brief.", "prompt: Be long."), "spec", "/event/spec/responses/0/prompt"),
    ],
)
def test_another_agent_is_compared(
    run_cli: RunCli, work_dir: Path, change: tuple[str, str], blame: str, pointer: str
) -> None:
    """`--spec` reports the place and the kind of a difference from the agent that wrote the log."""
    spec = """
chart: tool_loop
llms: {model: {provider: scripted, model: m, replies: [hello]}}
tools:
  registry:
    - {name: say, description: Say it., implementation: {type: mock, mock_response: said}}
responses: [{llm: model, prompt: Be brief., tools: {enabled: true}}]
"""
    (work_dir / "agent.yaml").write_text(spec, "utf-8")
    assert run_cli("run", "agent.yaml", "hi", "--conversation", "c").code == 0
    assert run_cli("replay", "c", "--spec", "agent.yaml").code == 0
    (work_dir / "agent.yaml").write_text(spec.replace(*change), "utf-8")
    assert run_cli("replay", "c").code == 0
    result = run_cli("replay", "c", "--spec", "agent.yaml", "--json")
    mismatch = json.loads(result.out)
    assert (result.code, mismatch["blame"], mismatch["pointer"]) == (1, blame, pointer)


# -- the bodies of model calls -----------------------------------------------------------------------

SPECS = {
    "openai": """
llms:
  model: {{provider: openai, model: m, api_key: "${{WIRE_KEY}}", base_url: "{url}/v1"}}
tools: {{registry: [{{name: calculator}}]}}
responses: [{{llm: model, prompt: Be brief., tools: {{}}}}]
""",
    "ollama": """
llms: {{model: {{provider: ollama, model: m, base_url: "{url}"}}}}
tools: {{registry: [{{name: calculator}}]}}
responses: [{{llm: model, prompt: Be brief., tools: {{}}}}]
""",
}
"""Agents of hosts on loopback, by provider; each calls the calculator once."""

ADAPTERS = {"openai": OpenAIProvider, "ollama": OllamaProvider}


def answer_chat(request: dict[str, Any]) -> WebAnswer:
    """Call the calculator, and answer once its result is in the request; in the format of either host."""
    body = json.loads(request["body"])
    has_result = body["messages"][-1]["role"] == "tool"
    is_chat = request["path"].endswith("/chat/completions")
    arguments: Any = {"expression": "1+1"}
    function = {"name": "calculator", "arguments": json.dumps(arguments) if is_chat else arguments}
    call = {"id": "c1", "type": "function", "function": function}
    message = {"role": "assistant", "content": "2"}
    if not has_result:
        message = {"role": "assistant", "content": "", "tool_calls": [call]}  # type: ignore[dict-item]
    reply: dict[str, Any] = {"model": "m", "message": message, "done": True, "done_reason": "stop"}
    if is_chat:
        reason = "stop" if has_result else "tool_calls"
        reply = {**chat_choice(index=0, message=message, finish_reason=reason), "usage": CHAT_USAGE}
    return 200, {"content-type": "application/json"}, json.dumps(reply).encode()


@pytest.fixture(params=list(SPECS))
def called_host(
    request: pytest.FixtureRequest, run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The provider of a conversation `wire` of two model calls; its host is gone, and so is its key."""
    provider: str = request.param
    monkeypatch.setenv("WIRE_KEY", "sesame")
    with serve_web(answer_chat) as server:
        (work_dir / "agent.yaml").write_text(SPECS[provider].format(url=server.url), "utf-8")
        result = run_cli("run", "agent.yaml", "1+1", "--conversation", "wire")
    assert (result.code, result.out, len(server.requests)) == (0, "2\n", 2), result.err
    monkeypatch.delenv("WIRE_KEY")
    return provider


def test_bodies_of_a_script_are_built_again(run_cli: RunCli, conversation: str) -> None:
    """Bodies are built again and counted; `--no-wire` builds none, and says so."""
    result = run_cli("replay", conversation)
    assert (result.code, result.out) == (
        0,
        "talk: 6 steps and 2 requests recomputed, 2 bodies built again, all equal\n",
    )
    counts = {"steps": 6, "requests": 2, "bodies": 2, "answers": 0}
    whole = json.loads(run_cli("replay", conversation, "--json").out)
    assert whole == {"conversation": conversation, "ok": True, **counts}
    result = run_cli("replay", conversation, "--no-wire")
    assert result.out == (
        "talk: 6 steps and 2 requests recomputed, all equal; "
        "bodies and answers of model calls not compared (--no-wire)\n"
    )
    assert "bodies" not in json.loads(run_cli("replay", conversation, "--no-wire", "--json").out)


def test_bodies_of_a_host_are_built_again(run_cli: RunCli, called_host: str) -> None:
    """The bodies are equal without the host and its key, by the agent of the log."""
    result = run_cli("replay", "wire")
    assert (result.code, result.err) == (0, "")
    reason = "the log does not keep them"
    assert f"2 bodies built again, all equal; 2 answers not compared: {reason}\n" in result.out
    data = json.loads(run_cli("replay", "wire", "--json").out)
    assert (data["bodies"], data["answers"], data["not_compared"]) == (2, 0, {"answers": {reason: 2}})


def test_bodies_of_a_streamed_turn_are_built_again(run_cli: RunCli, work_dir: Path) -> None:
    """A body that asked for a stream is equal too, and so is the body of a call that failed."""
    (work_dir / "agent.yaml").write_text(
        "llms: {model: {provider: scripted, model: m, replies: [{fail: {kind: auth}}]}}\n"
        "responses: [{llm: model}]\n",
        "utf-8",
    )
    with Engine("quickstart", log=work_dir / "log.db") as engine:
        engine.run("1+1", conversation="streamed", on_delta=lambda delta: None)
    assert run_cli("run", "agent.yaml", "x", "--conversation", "failed", "--log", "log.db").code == 1
    for name, count in (("streamed", "2 bodies"), ("failed", "1 body")):
        assert f"{count} built again" in run_cli("replay", name, "--log", "log.db").out


def test_a_changed_adapter_is_the_cause(
    run_cli: RunCli, called_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an adapter builds another body, replay names its place and the cause `adapter`."""
    adapter = ADAPTERS[called_host]
    build_body = adapter.build_body
    monkeypatch.setattr(
        adapter,
        "build_body",
        lambda self, request, *, stream: {**build_body(self, request, stream=stream), "x": 1},
    )
    assert run_cli("replay", "wire", "--no-wire").code == 0
    result = run_cli("replay", "wire", "--json")
    mismatch = json.loads(result.out)
    assert (result.code, mismatch["blame"]) == (1, "adapter")
    assert mismatch["pointer"] == "/event/reply/wire_digest"
    assert f"cause: adapter of {called_host}" in run_cli("replay", "wire").err


def test_the_given_agent_builds_the_bodies(run_cli: RunCli, called_host: str) -> None:
    """With `--spec` the bodies are built by that agent; it too needs no key."""
    result = run_cli("replay", "wire", "--spec", "agent.yaml")
    assert (result.code, result.err) == (0, "")
    assert "2 bodies built again" in result.out


# -- what a replay leaves open -----------------------------------------------------------------------


class OwnModel:
    """A provider of the program, which says nothing of the body that it sends; its first call fails."""

    name = "own"

    def __init__(self) -> None:
        self._calls = 0

    async def complete(self, request: Request) -> Reply:
        """Fail once; then answer."""
        self._calls += 1
        if self._calls == 1:
            raise ProviderError(kind="auth", message="no key")
        return Reply(content="hello", finish_reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


PARENT = """
llms: {model: {provider: scripted, model: m, replies: [hello]}}
responses: [{name: chat, llm: model}]
chart:
  name: parent
  states:
    going:
      initial: true
      enter: delegate
      transitions: [{event: agent_finished agent_failed cancelled, target: end}]
    end: {final: true, enter: answer}
  effects: {delegate: {run_agent: {handler: chat}}}
"""


def read_gaps(run_cli: RunCli, name: str) -> tuple[str, dict[str, Any]]:
    """What the last line says after `all equal`, and `not_compared`."""
    shown = run_cli("replay", name, "--log", "gaps.db")
    assert (shown.code, shown.err) == (0, "")
    data = json.loads(run_cli("replay", name, "--log", "gaps.db", "--json").out)
    return shown.out.partition("all equal")[2].strip("; \n"), data.get("not_compared", {})


def test_bodies_that_nothing_says_anything_of_are_named(run_cli: RunCli, work_dir: Path) -> None:
    """A call without a digest of its body, failed or not, and one without an answer are no silent gaps."""
    spec = {"llms": {"model": {"provider": "scripted", "model": "m"}}, "responses": [{"llm": "model"}]}
    with Engine(spec, log=work_dir / "gaps.db", providers={"model": OwnModel()}) as engine:
        for _ in range(2):
            engine.run("hi", conversation="own")
    reason = "the log has no digest of them"
    assert read_gaps(run_cli, "own") == (f"2 bodies not compared: {reason}", {"bodies": {reason: 2}})
    (work_dir / "chat.json").write_text('[{"role": "user", "content": "hi"}]', "utf-8")
    run_cli("import", "chat.json", "--conversation", "open", "--log", "gaps.db")
    reason = "their calls have no answer"
    assert read_gaps(run_cli, "open") == (f"1 body not compared: {reason}", {"bodies": {reason: 1}})


def test_agents_that_the_log_does_not_have_are_named(run_cli: RunCli, work_dir: Path) -> None:
    """Where the conversation of an agent is not in the log, replay says that it did not see it; so it does
    for one that another conversation ran, from which this one was forked."""
    (work_dir / "agent.yaml").write_text(PARENT, "utf-8")
    assert run_cli("run", "agent.yaml", "hi", "--conversation", "p", "--log", "gaps.db").out == "hello\n"
    assert read_gaps(run_cli, "p") == ("", {})
    run_cli("fork", "p", "--at", "1", "--name", "f", "--offline", "--log", "gaps.db")
    reason = "the conversation that was forked ran them"
    assert read_gaps(run_cli, "f") == (f"1 child not compared: {reason}", {"children": {reason: 1}})
    with closing(open_store(work_dir / "gaps.db")) as store:
        store.delete("p.1")
    reason = "the log does not have them"
    assert read_gaps(run_cli, "p") == (f"1 child not compared: {reason}", {"children": {reason: 1}})


def test_calls_whose_notes_explain_other_arguments_are_named(
    run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a tool got other arguments than the model asked for, and the call has notes, replay counts it."""

    @tool
    def list_numbers() -> set[int]:
        """List numbers."""
        return {1}

    monkeypatch.setattr(executor, "compute_arguments_digest", lambda arguments: "0" * 32)
    script = ScriptedModel(call_tool("list_numbers"), "done")
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    with Engine(
        spec, log=work_dir / "gaps.db", providers={"model": script}, functions=[list_numbers]
    ) as engine:
        engine.run("hi", conversation="c")
    reason = "their tools got other arguments, and notes say why"
    assert read_gaps(run_cli, "c") == (f"1 call not compared: {reason}", {"calls": {reason: 1}})
