"""Changes the program in one place at a time and demands that each change is told.

`python tests/mutation/gate.py [--count 20] [--group core ...] [--name TEXT] [--listed] [--json FILE]`

Mutants are drawn by the hash of their names, so the same ones are drawn as long as their functions keep
their text, and a longer run has those of a shorter one. A mutant of the core or of an encoder is told by
`replay` or `verify`: the mutant reads what the program wrote, or the program reads what the mutant writes.
One of a decoder likewise, where the log keeps raw answers. One of the driver, the turns, the executor, the
stores or approvals is told by a test, which is named. A mutant that nothing tells must stand in
`survivors.json` with the reason. Listed ones are left out, unless `--listed` judges them too: one that is
told must go from the list.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import judges
import msgspec
from judges import Logs, Verdict, call_in_child, iterate_modules
from mutants import Mutant, NothingToChange, install_mutant, list_mutants
from named import NAMED, install_named

FOLDER = Path(__file__).resolve().parent
SURVIVORS = FOLDER / "survivors.json"

Judge = Callable[[Callable[[], None]], str]
"""What tells a mutant, given the function that puts it into a process; empty where nothing does."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Modules whose mutants are told in the same way."""

    modules: tuple[str, ...]
    share: int
    """Of a hundred mutants, how many are drawn from it."""
    judges: tuple[Judge, ...]
    tests: tuple[str, ...]
    """Files of tests, below `tests/`, the quickest first."""


# -- judges ------------------------------------------------------------------------------------------


def judge_golden_logs(install: Callable[[], None]) -> str:
    """Golden logs, read by the mutant, and then written by it and read by the program."""
    return _judge_logs(install, judges.read_golden_logs, judges.write_golden_logs, judges.find_refused_log)


def judge_bodies(install: Callable[[], None]) -> str:
    """Conversations with every wire form, likewise."""
    return _judge_logs(
        install, read_proved_logs, judges.write_proved_conversations, judges.find_refused_bodies
    )


def _judge_logs(
    install: Callable[[], None],
    read_logs: Callable[[], Logs],
    write_logs: Callable[[], Logs],
    find_refusal: Callable[[Logs], str],
) -> str:
    logs = read_logs()

    def read_changed() -> str:
        install()
        return find_refusal(logs) or "accepted"

    def write_changed() -> Logs:
        install()
        return write_logs()

    answer = call_in_child(read_changed, judges.SLOWEST_S)
    if answer != "accepted":
        return f"a log of the program, replayed by the mutant: {answer or 'it did not end'}"
    written = call_in_child(write_changed, judges.SLOWEST_S)
    if written is None:
        return "the mutant writes no log: it fails or does not end"
    refusal = call_in_child(lambda: find_refusal(written) or "accepted", judges.SLOWEST_S)
    return "" if refusal == "accepted" else f"a log of the mutant, replayed by the program: {refusal}"


@cache
def read_proved_logs() -> Logs:
    """The conversations with every wire form as the program writes them: recorded once."""
    logs: Logs | None = call_in_child(judges.write_proved_conversations, judges.SLOWEST_S)
    assert logs is not None
    return logs


def judge_written_logs(install: Callable[[], None]) -> str:
    """Whether the mutant writes the golden logs, byte for byte: the quickest of the tests."""

    def write_changed() -> str:
        install()
        return judges.find_other_log() or "accepted"

    answer = call_in_child(write_changed, judges.SLOWEST_S)
    test = "golden/test_golden_logs.py::test_the_engine_writes_the_golden_log"
    return "" if answer == "accepted" else f"a test: {test}[{answer or 'it did not end'}]"


def judge_by_tests(install: Callable[[], None], files: tuple[str, ...]) -> str:
    """The tests of the group. What a test says counts only if it passes without the mutant.

    Raises:
        SystemExit: it does not pass without the mutant.
    """

    def run_changed() -> str:
        install()
        return judges.find_failing_test(files) or "accepted"

    answer = call_in_child(run_changed, 5 * judges.SLOWEST_S)
    if answer == "accepted":
        return ""
    if (
        answer
        and (said := call_in_child(partial(judges.find_failing_test, (answer,)), judges.SLOWEST_S)) != ""
    ):
        raise SystemExit(f"{answer} does not pass here without a mutant: {said}")
    return f"a test: {answer or 'it did not end'}"


# -- groups ------------------------------------------------------------------------------------------

GROUPS: dict[str, Group] = {
    "core": Group(
        modules=tuple(iterate_modules("states/core/*.py", "states/snapshot.py", "states/message_list.py")),
        share=25,
        judges=(judge_golden_logs,),
        tests=(
            "packaging/test_class_tables.py",
            "states/test_core_effects.py",
            "states/test_core_counting.py",
            "states/test_request_digest.py",
            "states/test_flow_check.py",
            "states/test_encoding.py",
            "engine/test_tool_loop.py",
            "engine/test_effects.py",
            "engine/test_turn_ends.py",
            "engine/test_going_on.py",
            "engine/flows",
        ),
    ),
    "wire": Group(
        modules=tuple(
            iterate_modules(
                "providers/*/wire.py",
                "providers/*/stream.py",
                "providers/openai/responses_wire.py",
                "providers/shared/re*.py",
                "providers/text_calls/*.py",
            )
        ),
        share=16,
        judges=(judge_bodies,),
        tests=(
            "providers/test_own_corpus.py",
            "providers/test_wire_bodies.py",
            "providers/test_reply_details.py",
            "providers/test_content_parts.py",
            "providers/test_openai_shapes.py",
            "providers/test_responses_wire.py",
            "providers/test_anthropic_messages.py",
            "providers/test_gemini_ollama_options.py",
            "providers/test_gemini_ollama_streams.py",
            "providers/test_bedrock.py",
            "providers/test_text_calls.py",
            "providers/test_broken_text_calls.py",
            "providers/test_thoughts_in_text.py",
            "providers/test_tool_choice.py",
            "providers/test_model_options.py",
            "providers/test_streaming_adapters.py",
            "providers/test_host_specifics.py",
            "providers/test_recorded_conversations.py",
            "providers/test_joined_streams.py",
            "providers/test_strict_hosts.py",
        ),
    ),
    "driver": Group(
        modules=("engine/runtime/driver.py", "engine/runtime/performers.py", "engine/log/record.py"),
        share=13,
        judges=(judge_written_logs,),
        tests=(
            "packaging/test_class_tables.py",
            "engine/test_tool_loop.py",
            "engine/test_effects.py",
            "engine/test_streaming.py",
            "engine/test_people.py",
            "engine/test_crash_resume.py",
            "engine/test_deadlines.py",
            "engine/test_failing_logs.py",
            "engine/test_turn_ends.py",
            "engine/test_pending_tools.py",
            "engine/test_called_agents.py",
            "engine/test_turn_totals.py",
            "engine/test_turn_warnings.py",
            "engine/test_batch_calls.py",
            "engine/test_resting_children.py",
            "engine/use/test_event_loops.py",
            "engine/test_telemetry.py",
            "engine/flows",
            "security/test_hostile_charts.py",
        ),
    ),
    "turns": Group(
        modules=tuple(iterate_modules("engine/turns/*.py")),
        share=9,
        judges=(judge_written_logs,),
        tests=(
            "app/test_waiting_calls.py",
            "engine/test_message_keys.py",
            "engine/test_lost_leases.py",
            "engine/test_pending_tools.py",
            "engine/test_called_agents.py",
            "engine/test_waiting_messages.py",
            "engine/test_people.py",
            "engine/test_crash_resume.py",
            "engine/use/test_run_once.py",
            "engine/use/test_api.py",
            "engine/test_child_agents.py",
            "engine/test_shared_conversations.py",
            "engine/test_inbox_rule.py",
            "engine/test_resting_children.py",
            "engine/durable/test_stretches.py",
            "app/serve/test_durable_serving.py",
            "engine/test_owners.py",
            "security/test_inbox_entries.py",
        ),
    ),
    "executor": Group(
        modules=tuple(iterate_modules("tools/execution/*.py")),
        share=13,
        judges=(judge_written_logs,),
        tests=(
            "tools/test_running.py",
            "tools/test_executor_order.py",
            "tools/test_repair.py",
            "tools/test_inline_tools.py",
            "tools/test_function_tools.py",
            "tools/test_tool_context.py",
            "tools/test_worker_threads.py",
            "tools/test_idempotency_keys.py",
            "tools/test_tools_in_conversations.py",
            "tools/test_essential_tools.py",
            "engine/test_start_marks.py",
            "engine/test_called_agents.py",
            "security/test_whole_definitions.py",
            "security/test_signed_decisions.py",
        ),
    ),
    "approvals": Group(
        modules=(
            "tools/approval.py",
            "tools/approvers.py",
            "tools/conditions.py",
            "engine/runtime/people.py",
        ),
        share=8,
        judges=(judge_written_logs,),
        tests=("security", "engine/test_people.py"),
    ),
    "watching": Group(
        modules=(
            "engine/watching/grouping.py",
            "engine/watching/recorder.py",
            "engine/watching/watched_conversation.py",
            "engine/watching/following.py",
            "engine/watching/enforcing.py",
        ),
        share=5,
        judges=(),
        tests=(
            "engine/watching/test_single_calls.py",
            "engine/watching/test_following.py",
            "engine/watching/test_recording.py",
            "app/watch/test_enforcing.py",
            "app/watch/test_enforcing_attacks.py",
        ),
    ),
    "held answers": Group(
        modules=tuple(
            f"app/watch/held_answers/{name}.py"
            for name in ("__init__", "reading", "chat", "responses", "messages", "gemini", "ollama")
        ),
        share=3,
        judges=(),
        tests=("app/watch/test_held_answers.py",),
    ),
    "reviews": Group(
        modules=("states/chart_comparison.py", "states/flows/reducers.py", "engine/reading/rerouting.py"),
        share=5,
        judges=(),
        tests=(
            "states/test_named_changes.py",
            "states/test_chart_comparison.py",
            "engine/flows/test_reducers.py",
            "engine/test_other_ways.py",
            "engine/test_rerouting.py",
            "app/test_chart_diff.py",
        ),
    ),
    "stores": Group(
        modules=(
            *("engine/log/leases.py", "engine/log/group_commit.py", "engine/log/stores/base.py"),
            *("engine/log/stores/sql.py", "engine/log/stores/sqlite.py"),
            *("engine/log/stores/memory.py", "engine/log/verify.py"),
        ),
        share=11,
        judges=(),
        tests=(
            "engine/test_store_conformance.py",
            "engine/test_stores.py",
            "engine/test_group_commit.py",
            "engine/test_checkpoints.py",
            "engine/test_tampering.py",
            "engine/test_verify_stores.py",
            "engine/test_lost_leases.py",
        ),
    ),
}


def draw_mutants(
    count: int, names: list[str], text: str, left_out: Collection[str]
) -> Iterator[tuple[str, Mutant]]:
    """The mutants of these groups, each group with its share of the count."""
    total = sum(GROUPS[name].share for name in names)
    for name in names:
        found = [mutant for path in GROUPS[name].modules for mutant in list_mutants(path)]
        found = [mutant for mutant in found if text in mutant.name and mutant.name not in left_out]
        found.sort(key=lambda mutant: mutant.rank)
        for mutant in found[: max(1, round(count * GROUPS[name].share / total))]:
            yield name, mutant


def judge_mutant(group: Group, install: Callable[[], None]) -> str:
    """What tells a mutant; empty where nothing does."""
    answers = (judge(install) for judge in group.judges)
    return next(filter(None, answers), "") or judge_by_tests(install, group.tests)


def main() -> int:
    """Run the gate; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=20, help="how many mutants are drawn (default: 20)")
    parser.add_argument("--group", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--name", default="", help="only mutants whose name has this text")
    parser.add_argument("--listed", action="store_true", help="judge listed survivors too")
    parser.add_argument("--json", type=Path, help="write each verdict as a line of JSON")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many work at a time")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for (
        name,
        group,
    ) in GROUPS.items():  # pytest ends on a missing one, which would look as if it told a mutant
        for test in group.tests:
            assert (judges.TESTS / test).exists(), f"the group {name!r} names {test}, which does not exist"
    left_out = set() if options.listed else set(read_survivors())
    if options.worker:
        drawn = draw_mutants(options.count, options.group, options.name, left_out)
        rows = [*list_named(options.group, options.name), *map(make_row, drawn)]
        work(rows, *map(int, options.worker.split("/")))
        return 0
    verdicts = run_workers(options.json, options.processes)
    return report(verdicts)


class Row(NamedTuple):
    """What a worker judges."""

    group: Group
    install: Callable[[], None]
    name: str
    place: str


def list_named(groups: list[str], text: str) -> list[Row]:
    """The mutants of these groups that have names."""
    return [
        Row(GROUPS[group], partial(install_named, name), f"named::{name}", "")
        for name, group in NAMED.items()
        if group in groups and text in f"named::{name}"
    ]


def make_row(drawn: tuple[str, Mutant]) -> Row:
    """A mutant that was drawn, with its group."""
    group, mutant = drawn
    place = f"{mutant.path}:{mutant.line}"
    return Row(GROUPS[group], partial(install_mutant, mutant), mutant.name, place)


def work(rows: list[Row], place: int, workers: int) -> None:
    """Judge every so-manieth mutant, and print each verdict."""
    for row in rows[place::workers]:
        with contextlib.suppress(NothingToChange):
            told_by = judge_mutant(row.group, row.install)
            verdict = Verdict(mutant=row.name, place=row.place, told_by=told_by)
            print(msgspec.json.encode(verdict).decode(), flush=True)


def read_survivors() -> dict[str, str]:
    """What nothing tells, each with its reason."""
    survivors: dict[str, str] = json.loads(SURVIVORS.read_text())
    return survivors


def run_workers(file: Path | None, workers: int) -> list[Verdict]:
    """Judge all mutants, with so many processes."""
    command = [sys.executable, *sys.argv]
    processes = [
        subprocess.Popen([*command, f"--worker={place}/{workers}"], stdout=subprocess.PIPE, text=True)
        for place in range(workers)
    ]
    verdicts = []
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(file.open("w")) if file else None
        for process in processes:
            assert process.stdout is not None
            for line in process.stdout:
                verdicts.append(msgspec.json.decode(line, type=Verdict))
                if output is not None:
                    output.write(line)
                    output.flush()
            if process.wait():
                raise SystemExit(f"a worker of the gate failed with {process.returncode}")
    return verdicts


def report(verdicts: list[Verdict]) -> int:
    """Say what told how many, and what survives; 1 where that is not as listed."""
    known = read_survivors()
    counts = Counter(verdict.told_by.split(":")[0] or "nothing" for verdict in verdicts)
    for told_by, number in counts.most_common():
        print(f"{number:5} told by {told_by}")
    survivors = [verdict for verdict in verdicts if not verdict.told_by]
    new = [verdict for verdict in survivors if verdict.mutant not in known]
    stale = [verdict for verdict in verdicts if verdict.told_by and verdict.mutant in known]
    for verdict in new:
        print(f"nothing tells {verdict.place} {verdict.mutant}\n{_describe_rerun(verdict)}")
    for verdict in stale:
        print(f"listed, and told by {verdict.told_by}: {verdict.mutant}\n{_describe_rerun(verdict)}")
    print(f"{len(verdicts)} mutants, {len(survivors)} survivors, {len(survivors) - len(new)} of them listed")
    if new:
        print(f"Write a test that tells them, or list them with the reason in {SURVIVORS.name}.")
    return 1 if new or stale else 0


def _describe_rerun(verdict: Verdict) -> str:
    return f"  alone: python tests/mutation/gate.py --listed --name {shlex.quote(verdict.mutant)}"


if __name__ == "__main__":
    raise SystemExit(main())
