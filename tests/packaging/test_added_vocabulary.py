"""Effects, events and facts of another package are known everywhere: those of docs/extending.md."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import SETUP
from jsonschema import Draft202012Validator
from plugin_installation import install_package, run_with_packages

from toolchart.states.effects import EffectDescriptor, Perform
from toolchart.states.snapshot import SnapshotBuilder
from toolchart.states.starts import list_no_starts
from toolchart.states.vocabulary import EFFECTS, EVENTS, FACTS, Fact

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
TEA = ("run", "stock.yaml", "How much is tea?", "--conversation", "one", "--log", "log.db")

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package."""
    folder = tmp_path_factory.mktemp("shop")
    install_package(ROOT / "tests" / "plugin_package", folder)
    return folder


@pytest.fixture
def run(packages: Path, tmp_path: Path) -> Run:
    """Run a command in a folder with the page's agent and chart; return the process when it has ended."""
    for name in ("prices.csv", "stock.yaml", "stock_chart.yaml"):
        text = re.search(rf"\n`{re.escape(name)}`:\n\n```\w+\n(.*?)```\n", PAGE, re.DOTALL)
        assert text is not None
        (tmp_path / name).write_text(text[1], "utf-8")

    def run_words(*words: str, code: int = 0) -> Any:
        result = run_with_packages(*words, packages=packages, cwd=tmp_path)
        assert result.returncode == code, (words, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        return result

    return run_words


def run_code(code: str, packages: Path, folder: Path) -> Any:
    """Run Python code in a process that sees the package."""
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path}
    words = [sys.executable, "-c", f"{SETUP}\n{code}"]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def change_chart(folder: Path, old: str, new: str) -> None:
    """Change the chart of the page."""
    path = folder / "stock_chart.yaml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


# -- charts ------------------------------------------------------------------------------------------


def test_check_knows_the_words(run: Run) -> None:
    """The chart of the page is clean, and the added counter bounds its cycle."""
    report = json.loads(run("check", "stock_chart.yaml", "--json").stdout)
    assert report["findings"] == []
    assert report["worst"]["model_calls"] == 5


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        ("      - {event: failed, target: error}\n      - {event: cancelled, target: error}\n\n  prompting",
         "\n  prompting", "unhandled", "no transition handles 'failed'"),
        ("      - {event: stock_found, target: prompting}\n", "", "gap", "handles 'stock_found' when"),
        ("cond: stock_looks < max_attempts", "cond: not in_stock", "unbounded", "looking -> looking"),
        ("cond: in_stock", "cond: stock_looks >= 0", "dead row", "never fires"),
    ],
)  # fmt: skip
def test_check_finds_what_is_wrong_with_the_words(
    old: str, new: str, kind: str, text: str, run: Run, tmp_path: Path
) -> None:
    """A missing row, a cycle without a bound and a dead row are findings, with the added words in them."""
    change_chart(tmp_path, old, new)
    findings = json.loads(run("check", "stock_chart.yaml", "--json", code=1).stdout)["findings"]
    assert any(found["kind"] == kind and text in found["message"] for found in findings), findings


def test_an_added_counter_counts_in_the_worst_case(run: Run, tmp_path: Path) -> None:
    """A model call in a cycle that the added counter bounds is counted once for each round."""
    change_chart(tmp_path, "cond: in_stock}", "cond: in_stock and stock_looks >= max_attempts}")
    change_chart(tmp_path, "{event: stock_found, target: looking, ", "{event: stock_found, target: asking, ")
    row = "transitions: [{event: replied, target: looking}, {event: failed, target: error}]"
    change_chart(tmp_path, "  prompting:\n", f"  asking:\n    enter: call_model\n    {row}\n\n  prompting:\n")
    report = json.loads(run("check", "stock_chart.yaml", "--json").stdout)
    assert report["worst"]["model_calls"] == 5 + 2  # after the first and the second of three looks
    assert report["formulas"]["model_calls"] == "max_iterations + max_attempts - 1"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("enter: look_at_stock", "enter: look_at_stok", "did you mean 'look_at_stock'"),
        ("event: stock_found, target: looking", "event: stock_fond, target: looking", "'stock_found'"),
        ("cond: in_stock", "cond: in_stok", "'in_stock'"),
        ("cond: in_stock", "cond: in_stock >= 1", "in_stock is not a number"),
        ("cond: in_stock", "cond: stock_looks", "takes the number stock_looks for a truth"),
        ("final: true, enter: answer}", "final: true, enter: look_at_stock}", "over before the answer"),
    ],
)
def test_mistakes_with_the_words_are_refused(old: str, new: str, text: str, run: Run, tmp_path: Path) -> None:
    """A misspelt word, a wrong type and an effect in a final state are refused, at their place."""
    change_chart(tmp_path, old, new)
    error = run("check", "stock_chart.yaml", code=2).stderr
    assert text in error
    assert re.search(r"stock_chart\.yaml:\d+", error)


@pytest.mark.parametrize("format_", ["mermaid", "dot", "table"])
def test_diagrams_show_the_words(format_: str, run: Run) -> None:
    """Every text format names the effect, the event and the facts."""
    text = run("draw", "stock_chart.yaml", "--format", format_).stdout
    assert all(word in text for word in ("stock_found", "in_stock", "stock_looks"))


# -- turns -------------------------------------------------------------------------------------------


def test_the_engine_performs_the_effect(run: Run) -> None:
    """A turn asks for the effect with its arguments, and the log is shown, verified, replayed and drawn."""
    assert "tea" in run(*TEA).stdout
    on_log = ("one", "--log", "log.db")
    shown = run("show", *on_log).stdout
    assert "⇒ look_at_stock" in shown
    assert 'item: "tea"' in shown
    assert "because in_stock" in shown
    assert "verify" in run("verify", *on_log).stdout
    assert "all equal" in run("replay", *on_log).stdout
    assert "stock_found" in run("draw", *on_log, "--format", "mermaid").stdout


def test_records_fit_their_schema(run: Run, packages: Path, tmp_path: Path) -> None:
    """The schema of records names the added event and its package, and every record of the turn fits it."""
    schema = json.loads(run("schema", "record").stdout)
    events = schema["properties"]["event"]["oneOf"]
    (added,) = [event for event in events if "package" in event.get("description", "")]
    assert added["description"] == "An event of the package toolchart-shop."
    assert added["properties"]["type"] == {"const": "stock_found"}
    run(*TEA[:-1], "log.db")
    lines = run("export", "--format", "jsonl", "--log", "log.db").stdout.splitlines()
    records = [json.loads(line) for line in lines if line.startswith('{"seq":')]
    for record in records:
        Draft202012Validator(schema).validate(record)
    (ask,) = records[1]["asks"]
    assert ask.pop("digest")
    assert [ask] == [{"id": 1, "effect": "look_at_stock", "arguments": {"item": "tea"}}]
    assert records[2]["event"] == {"type": "stock_found", "effect": 1, "item": "tea", "count": 3}


READ_LOG = """
from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code
for words in {words!r}:
    assert run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False)) == 0, words
    assert "toolchart_shop" not in sys.modules, words
"""


def test_reading_a_log_loads_no_code(run: Run, packages: Path, tmp_path: Path) -> None:
    """A log that names the added words is listed, shown, verified and exported without the package."""
    run(*TEA)
    lines = [
        ["runs"],
        ["show", "one"],
        ["show", "one", "--json"],
        ["show", "one", "-n", "1"],
        ["stats"],
        ["verify", "one"],
    ]
    lines += [["export", "one", "--format", form] for form in ("openai", "jsonl")]
    words = [[*line, "--log", "log.db"] for line in lines]
    result = run_code(READ_LOG.format(words=words), packages, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "stock_found" in result.stdout


def test_a_counter_bounds_the_looks_of_each_turn(run: Run) -> None:
    """What is kept lasts until the turn ends: two turns of one conversation look three times each."""
    words = ("run", "stock.yaml", "How much is coffee?", "--conversation", "one", "--log", "log.db")
    for turn in (1, 2):
        assert "coffee" in run(*words).stdout
        assert run("show", "one", "--log", "log.db").stdout.count("stock_found ") == 3 * turn


# -- failures ----------------------------------------------------------------------------------------

BROKEN_PERFORMANCES = {
    "raise": ("raise OSError('no shelf')", "OSError: no shelf"),
    "other value": ("return 3", "returned 3, and not one of stock_found, failed"),
    "wrong type": ("return stock.StockFound(item=7)", "item"),
    "no item": ("return stock.StockFound(item='')", "KeyError: 'tea'"),
}
"""The body of `perform`, and what the message of the failure holds. The last one fails in `reduce`."""

BREAK = """
from toolchart_shop import stock
from toolchart.states.vocabulary import EVENTS
async def look(effect):
    {body}
stock.look_at_stock = look
def reduce(builder, event, next=EVENTS.find("stock_found").reduce):
    next(builder, event) if event.item else {{}}["tea"]
import msgspec
msgspec.structs.force_setattr(EVENTS.find("stock_found"), "reduce", reduce)
sys.argv[1:] = {words!r}
main()
"""


@pytest.mark.parametrize("case", BROKEN_PERFORMANCES)
def test_a_failing_effect_is_a_failure_of_the_turn(
    case: str, run: Run, packages: Path, tmp_path: Path
) -> None:
    """Whatever goes wrong in `perform` becomes `failed`, with the kind `effect` and the reason."""
    body, text = BROKEN_PERFORMANCES[case]
    result = run_code(BREAK.format(body=body, words=[*TEA, "--json"]), packages, tmp_path)
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "effect"
    assert text in error["message"]
    assert "all equal" in run("replay", "one", "--log", "log.db").stdout


def test_a_failure_without_a_row_ends_the_turn(run: Run, packages: Path, tmp_path: Path) -> None:
    """Where the chart has no row for `failed`, the core ends the turn as stuck; nothing hangs or crashes."""
    change_chart(
        tmp_path,
        "      - {event: failed, target: error}\n      - {event: cancelled",
        "      - {event: cancelled",
    )
    body = BROKEN_PERFORMANCES["raise"][0]
    result = run_code(BREAK.format(body=body, words=[*TEA, "--json"]), packages, tmp_path)
    assert json.loads(result.stdout)["error"]["kind"] == "stuck"
    assert "OSError: no shelf" in run("show", "one", "--log", "log.db").stdout


DIE = """
import os, signal
from toolchart.engine.log import record as records
from toolchart_shop import stock
records.CHECKPOINT_EVERY = 1
looks = 0
async def look(effect, look=stock.look_at_stock):
    global looks
    looks += 1
    if looks == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return await look(effect)
stock.look_at_stock = look
sys.argv[1:] = {words!r}
main()
"""

READ = """
from toolchart.engine.log import replay
from toolchart.engine.log.stores import open_store
def refuse(*_): raise AssertionError("a step was derived")
replay.derive_step = refuse
snapshot = replay.load_conversation(open_store("log.db"), "one").snapshot
print(snapshot.open_effects, snapshot.added_data)
"""


def test_an_open_effect_is_performed_again(run: Run, packages: Path, tmp_path: Path) -> None:
    """After a kill inside `perform` a checkpoint holds the open effect and the data; `resume` performs it."""
    words = ["run", "stock.yaml", "How much is coffee?", *TEA[3:]]
    assert run_code(DIE.format(words=words), packages, tmp_path).returncode == -signal.SIGKILL
    read = run_code(READ, packages, tmp_path)
    assert read.stdout.strip() == (
        "(Perform(id=2, name='look_at_stock', state='looking', kind='', result='', "
        "arguments={'item': 'coffee'}),) "
        "{'shop': {'item': 'coffee', 'count': 0, 'looks': 1}}"
    ), read.stderr
    assert "coffee" in run("resume", "one", "--spec", "stock.yaml", "--log", "log.db").stdout
    assert run("show", "one", "--log", "log.db").stdout.count("stock_found ") == 3
    assert "all equal" in run("replay", "one", "--log", "log.db").stdout


# -- rows --------------------------------------------------------------------------------------------


def build(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Perform:
    """The value of an effect without arguments."""
    return Perform(id=id_, name=name, state=state)


def test_a_performed_effect_needs_an_event_for_failures() -> None:
    """A row with `perform` names the event that answers, and `failed`."""
    row = {"name": "x", "meaning": "do it", "build": build, "perform": "a:b", "list_starts": list_no_starts}
    for closing in ((), ("replied",), ("failed",)):
        (gap,) = EffectDescriptor(**row, closing=closing).find_gaps()  # type: ignore[arg-type]
        assert "`closing` must name" in gap
    assert EffectDescriptor(**row, closing=("x_done", "failed")).find_gaps() == []  # type: ignore[arg-type]


def test_an_effect_says_what_it_starts() -> None:
    """A row that does not say what its effect starts is incomplete, with `perform` and without."""
    row = EffectDescriptor(name="x", meaning="do it", build=build)
    assert row.find_gaps() == ["`list_starts` is missing: the function that lists what it starts"]


def test_a_counter_needs_a_limit() -> None:
    """A counter of another package is an integer that grows up to a limit of Toolchart."""
    row: dict[str, Any] = {"name": "x", "meaning": "m", "changes": "c", "read": len, "type": "integer"}
    cases = {
        "`limit` is missing": {"moved_by": ("replied",)},
        "no fact of Toolchart": {"moved_by": ("replied",), "limit": "max_x"},
        "are for integer facts": {"type": "boolean", "reset_by": ("replied",)},
    }
    for text, change in cases.items():
        assert text in " ".join(Fact(**{**row, **change}).find_gaps())
    assert Fact(**row, moved_by=("replied",), limit="max_attempts").find_gaps() == []


def test_kept_data_is_json_data() -> None:
    """`keep_data` keeps a copy in the form that a checkpoint gives back, and changes no earlier snapshot."""
    builder = SnapshotBuilder()
    before = builder.build()
    data = {"rows": [1, 2], "pair": (1, 2)}
    builder.keep_data("shop", data)
    data["rows"] = []
    assert builder.build().added_data == {"shop": {"rows": [1, 2], "pair": [1, 2]}}
    assert before.added_data == {}
    with pytest.raises(TypeError):
        builder.keep_data("shop", object())


def test_every_answer_of_an_effect_is_an_event() -> None:
    """The rows of Toolchart name events that exist, and limits that are facts."""
    for effect in EFFECTS.builtin_rows:
        rows = [EVENTS.find(event) for event in effect.answers]
        assert all(row.is_answer or row.is_external for row in rows)
    for fact in FACTS.builtin_rows:
        assert all(event in EVENTS for event in (*fact.moved_by, *fact.reset_by))


# -- logs of others ------------------------------------------------------------------------------------

PLANTED = """
import asyncio
from toolchart import Engine
from toolchart.states.errors import EffectRefused

async def plant():
    engine = Engine("stock.yaml", log="log.db")
    started = await engine._agent.plan_turn("c", "How much is tea?", {})
    driver = await engine._conversations.prepare_driver("c", started.settings.service)
    with engine._log:
        driver.apply_event(started)
        await driver.commit()
    assert [effect.name for effect in driver.snapshot.open_effects] == ["look_at_stock"]
    await engine.aclose()

async def go_on(spec):
    async with Engine(spec, log="log.db") as engine:
        return await engine.aresume("c")

asyncio.run(plant())
spec = {"chart": "tool_loop", "llms": {"clerk": {"provider": "scripted", "model": "m", "replies": ["hi"]}},
        "responses": [{"llm": "clerk", "prompt": "x"}]}
import toolchart_shop.stock as stock
calls, look = [], stock.look_at_stock

async def look_and_note(effect):
    calls.append(effect.name)
    return await look(effect)

stock.look_at_stock = look_and_note
try:
    asyncio.run(go_on(spec))
except EffectRefused as error:
    print("refused", error.effect, calls)
print(asyncio.run(go_on("stock.yaml")).state, calls)
"""


def test_an_effect_of_a_package_is_performed_only_where_the_operator_names_it(
    packages: Path, run: Run, tmp_path: Path
) -> None:
    """That a package is installed lets no log perform its effects: the operator has to name them."""
    result = run_code(PLANTED, packages, tmp_path)
    assert result.stdout.splitlines() == ["refused look_at_stock []", "finished ['look_at_stock']"], (
        result.stderr
    )
