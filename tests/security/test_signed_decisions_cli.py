"""`keys`, `approve --key` and `verify --spec`: the command line signs decisions and checks them."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code
from toolchart.engine.log.record import GENESIS, seal_line
from toolchart.engine.log.stores import open_store

SPEC: dict[str, Any] = {
    "chart": "approval",
    "llms": {
        "m": {
            "provider": "scripted",
            "model": "m",
            "rules": [
                {"match": "Pay", "call": {"name": "pay", "arguments": {"amount": 20}}, "reply": "Paid."}
            ],
        }
    },
    "tools": {
        "registry": [
            {
                "name": "pay",
                "description": "Pay.",
                "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}},
                "requires_approval": True,
                "implementation": {"type": "mock", "mock_response": "paid"},
            }
        ]
    },
    "responses": [{"llm": "m", "tools": {"enabled": True}}],
}


def write_spec(folder: Path, name: str = "agent.yaml", **changes: Any) -> str:
    """Write an agent whose model pays, and return its file name."""
    (folder / name).write_text(yaml.safe_dump({**SPEC, **changes}))
    return name


Outcome = tuple[int, str, str]
"""Exit code, stdout and stderr."""
Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run_words(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # an empty pipe
        code = run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
        return (code, *capsys.readouterr())

    return run_words


@pytest.fixture
def public(run: Run, tmp_path: Path) -> str:
    """Anna's public key; there are her key file, a strict spec, and a call that waits."""
    code, out, notice = run("approve", "--new-key", "anna.pem")
    assert (code, stat.S_IMODE((tmp_path / "anna.pem").stat().st_mode)) == (0, 0o600)
    assert "PRIVATE" not in out + notice
    key = out.strip()
    code, out, error = run("approve", "--new-key", "anna.pem")
    assert (code, out, "never overwritten" in error) == (2, "", True)
    write_spec(tmp_path, approval={"require_signatures": True}, approvers={"anna": key})
    assert "approve" in run("run", "agent.yaml", "Pay.", "--conversation", "c", "--log", "l.db")[2]
    return key


APPROVE = ("approve", "c", "call_1_0_0", "--spec", "agent.yaml", "--log", "l.db")
SIGN = (*APPROVE, "--key", "anna.pem", "--as", "anna")


def test_approving_with_a_key(run: Run, public: str, tmp_path: Path) -> None:
    """Without a key, and with a foreign one, the decision is refused; with the approver's it counts."""
    run("approve", "--new-key", "other.pem")
    refusals = {
        (): "it is not signed",
        ("--as", "anna"): "it is not signed",
        ("--key", "other.pem", "--as", "anna"): "no such approver with this key",
        ("--key", "anna.pem", "--as", "ben"): "no such approver with this key",
        ("--key", "anna.pem"): "--key needs --as",
        ("--key", "agent.yaml", "--as", "anna"): "no Ed25519 private key",
        ("--key", "gone.pem", "--as", "anna"): "cannot be read",
    }
    for words, message in refusals.items():
        code, _, error = run(*APPROVE, *words)
        assert (code, message in error) == (2, True), (words, error)
    assert run(*SIGN)[:2] == (0, "Paid.\n")
    assert "call_1_0_0 approved by anna\n" in run("show", "--log", "l.db")[1]
    code, out, _ = run("verify", "--spec", "agent.yaml", "--log", "l.db")
    assert code == 0
    assert "pay (call_1_0_0) approved by anna: signed" in out
    assert all(public.encode() not in path.read_bytes() for path in tmp_path.glob("l.db*"))


def test_verify_tells_findings_apart(run: Run, public: str, tmp_path: Path) -> None:
    """Missing, expired, revoked and wrong are told apart, in the text and in JSON, by exit codes too."""
    run(*SIGN)
    other = run("approve", "--new-key", "other.pem")[1].strip()
    specs = {
        "missing_key": ({"anna": other}, 1),
        "expired": ({"anna": [{"key": public, "valid_until": "2020-01-01"}]}, 1),
        "revoked": ({"anna": [{"key": public, "revoked_at": "2020-01-01"}, other]}, 1),
        "not_yet_valid": ({"anna": [{"key": public, "valid_from": "2999-01-01"}]}, 1),
        "valid": ({"anna": [other, public]}, 0),
    }
    for finding, (approvers, code) in specs.items():
        write_spec(tmp_path, "other.yaml", approvers=approvers)
        exit_code, out, _ = run("verify", "--json", "--spec", "other.yaml", "--log", "l.db")
        assert (json.loads(out.splitlines()[-1])["signature"], exit_code) == (finding, code)


@pytest.mark.parametrize(
    ("change", "finding", "code"),
    [
        ({"approved": False}, "wrong", 5),
        ({"effect": 1}, "wrong", 5),
        ({"arguments": {"amount": 9999}}, "other_call", 1),
        ({"signature": None}, "unsigned", 1),
        ({"definition": {"name": "pay", "kind": "http", "method": "DELETE"}}, "wrong", 5),
        ({"definition": None}, "wrong", 5),
    ],
)
def test_verify_finds_a_rewritten_decision(
    run: Run, public: str, tmp_path: Path, change: dict[str, Any], finding: str, code: int
) -> None:
    """Whoever rewrites a decision and all hashes after it does not make the signature valid."""
    run(*SIGN)
    store = open_store(str(tmp_path / "l.db"), create=False)
    lines, prev = [], GENESIS
    for line in store.read_lines("c"):
        record = json.loads(line)
        if record["event"]["type"] == "decided":
            record["event"] = {k: v for k, v in {**record["event"], **change}.items() if v is not None}
        record.pop("hash")
        sealed, prev = seal_line(json.dumps({**record, "prev": prev}, separators=(",", ":")).encode())
        lines.append(sealed)
    store.close()
    forged = open_store(str(tmp_path / "forged.db"))
    forged.append("c", 0, lines)
    forged.close()
    exit_code, out, _ = run("verify", "--json", "--spec", "agent.yaml", "--log", "forged.db")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["signature"] for row in rows if "signature" in row] == [finding]
    assert exit_code == code
