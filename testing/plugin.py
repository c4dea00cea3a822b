"""The pytest plugin: fixtures for scripted models, emulated hosts, a log, and a check that logs replay.

    def test_adds(scripted_model, toolchart_log, assert_replays):
        model = scripted_model(
            {"tool_calls": [{"name": "calculator", "arguments": {"expression": "2+3"}}]}, "5"
        )
        with Engine("my_agent.yaml", log=toolchart_log, providers={"model": model}) as engine:
            assert engine.run("2 + 3?").content == "5"
        assert_replays(toolchart_log)

pytest loads the plugin wherever Toolchart is installed; `-p no:toolchart` turns it off. The plugin imports
the rest of Toolchart only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from toolchart.engine.log.replay import ReplayedStep
    from toolchart.states.ports import Store
    from toolchart.testing.doubles import ScriptedModel
    from toolchart.testing.emulators import Emulator


class EmulatedHost(Protocol):
    """Serves the emulator of a model host."""

    def __call__(self, name: str, **options: Any) -> Emulator:
        """Serve the host of this name; the options are those of `emulate_host`."""
        ...


AssertReplays = Callable[..., "dict[str, list[ReplayedStep]]"]


@pytest.fixture
def scripted_model() -> type[ScriptedModel]:
    """Makes scripted models: `scripted_model("first reply", "second reply")`; as `ScriptedModel`."""
    from toolchart.testing.doubles import ScriptedModel

    return ScriptedModel


@pytest.fixture
def emulated_host() -> Iterator[EmulatedHost]:
    """A function that serves the emulator of a host until the test ends: `emulated_host("mistral").entry` is
    an `llms` entry that calls it."""
    from toolchart.testing.emulators import emulate_host

    with ExitStack() as servers:
        yield lambda name, **options: servers.enter_context(emulate_host(name, **options))


@pytest.fixture
def toolchart_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a log for this test alone; the command line uses it too (`TOOLCHART_LOG`)."""
    path = tmp_path / "toolchart-log.db"
    monkeypatch.setenv("TOOLCHART_LOG", str(path))
    return path


@pytest.fixture
def assert_replays() -> AssertReplays:
    """A function that checks that every conversation of a log replays, offline and step by step.

    `assert_replays(log)` or `assert_replays(log, "conversation")` takes a path or an open store and
    returns the steps of each conversation. It fails on an empty log, which would prove nothing.
    """
    return _assert_replays


def _assert_replays(
    log: Store | str | Path, conversation: str | None = None
) -> dict[str, list[ReplayedStep]]:
    from toolchart.engine.log.stores import open_store

    if not isinstance(log, (str, Path)):
        return _replay_conversations(log, conversation)
    store = open_store(log, create=False)
    try:
        return _replay_conversations(store, conversation)
    finally:
        store.close()


def _replay_conversations(store: Store, conversation: str | None) -> dict[str, list[ReplayedStep]]:
    from toolchart.engine.log.replay import replay_conversation
    from toolchart.states.errors import LogDamaged, ReplayMismatch

    names = [conversation] if conversation is not None else list(store.list_conversations())
    steps: dict[str, list[ReplayedStep]] = {}
    for name in names:
        try:
            steps[name] = list(replay_conversation(store, name))
        except (ReplayMismatch, LogDamaged) as error:
            pytest.fail(f"conversation {name!r} does not replay: {error}", pytrace=False)
    empty = [name for name in names if not steps[name]]
    if empty or not names:
        pytest.fail(f"nothing to replay: {empty or 'the log is empty'}", pytrace=False)
    return steps
