"""The pytest plugin: a scripted model, a temporary log, and a check that logs replay.

    def test_adds(scripted_model, toolchart_log, assert_replays):
        model = scripted_model(
            {"tool_calls": [{"name": "calculator", "arguments": {"expression": "2+3"}}]}, "5"
        )
        with Engine("my_agent.yaml", log=toolchart_log, providers={"model": model}) as engine:
            assert engine.run("2 + 3?").content == "5"
        assert_replays(toolchart_log)

It is active wherever Toolchart is installed (`-p no:toolchart` turns it off) and loads nothing else
until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from toolchart.engine.log.replay import Replayed
    from toolchart.providers.scripted.provider import ScriptedProvider
    from toolchart.states.ports import Store


class ScriptedModel(Protocol):
    """Makes a provider that answers by script."""

    def __call__(self, *replies: Any, rules: Sequence[Mapping[str, Any]] = ()) -> ScriptedProvider:
        """Replies in order: texts, mappings (`content`, `tool_calls`, `finish_reason`, `fail`),
        `Reply` values or functions; or rules, as in an agent spec."""
        ...


AssertReplays = Callable[..., "dict[str, list[Replayed]]"]


@pytest.fixture
def scripted_model() -> ScriptedModel:
    """A maker of scripted models: `scripted_model("first reply", "second reply")`."""

    def make(*replies: Any, rules: Sequence[Mapping[str, Any]] = ()) -> ScriptedProvider:
        from toolchart.providers.scripted.provider import ScriptedProvider

        return ScriptedProvider(replies, rules=rules)

    return make


@pytest.fixture
def toolchart_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a log of this test's own; the command line uses it too (`TOOLCHART_LOG`)."""
    path = tmp_path / "toolchart-log.db"
    monkeypatch.setenv("TOOLCHART_LOG", str(path))
    return path


@pytest.fixture
def assert_replays() -> AssertReplays:
    """A check that every conversation of a log derives again, offline, step by step.

    `assert_replays(log)` or `assert_replays(log, "conversation")` takes a path or an open store and
    gives the steps of each conversation. An empty log fails: it would prove nothing.
    """
    return _assert_replays


def _assert_replays(
    log: Store | str | Path, conversation: str | None = None
) -> dict[str, list[Replayed]]:
    from toolchart.engine.log.stores import open_store

    if not isinstance(log, (str, Path)):
        return _replayed(log, conversation)
    store = open_store(log, create=False)
    try:
        return _replayed(store, conversation)
    finally:
        store.close()


def _replayed(store: Store, conversation: str | None) -> dict[str, list[Replayed]]:
    from toolchart.engine.log.replay import replay_of
    from toolchart.states.errors import LogDamaged, ReplayMismatch

    names = [conversation] if conversation is not None else list(store.conversations())
    steps: dict[str, list[Replayed]] = {}
    for name in names:
        try:
            steps[name] = list(replay_of(store, name))
        except (ReplayMismatch, LogDamaged) as error:
            pytest.fail(f"conversation {name!r} does not replay: {error}", pytrace=False)
    empty = [name for name in names if not steps[name]]
    if empty or not names:
        pytest.fail(f"nothing to replay: {empty or 'the log is empty'}", pytrace=False)
    return steps
