"""The recipes of `docs/pipelines.md`, run by the tools that they are for."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ticket_desk import Desk, open_desk

from toolchart import Decided, Engine, LogDamaged
from toolchart.engine.log.verify import verify_store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text("utf-8")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk whose agent and log the recipes use."""
    with open_desk(tmp_path) as opened:
        monkeypatch.setenv("AGENT", str(opened.agent))
        monkeypatch.setenv("LOG", str(opened.log))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "ticket_tools", raising=False)
        yield opened
    sys.modules.pop("ticket_tools", None)


def write_recipe(name: str, folder: Path) -> Path:
    """Write a recipe of the page into a folder."""
    (code,) = re.findall(rf'```python title="{name}.py"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)
    path = folder / f"{name}.py"
    path.write_text(code, "utf-8")
    return path


@contextmanager
def load_recipe(name: str, folder: Path) -> Iterator[ModuleType]:
    """Import a recipe of the page."""
    write_recipe(name, folder)
    sys.modules.pop(name, None)
    try:
        yield importlib.import_module(name)
    finally:
        sys.modules.pop(name, None)


def open_engine(desk: Desk) -> Engine:
    """An engine of the desk's agent."""
    return Engine(desk.agent, log=desk.log)


def check_log(desk: Desk) -> None:
    """The log of a desk verifies."""
    with open_engine(desk) as engine:
        assert not [result for result in verify_store(engine.store) if isinstance(result, LogDamaged)]


def approve(desk: Desk, conversation: str) -> None:
    """Approve the call that a conversation waits for, and go on with it."""
    with open_engine(desk) as engine:
        (call,) = engine.conversation(conversation).read_turn().pending_approvals
        engine.conversation(conversation).resume(Decided(call_id=call.id, approved=True))


def wait_until(is_true: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    """Wait for something that another process does."""
    until = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < until, f"this did not happen: {what}"
        time.sleep(0.05)


# -- Celery ----------------------------------------------------------------------------------------


@pytest.fixture
def celery_app(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The recipe for Celery, with broker and results in files."""
    pytest.importorskip("celery", reason="Celery is not installed (extra `test`)")
    for name in ("queue", "results", "control"):
        (desk.folder / name).mkdir()
    monkeypatch.setenv("BROKER", "filesystem://")
    monkeypatch.setenv("RESULTS", f"file://{desk.folder / 'results'}")
    with load_recipe("celery_app", desk.folder) as recipe:
        recipe.app.conf.broker_transport_options = list_folders(desk.folder)
        yield recipe
        recipe.app.close()


def list_folders(folder: Path) -> dict[str, str]:
    """Where Celery's transport over files keeps its messages."""
    queue = str(folder / "queue")
    return {"data_folder_in": queue, "data_folder_out": queue, "control_folder": str(folder / "control")}


def test_celery_tries_again_what_may_pass(desk: Desk, celery_app: ModuleType) -> None:
    """Issue 18: of tasks that run here at once, one that stumbles answers at its second try, and its tool
    ran once; one that is refused fails, with the kind of the failure, and is not tried again."""
    stumbling = celery_app.answer.apply(kwargs={"key": "1", "message": "stumble pay 1"})
    assert (stumbling.state, stumbling.result["conversation"]) == ("SUCCESS", "ticket:1~2")
    assert stumbling.result["diagram"].startswith("stateDiagram-v2")
    assert celery_app.answer.apply(kwargs={"key": "1", "message": "stumble pay 1"}).state == "SUCCESS"
    refused = celery_app.answer.apply(kwargs={"key": "2", "message": "refuse"})
    assert (refused.state, type(refused.result).__name__) == ("FAILURE", "TurnFailed")
    assert str(refused.result.args[0]).startswith("auth: ")
    assert desk.requests == {"stumble pay 1": 3, "refuse": 1}
    assert desk.payments == ["1"]
    check_log(desk)


def start_worker(desk: Desk) -> subprocess.Popen[bytes]:
    """Start a Celery worker with a pool of processes."""
    (desk.folder / "settings.py").write_text(
        f"from celery_app import app\napp.conf.broker_transport_options = {list_folders(desk.folder)!r}\n"
    )
    words = ["-A", "settings", "worker", "--concurrency=2", "--without-gossip", "--without-mingle"]
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import conftest\n"
        f"sys.argv[1:] = {words!r}\n"
        "from celery.__main__ import main; main()"
    )
    with (desk.folder / "worker.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=desk.folder,
            env={**os.environ, "PYTHONPATH": str(desk.folder), "C_FORCE_ROOT": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def test_a_celery_worker(desk: Desk, celery_app: ModuleType) -> None:
    """Issue 18: a real worker runs a task that comes twice once; one that waits for a person is tried later,
    and reads the answer after the decision; a task that is revoked while it runs ends its turn as cancelled,
    and the same key goes on from there, without running its tool again."""
    worker = start_worker(desk)
    try:
        answer = celery_app.answer
        first = answer.delay(key="1", message="pay 1").get(timeout=120)
        assert answer.delay(key="1", message="pay 1").get(timeout=120) == first
        waiting = answer.delay(key="2", message="refund 2")
        wait_until(lambda: waiting.state == "RETRY", "the task that waits is to be tried later")
        approve(desk, "ticket:2")
        assert answer.delay(key="2", message="refund 2").get(timeout=120)["content"] == "done: refund 2"
        running = answer.delay(key="3", message="pay stay 3")
        assert desk.stays.wait(120)
        celery_app.app.control.revoke(running.id, terminate=True)
        wait_until(lambda: running.state == "REVOKED", "the task is revoked")
        with open_engine(desk) as engine:
            wait_until(
                lambda: engine.conversation("ticket:3").read_turn().failure is not None,
                "the turn is cancelled",
            )
            wait_until(lambda: not list(engine.store.list_leases()), "the worker gives it back")  # type: ignore[attr-defined]
        desk.let_go.set()
        assert answer.delay(key="3", message="pay stay 3").get(timeout=120)["conversation"] == "ticket:3~2"
    except BaseException:
        print((desk.folder / "worker.log").read_text("utf-8"))
        raise
    finally:
        worker.terminate()
        worker.wait(120)
    assert desk.payments == ["1", "2", "3"]
    check_log(desk)


# -- Dagster ---------------------------------------------------------------------------------------


@pytest.fixture
def dagster_job(desk: Desk) -> Iterator[ModuleType]:
    """The recipe for Dagster; it does not wait between two tries."""
    pytest.importorskip("dagster", reason="Dagster is not installed (extra `test`)")
    path = write_recipe("dagster_job", desk.folder)
    path.write_text(path.read_text("utf-8").replace("delay=15", "delay=0"), "utf-8")
    sys.modules.pop("dagster_job", None)
    yield importlib.import_module("dagster_job")
    sys.modules.pop("dagster_job", None)


def run_job(recipe: ModuleType, instance: Any, messages: dict[str, str]) -> Any:
    """Run the job of the recipe in this process."""
    config = {"ops": {"list_tickets": {"config": {"messages": messages}}}}
    return recipe.answer_tickets.execute_in_process(
        run_config=config, instance=instance, raise_on_error=False
    )


def list_step_events(run: Any, kind: str) -> list[str]:
    """The steps of a run that have an event of a kind."""
    return [event.step_key for event in run.all_events if event.event_type_value == kind]


def test_dagster_runs_each_ticket_once(desk: Desk, dagster_job: ModuleType) -> None:
    """Issue 18: a job that runs twice answers once; a step that stumbles is tried again, one that is refused
    fails at once; each output, and the failure, has the diagram of its conversation."""
    import dagster

    instance = dagster.DagsterInstance.ephemeral()
    messages = {"a": "pay a", "b": "stumble pay b"}
    first = run_job(dagster_job, instance, messages)
    assert list_step_events(first, "STEP_UP_FOR_RETRY") == ["answer[b]"]
    answers = first.output_for_node("answer")
    assert {key: answer["content"] for key, answer in answers.items()} == {
        "a": "done: pay a",
        "b": "done: stumble pay b",
    }
    second = run_job(dagster_job, instance, messages)
    assert second.output_for_node("answer") == answers
    refused = run_job(dagster_job, instance, {"c": "refuse"})
    assert list_step_events(refused, "STEP_UP_FOR_RETRY") == []
    (failure,) = [event for event in refused.all_events if event.event_type_value == "STEP_FAILURE"]
    details = failure.step_failure_data.user_failure_data
    assert details.description.startswith("auth: ")
    assert details.metadata["diagram"].value.startswith("```mermaid\nstateDiagram-v2")
    assert sorted(desk.payments) == ["a", "b"]
    assert desk.requests == {"pay a": 2, "stumble pay b": 3, "refuse": 1}
    check_log(desk)


def test_dagster_goes_on_after_a_decision(desk: Desk, dagster_job: ModuleType) -> None:
    """Issue 18: a step that waits for a person has no output, and its run ends; the sensor runs the job again
    after the decision, not before, and that run reads the answer."""
    import dagster

    instance = dagster.DagsterInstance.ephemeral()
    waiting = run_job(dagster_job, instance, {"d": "refund d"})
    assert waiting.success
    assert list_step_events(waiting, "STEP_OUTPUT") == ["list_tickets"]

    def look() -> list[Any]:
        with dagster.build_sensor_context(instance=instance) as context:
            return list(dagster_job.go_on(context))

    assert look() == []
    approve(desk, "ticket:d")
    (request,) = look()
    assert request.run_key == waiting.run_id
    messages = request.run_config["ops"]["list_tickets"]["config"]["messages"]
    assert (
        run_job(dagster_job, instance, messages).output_for_node("answer")["d"]["content"] == "done: refund d"
    )
    assert desk.payments == ["d"]


def test_dagster_interrupts_a_turn(desk: Desk, dagster_job: ModuleType) -> None:
    """Issue 18: a run that is terminated cancels the turn of its step, and the next run goes on there."""
    import dagster

    instance = dagster.DagsterInstance.ephemeral()

    def terminate() -> None:
        if desk.stays.wait(120):
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    terminated = run_job(dagster_job, instance, {"e": "pay stay e"})
    thread.join()
    assert list_step_events(terminated, "STEP_FAILURE") == ["answer[e]"]
    with open_engine(desk) as engine:
        assert str(engine.conversation("ticket:e").read_turn().failure).startswith("cancelled: ")
    desk.let_go.set()
    answers = run_job(dagster_job, instance, {"e": "pay stay e"}).output_for_node("answer")
    assert answers["e"]["content"] == "done: pay stay e"
    assert desk.payments == ["e"]


# -- Airflow and Prefect, where they are installed ---------------------------------------------------


def test_airflow_loads_the_recipe(desk: Desk) -> None:
    """Issue 18: Airflow builds a DAG of the recipe: a mapped sensor that is rescheduled and tried again."""
    pytest.importorskip("airflow.sdk", reason="Airflow is not installed; the page says how it was tested")
    with load_recipe("airflow_dag", desk.folder) as recipe:
        dag = recipe.answer_tickets()
    arguments = dag.get_task("answer").partial_kwargs
    assert (arguments["mode"], arguments["retries"]) == ("reschedule", 5)
    assert dag.get_task("answer").upstream_task_ids == {"list_tickets"}


def test_prefect_loads_the_recipe(desk: Desk) -> None:
    """Issue 18: Prefect makes a flow of the recipe, and its task is tried again only where that may help."""
    prefect = pytest.importorskip(
        "prefect", reason="Prefect is not installed; the page says how it was tested"
    )
    with load_recipe("prefect_flow", desk.folder) as recipe:
        assert isinstance(recipe.answer_tickets, prefect.Flow)
        assert isinstance(recipe.answer, prefect.Task)
        assert recipe.answer.retries == 5
        assert recipe.answer.retry_condition_fn is recipe.may_pass
