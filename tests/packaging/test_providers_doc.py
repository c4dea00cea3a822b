"""docs/providers.md is correct: its examples are `llms` entries, table rows name a source, and the tables
of hosts are those of `providers/shared/host_rows.py` and of the emulators' facts.

`python tests/packaging/test_providers_doc.py` writes the table of hosts.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from toolchart.providers.hosts import HOSTS
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.host_rows import HOST_ROWS, WIRE_RULES, HostRow, HostRule
from toolchart.specs.models import LLMConfig
from toolchart.testing.emulators.facts import WIRE_MESSAGE_RULES, get_facts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "providers.md"
DOC = PAGE.read_text("utf-8")

START, END = "<!-- hosts: written by tests/packaging/test_providers_doc.py -->", "<!-- end of hosts -->"


def print_hosts() -> str:
    """The tables of hosts and of what they refuse, as they should stand on the page."""
    lines = [
        START,
        "",
        "| `host_profile` | host | address | key | API |",
        "| --- | --- | --- | --- | --- |",
        *(print_host(row) for row in HOST_ROWS),
        "",
        "| host | models | rule | evidence | source |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in HOST_ROWS:
        rules = [rule for rule in row.rules if rule.refused_choices != ("lists",)]
        lines += [print_rule(row.name, rule) for rule in (*rules, *get_facts(row.name).rules)]
    lines += [print_rule("all", rule) for rule in (*WIRE_RULES, *WIRE_MESSAGE_RULES)]
    return "\n".join([*lines, "", END])


def print_host(row: HostRow) -> str:
    """One host."""
    address = f"switched off on {row.ended_on}" if row.ended_on else row.base_url or row.address_form
    keys = ", ".join(f"`{name}`" for name in row.key_variables) or "none"
    return f"| `{row.name}` | {row.title} | {address} | {keys} | {', '.join(row.wires)} |"


def print_rule(name: str, rule: HostRule) -> str:
    """One rule: for which models it holds, and what it says."""
    empty = type(rule)(source="", evidence="page")
    facts = []
    for field in rule.__struct_fields__:
        value = getattr(rule, field)
        if field in HostRule.__struct_fields__ or value == getattr(empty, field):
            continue
        if field == "refuses":
            value = [option.name for option in value]
        elif field in ("id_form", "name_form"):
            value = [f"`{value.pattern}`"]
        words = field.replace("_", " ").removeprefix("refused ")
        listed = value if isinstance(value, (list, tuple)) else [] if isinstance(value, bool) else [value]
        no = "no " if value is False and not words.startswith("takes") else "never " if value is False else ""
        facts.append(f"{no}{words}{': ' if listed else ''}{', '.join(map(str, listed))}")
    scope = [f"`{rule.models}`" if rule.models else "all"]
    if rule.is_thinking is not None:
        scope.append("while it thinks" if rule.is_thinking else "unless it thinks")
    if rule.has_budget:
        scope.append("with a budget")
    scope += [f"({', '.join(rule.wires)})"] if rule.wires else []
    cells = [name, " ".join(scope), "; ".join(facts), rule.evidence, rule.source]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def test_the_tables_of_hosts_are_those_of_the_code() -> None:
    """The page has every host with its address and key, and every rule with evidence and source."""
    assert DOC[DOC.index(START) : DOC.index(END) + len(END)] == print_hosts()


def list_host_rows() -> list[list[str]]:
    """The cells of each row in the tables of what hosts do differently; other tables have other columns."""
    rows, is_host_table = [], False
    for previous, line in pairwise(["", *DOC.splitlines()]):
        if line.startswith("| ") and not previous.startswith("|"):
            is_host_table = line.startswith("| provider")
        elif line.startswith("| ") and is_host_table and "---" not in line:
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


ROWS = list_host_rows()


def test_the_examples_are_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry of the example creates its provider, without a request to a host."""
    for name in ("OPENAI", "AZURE_OPENAI", "GEMINI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "x")
    (example,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    entries = yaml.safe_load(example)["llms"]
    for entry in entries.values():
        assert create_provider(LLMConfig(**entry), resolve=str).name == entry["provider"]
    remote_hosts = {row.name for row in HOSTS.builtin_rows if row.needs_network}
    assert {entry["provider"] for entry in entries.values()} == remote_hosts


def test_every_row_has_its_source() -> None:
    """Each table row has four cells (provider, behaviour, what Toolchart does, source), none empty."""
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 4, row
        assert all(row), row


def test_files_that_are_named_are_there() -> None:
    """Every repository path in the text exists."""
    paths = re.findall(r"`((?:providers|states|tests|docs)/[\w/.]+\.(?:py|md))`", DOC)
    assert len(paths) > 4
    for path in paths:
        if not path.startswith("docs/api/"):  # of a server's own repository
            assert (ROOT / path).is_file(), path


if __name__ == "__main__":
    PAGE.write_text(DOC[: DOC.index(START)] + print_hosts() + DOC[DOC.index(END) + len(END) :], "utf-8")
