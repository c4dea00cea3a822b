"""`toolchart seal`, `prune`, `show --newest`, `--follow` and `--around`, and the filters of `runs`."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from worker_names import ALIVE

from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.retention import delete_conversations
from toolchart.engine.log.stores import DEFAULT_LOG, open_store
from toolchart.tools.signing_keys import format_public_key

RunCli = Callable[..., Any]


@pytest.fixture
def run_in_log(run_cli: RunCli) -> RunCli:
    """`run_cli` in a folder with three conversations: a sum, a time, and a call that waits for approval."""
    run_cli("run", "quickstart", "17 * 27", "--conversation", "sum")
    run_cli("run", "quickstart", "what time is it?", "--conversation", "time")
    run_cli("run", "careful", "delete a.txt", "--conversation", "waits")
    return run_cli


def list_ids(result: Any) -> list[str]:
    """Return the ids in the output of `runs --json`."""
    return [json.loads(row)["conversation"] for row in result.out.splitlines()]


def test_a_name_without_a_key_is_said_to_prove_nothing(run_in_log: RunCli) -> None:
    """`approve --as NAME` without a key says once that the decision is not signed, and how to sign; without a
    name nothing is said, and the log has `command line`, as the help says."""
    words = ("approve", "waits", "call_1_0_0", "--deny", "--spec", "careful")
    named = run_in_log(*words, "--as", "anna")
    assert named.code == 0
    assert named.err.count("--as anna without --key: the decision is not signed") == 1
    assert "toolchart approve --new-key FILE" in named.err
    assert "denied by anna (unsigned)" in run_in_log("show", "waits").out
    run_in_log("run", "careful", "delete b.txt", "--conversation", "again")
    plain = run_in_log("approve", "again", "call_1_0_0", "--deny", "--spec", "careful")
    assert (plain.code, "signed" in plain.err) == (0, False)
    assert "denied by command line (unsigned)" in run_in_log("show", "again").out
    assert "`command line`" in run_in_log("approve", "--help").out


def test_a_seal_detects_removed_records(run_in_log: RunCli, work_dir: Path) -> None:
    """`verify --seal FILE` detects records removed from the end since `verify --seal-to FILE`."""
    assert run_in_log("verify", "--seal-to", "seal.json").code == 0
    assert run_in_log("verify", "--seal", "seal.json").code == 0
    run_in_log("run", "quickstart", "2+2", "--conversation", "sum")
    assert "3 of 3 sealed conversations" in run_in_log("verify", "--seal", "seal.json").err
    with sqlite3.connect(work_dir / DEFAULT_LOG) as database:
        database.execute("DELETE FROM records WHERE id >= (2 << 32) + 4 AND id < 3 << 32")
        database.execute("DELETE FROM small_values WHERE conversation = 'time' AND key >= '000000000004'")
    assert run_in_log("verify").code == 0, "the chain alone cannot tell"
    result = run_in_log("verify", "--seal", "seal.json", "--seal-to", "next.json")
    assert result.code == 5
    assert "conversation time, record 4: it had 6 records" in result.err
    assert "2 of 3 sealed conversations" in result.err
    assert not (work_dir / "next.json").exists(), "a loss is not sealed over"
    assert run_in_log("verify", "sum", "--seal", "seal.json").code == 0


def test_a_damaged_conversation_is_not_counted_as_whole(run_in_log: RunCli, work_dir: Path) -> None:
    """With `--seal`, a conversation whose newest record is there and whose middle is damaged does not
    count as whole; whatever is damaged, the count comes at the end."""
    assert run_in_log("verify", "--seal-to", "seal.json").code == 0
    with sqlite3.connect(work_dir / DEFAULT_LOG) as database:
        database.execute("UPDATE records SET line = x'00' WHERE id = (1 << 32) + 2")
        database.execute("DELETE FROM records WHERE id >= (2 << 32) + 2 AND id < 3 << 32")
    result = run_in_log("verify", "--seal", "seal.json")
    assert result.code == 5
    assert "1 of 3 sealed conversations are intact and have all that was sealed" in result.err
    assert "damaged: conversation sum, record 2" in result.err
    assert run_in_log("verify", "waits", "--seal", "seal.json").code == 0
    one = run_in_log("verify", "sum", "--seal", "seal.json")
    assert (one.code, "0 of 1 sealed conversations" in one.err) == (5, True)
    with sqlite3.connect(work_dir / DEFAULT_LOG) as database:
        database.execute("DELETE FROM records WHERE id = (1 << 32) + 5 OR id = (3 << 32) + 1")
        database.execute("UPDATE records SET line = x'00' WHERE id = (1 << 32) + 4")
    result = run_in_log("verify", "--seal", "seal.json")
    assert (result.code, "0 of 3 sealed conversations" in result.err) == (5, True)


def test_a_seal_of_one_conversation(run_in_log: RunCli, work_dir: Path) -> None:
    """With CONVERSATION only that one is sealed; a damaged log is not sealed."""
    assert run_in_log("verify", "sum", "--seal-to", "one.json").code == 0
    assert [head[:2] for head in json.loads((work_dir / "one.json").read_text())["heads"]] == [["sum", 6]]
    with sqlite3.connect(work_dir / DEFAULT_LOG) as database:
        database.execute("UPDATE records SET line = replace(line, '459', '460')")
    assert run_in_log("verify", "--seal-to", "all.json").code == 5
    assert not (work_dir / "all.json").exists()


def test_seals_are_signed_with_a_key(run_in_log: RunCli, work_dir: Path) -> None:
    """`--key-file` signs; the public key comes from `--key` or the spec. A seal is never overwritten, and
    after `prune` a new one is made."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (work_dir / "seal.pem").write_bytes(pem)
    (work_dir / "seal.pub").write_text(format_public_key(key.public_key()), "utf-8")
    make = ("verify", "--seal-to", "seal.json", "--key-file", "seal.pem")
    result = run_in_log(*make)
    assert (result.code, "chmod 600" in result.err) == (2, True), "others can read the key"
    (work_dir / "seal.pem").chmod(0o600)
    assert run_in_log(*make).code == 0
    assert stat.S_IMODE((work_dir / "seal.json").stat().st_mode) == 0o600
    result = run_in_log(*make)
    assert (result.code, "never overwritten" in result.err) == (2, True)
    words = ("verify", "--seal", "seal.json")
    assert run_in_log(*words, "--key", "seal.pub").code == 0
    result = run_in_log(*words)
    assert (result.code, "no key is given" in result.err) == (2, True)
    (work_dir / "agent.json").write_text(
        json.dumps(
            {
                "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["ok"]}},
                "responses": [{"llm": "m"}],
                "seal_keys": [format_public_key(key.public_key())],
            }
        ),
        "utf-8",
    )
    assert run_in_log(*words, "--spec", "agent.json").code == 0
    pruned = run_in_log("prune", "--keep", "1")
    assert (pruned.code, pruned.out.split()) == (0, ["sum", "time"])
    assert "is gone" in run_in_log(*words, "--key", "seal.pub").err
    assert run_in_log("verify", "--seal-to", "later.json").code == 0
    result = run_in_log("verify", "--seal", "later.json", "--key", "seal.pub")
    assert (result.code, "not signed" in result.err) == (5, True)
    for wrong in (("--seal", "none"), ("--seal", "seal.json", "--key", "none"), ("--key-file", "seal.pem")):
        assert run_in_log("verify", *wrong).code == 2


def test_wrong_keys_of_seals(run_in_log: RunCli, work_dir: Path) -> None:
    """Whatever key of a seal is wrong, the error says which key is wanted; none passes for a check."""
    for number, name in enumerate(("ours", "theirs")):
        key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        path = work_dir / f"{name}.pem"
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = work_dir / f"{name}.pub"
        public.write_text(format_public_key(key.public_key()), "utf-8")
        path.chmod(0o600)
        public.chmod(0o644)
    (work_dir / "note.txt").write_text("no key at all", "utf-8")
    assert run_in_log("verify", "--seal-to", "signed.json", "--key-file", "ours.pem").code == 0
    assert run_in_log("verify", "--seal-to", "plain.json").code == 0
    for words, code, problem in (
        (("--seal", "signed.json", "--key", "theirs.pub"), 2, "none of the given keys (ed25519:"),
        (("--seal", "signed.json"), 2, "no key is given: nothing was checked\n  name the public key"),
        (("--seal", "signed.json", "--key", "ours.pem"), 2, "ours.pem: this is a private key, and a seal"),
        (("--seal", "signed.json", "--key", "note.txt"), 2, "note.txt: expected a public key: "),
        (("--seal", "plain.json", "--key", "ours.pub"), 5, "not signed, and a key was given"),
        (("--key", "ours.pub"), 2, "--key needs --seal FILE"),
        (("--seal-to", "x.json", "--key-file", "ours.pub"), 2, "ours.pub: this is a public key, and signing"),
    ):
        result = run_in_log("verify", *words)
        assert (result.code, problem in result.err) == (code, True), result.err
        assert not result.out
    signed = run_in_log("verify", "--seal", "signed.json", "--key", "ours.pub")
    assert (signed.code, "not signed" in signed.err) == (0, False)
    plain = run_in_log("verify", "--seal", "plain.json")
    assert (plain.code, "the seal is not signed" in plain.err) == (0, True)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (("--state", "finished"), ["sum", "time"]),
        (("--state", "awaiting_approval"), ["waits"]),
        (("--tool", "calculator"), ["sum"]),
        (("--tool", "delete_file", "--text", "A.TXT"), ["waits"]),
        (("--text", "17 * 27"), ["sum"]),  # a number might stand in a time too
        (("--model", "rehearsal", "--tool", "get_current_datetime"), ["time"]),
        (("--since", "1h"), ["sum", "time", "waits"]),
        (("--until", "2020-01-01"), []),
        (("--since", "2999-01-01T00:00"), []),
        (("--tool", "calculator", "--state", "error"), []),
    ],
)
def test_runs_filters_conversations(run_in_log: RunCli, words: tuple[str, ...], ids: list[str]) -> None:
    """`runs` filters by state, tool, model, text and time; all filters must match."""
    assert list_ids(run_in_log("runs", "--json", *words)) == ids
    if not ids:
        told = run_in_log("runs", *words).err
        states = "no conversation is in the state 'error'; there are: awaiting_approval, finished"
        assert (states if "error" in words else "none of 3 conversations matches") in told


def test_show_around_a_record(run_in_log: RunCli) -> None:
    """`--around` shows a record with its neighbours; a missing record is an error with the valid range."""
    result = run_in_log("show", "sum", "--around", "3", "--context", "1", "--json")
    assert [json.loads(row)["seq"] for row in result.out.splitlines()] == [2, 3, 4]
    assert "its records are 0 to 5" in run_in_log("show", "sum", "--around", "6").err


def test_prune_deletes_and_prints_ids(run_in_log: RunCli) -> None:
    """`prune` deletes whole conversations and keeps one that waits for approval; the rest verifies."""
    assert run_in_log("prune").code == 2
    assert run_in_log("prune", "--older-than", "soon").code == 2
    assert run_in_log("prune", "--older-than", "1d").out == ""
    assert run_in_log("prune", "--keep", "1", "--dry-run").out.split() == ["sum", "time"]
    assert list_ids(run_in_log("runs", "--json")) == ["sum", "time", "waits"]
    result = run_in_log("prune", "--keep", "1")
    assert (result.out.split(), result.code) == (["sum", "time"], 0)
    assert "2 of 3 conversations deleted" in result.err
    assert list_ids(run_in_log("runs", "--json")) == ["waits"]
    assert run_in_log("verify").code == 0


@pytest.mark.parametrize("log", ["log.db", None])
def test_prune_keeps_what_a_worker_has(run_cli: RunCli, work_dir: Path, log: str | None) -> None:
    """`prune` leaves a conversation alone that somebody works on, says so, and deletes the others."""
    words = ("--log", log or "other.db")
    for name in ("a", "b", "c"):
        run_cli("run", "quickstart", "2+2", "--conversation", name, *words)
    store: Any = open_store(work_dir / words[1])
    lease = store.acquire_lease("b", ALIVE, 600)
    if log is None:  # taken after the conversations were selected
        names = iter(delete_conversations(store, ["a", "b", "c"]))
        assert list(names) == ["a", "c"]
    else:
        result = run_cli("prune", "--keep", "0", *words)
        assert (result.code, result.out.split()) == (0, ["a", "c"])
        assert "kept b: somebody works on it" in result.err
    store.release_lease(lease, is_open=False)
    store.close()
    assert run_cli("prune", "--keep", "0", *words).out.split() == ["b"]


def test_prune_shrinks_a_file(run_in_log: RunCli, work_dir: Path) -> None:
    """`prune --vacuum` gives the space of deleted conversations back; what is left verifies."""
    assert run_in_log("prune", "--keep", "1").code == 0
    before = (work_dir / DEFAULT_LOG).stat().st_size
    assert run_in_log("prune", "--vacuum").code == 0
    assert (work_dir / DEFAULT_LOG).stat().st_size < before
    assert run_in_log("verify").code == 0


def test_show_has_the_newest(run_in_log: RunCli) -> None:
    """Without an id `show` takes the conversation written last; `-n` sets the number of records."""
    result = run_in_log("show", "-n", "2", "--json")
    assert [json.loads(row)["seq"] for row in result.out.splitlines()] == [2, 3]
    assert len(run_in_log("show", "sum", "-n", "99", "--json").out.splitlines()) == 6
    assert "no conversations yet" in run_in_log("show", "--log", "memory").err


def test_show_follows_what_another_process_writes(run_in_log: RunCli, work_dir: Path) -> None:
    """`show -f` prints records of another process as they come, until the turn is over or Ctrl-C."""
    words = [sys.executable, "-m", "toolchart", "show", "waits", "-n", "1", "-f", "--json"]
    follow = subprocess.Popen([*words, "--until-over"], cwd=work_dir, stdout=subprocess.PIPE, text=True)
    endless = subprocess.Popen(words, cwd=work_dir, stdout=subprocess.PIPE, text=True)
    assert follow.stdout
    assert endless.stdout
    try:
        # Once both have printed the existing record they are following; then a third process writes.
        assert json.loads(follow.stdout.readline())["seq"] == 3
        assert json.loads(endless.stdout.readline())["seq"] == 3
        approve = [sys.executable, "-m", "toolchart", "approve", "waits", "call_1_0_0", "--deny"]
        subprocess.run(approve, cwd=work_dir, check=True, capture_output=True, timeout=120)
        out, _ = follow.communicate(timeout=120)
        assert json.loads(endless.stdout.readline())["seq"] == 4
        endless.send_signal(signal.SIGINT)
        assert endless.wait(timeout=120) == 3
    finally:
        for process in (follow, endless):
            if process.poll() is None:
                process.kill()
                process.wait()
    assert follow.returncode == 0
    rows = [json.loads(row) for row in out.splitlines()]
    assert [row["seq"] for row in rows] == list(range(4, 4 + len(rows)))
    assert rows[-1]["asks"][0]["effect"] == "answer"


def test_show_follows_to_the_end_of_the_newest_turn(run_cli: RunCli, tmp_path: Path) -> None:
    """`--until-over` passes the ends of earlier turns."""
    log = f"{tmp_path}/turns.db"
    with agents.make_engine(["one", "two"], log=log) as engine:
        engine.run("first", conversation="c")
        engine.run("second", conversation="c")
        count = len(list(engine.store.read_lines("c")))
    rows = run_cli("show", "c", "--log", log, "--follow", "--until-over", "--json").out.splitlines()
    assert [json.loads(row)["seq"] for row in rows] == list(range(count))


def test_prune_deletes_what_an_owner_has(run_cli: RunCli, tmp_path: Path) -> None:
    """`prune --owner` archives and deletes everything of one owner; with --dry-run nothing, and never with
    an age. What others said stays."""
    log = f"{tmp_path}/owners.db"
    for owner in ("anna", "bert"):
        with agents.make_engine([owner, "again"], log=log) as engine:
            engine.run("go", conversation=f"of-{owner}", owner=owner)
            engine.conversation(f"of-{owner}").fork(
                changes=ForkChanges(system="Be long."), name=f"fork-{owner}"
            )
    assert run_cli("prune", "--owner", "anna", "--keep", "1", "--log", log).code == 2
    listed = run_cli("prune", "--owner", "anna", "--dry-run", "--log", log).out.split()
    deleted = run_cli("prune", "--owner", "anna", "--archive", f"{tmp_path}/anna.jsonl", "--log", log)
    assert sorted(listed) == ["fork-anna", "of-anna"]
    assert (deleted.code, deleted.out.split()) == (0, listed)
    store = open_store(log)
    assert set(store.list_conversations()) == {"of-bert", "fork-bert"}
    store.close()
    archived = run_cli("runs", "--json", "--log", f"{tmp_path}/anna.jsonl").out.splitlines()
    assert sorted(json.loads(line)["conversation"] for line in archived) == sorted(listed)
    assert run_cli("prune", "--owner", "anna", "--log", log).out == ""


UNSTOPPABLE = """
llms: {model: {provider: scripted, model: m, replies: [hello]}}
responses: [{llm: model}]
chart:
  name: unstoppable
  states:
    asking: {initial: true, enter: ask, transitions: [{event: answered, target: finished}]}
    finished: {final: true, enter: say}
  effects:
    ask: {ask_person: {question: "Go on?", form: {type: object, properties: {go: {type: boolean}}}}}
    say: {answer: "done"}
"""


def test_cancel_says_that_a_turn_is_still_open(run_cli: RunCli, work_dir: Path) -> None:
    """Where no row of the chart takes `cancelled`, `cancel` says that the turn is open and how it goes on;
    when it has ended, `prune --owner` deletes it."""
    (work_dir / "agent.yaml").write_text(UNSTOPPABLE, "utf-8")
    run_cli("run", "agent.yaml", "hi", "--conversation", "c", "--owner", "anna")
    suspended = run_cli("cancel", "c")
    assert (suspended.code, suspended.out) == (0, "c: asking\n")
    assert "suspended and still open" in suspended.err
    assert "toolchart resume c" in suspended.err
    assert run_cli("prune", "--owner", "anna").code == 2
    assert run_cli("resume", "c", "--spec", "agent.yaml", "--answer", '{"go": true}').out == "done\n"
    assert run_cli("prune", "--owner", "anna").out == "c\n"
