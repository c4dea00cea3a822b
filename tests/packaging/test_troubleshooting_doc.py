"""docs/troubleshooting.md is correct: every error text of the code, with the next step that it names.

`python tests/packaging/test_troubleshooting_doc.py` writes the page. What an error fills in is `…` there.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest

from toolchart.app.cli.exit_codes import EXIT_CODES
from toolchart.engine import Engine
from toolchart.specs.loader import load_spec
from toolchart.states import errors
from toolchart.states.errors import SpecError
from toolchart.states.events import FAILURE_KINDS

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "troubleshooting.md"

INTRODUCTION = """\
# Troubleshooting

Here you find what an error means and what to do next, by its text: search for a few words of it. `…` stands
for what the error fills in.

Every error has the same form: where (file, line, key), what is wrong, and on the next line what is allowed or
what to do:

    agent.yaml:6: responses[0].tools.alowed_tools: unknown key 'alowed_tools'
      did you mean 'allowed_tools'?

{codes}

`TOOLCHART_DEBUG=1` adds the traceback. [Finding faults](howto/finding-faults.md) shows what else can be
written down, [Events and errors](events.md#errors) the classes for `except`. A tool that fails ends no turn:
the model is told so, in the words of the last table.

This page is generated: `python tests/packaging/test_troubleshooting_doc.py` writes it from the code.

## A model call that failed

The turn's `error` has a kind, read by guards as [`error_kind`](facts.md). `toolchart doctor` tries the host.

| kind | what to do |
| --- | --- |
{kinds}
"""

ERROR_KINDS = {
    "auth": "the key is missing, wrong or may not use this model: set the variable that the error names",
    "not_found": "the host does not have the model: `toolchart models list PROVIDER` lists what it has",
    "bad_request": "the host refuses the request and says why; `toolchart show` has what was sent",
    "context_length": "the conversation is longer than the model takes: [Long conversations](context.md)",
    "rate_limited": "wait; the charts that ship do so by themselves, and `retry` says how long",
    "overloaded": "the same",
    "quota": "the account has no money left or is at its limit: change it at the host",
    "server": "the host failed: try again later",
    "timeout": "the host was too slow: `timeout_s` of the entry in `llms`",
    "connection": "the host was not reached: `base_url` of the entry in `llms`, or the network",
    "tools_unsupported": "the model calls no tools: another one, or [calls as text](text-calls.md)",
    "content_filter": "the host refused the content: change the prompt or the message",
    "bad_response": "the answer of the host cannot be read: is `base_url` the address of such a host?",
    "malformed_call": "the model wrote a call that cannot be read (`toolchart show`): try another model",
    "empty_reply": "the model said nothing, several times: try another model, or more `max_tokens`",
    "bad_output": "the answer broke its type each time: `toolchart show` says how; make the type simpler",
    "cancelled": "somebody stopped the turn: `toolchart resume CONVERSATION` goes on",
    "interrupted": "a process ended within the turn: `toolchart resume CONVERSATION` goes on",
    "effect": "a function or an agent that the chart asks for failed, and says why",
    "other": "none of these; the words of the host follow",
}
"""What to do about each kind."""

AREAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Agent specs and charts": (
        "When an agent or a chart is loaded.",
        ("specs", "states", "engine/agents.py", "engine/agent_options", "engine/value_schemas.py"),
    ),
    "Tools": ("When tools are loaded, or a call of one is decided.", ("tools",)),
    "Model hosts": ("When a host is set up.", ("providers", "testing")),
    "Turns and conversations": ("While a conversation runs, or is read, forked or run again.", ("engine",)),
    "Logs": (
        "When a log is opened, written or verified. What was acknowledged is never lost by one of these.",
        ("engine/log", "engine/exchange"),
    ),
    "Commands and the server": ("When a command or `toolchart serve` begins.", ("app", "workers")),
}
"""Title, sentence and folders of each section. The longest folder that fits has a file."""

TOLD_TO_MODELS = "What models are told of calls"

KINDS = {name for name, value in vars(errors).items() if inspect.isclass(value)} | {
    *("BadParameter", "ClickException", "DeclarationProblem", "GuardProblem", "UsageError")
}
_MAKER = re.compile(r"_?(make|build|report|add)_\w*(problem|error|fault|refusal)$")


class Row(NamedTuple):
    """One error text with what to do next."""

    area: str
    text: str
    hint: str


@cache
def list_rows() -> Sequence[Row]:
    """Every error text of the code, sorted."""
    rows = set[Row]()
    for folder in sorted({path.partition("/")[0] for _, paths in AREAS.values() for path in paths}):
        for file in (ROOT / folder).rglob("*.py"):
            place = file.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    rows.update(read_call(node, find_area(place)))
    return sorted(rows, key=lambda row: (row.area, row.text.lstrip("… ").lower(), row.text, row.hint))


def find_area(place: str) -> str:
    """The section of a file."""
    fitting = [
        (len(path), area) for area, (_, paths) in AREAS.items() for path in paths if place.startswith(path)
    ]
    return max(fitting)[1]


def read_call(node: ast.Call, area: str) -> Iterator[Row]:
    """The texts of an error that a call makes."""
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if name not in KINDS and name != "ToolFailure" and not _MAKER.match(name):
        return
    # Pydantic wants a word for the kind first.
    arguments = node.args[1:] if name == "PydanticCustomError" else node.args
    literals = [texts for argument in arguments if (texts := read_texts(argument))]
    texts = next((found for found in literals if " " in found[0]), [])
    hints = next((read_texts(keyword.value) for keyword in node.keywords if keyword.arg == "hint"), [])
    if not hints and len(literals) > 1 and texts is literals[0]:
        hints = literals[1]
    for text in texts:
        message, _, own_hint = text.partition("\n")
        words = message.strip()
        if not re.search(r"\w{3}", words):
            continue
        hint = "; or: ".join(dict.fromkeys(hint.strip() for hint in hints if hint.strip(" …"))) or own_hint
        yield Row(TOLD_TO_MODELS if name == "ToolFailure" else area, words, " ".join(hint.split()))


def read_texts(node: ast.expr) -> list[str]:
    """The texts that an expression may be, with `…` for what it fills in; empty where it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return [re.sub(r"\{\w+\}", "…", text)]
        case ast.JoinedStr():
            parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
            return ["".join(parts)]
        case ast.BinOp(op=ast.Add()):
            return [
                one + other
                for one in read_texts(node.left) or ["…"]
                for other in read_texts(node.right) or ["…"]
            ]
        case ast.IfExp():
            return [*read_texts(node.body), *read_texts(node.orelse)]
        case ast.BoolOp():
            return [text for value in node.values for text in read_texts(value)]
    return []


def print_page() -> str:
    """The page as it should be."""
    rows = list_rows()
    sentences = {area: sentence for area, (sentence, _) in AREAS.items()}
    sentences[TOLD_TO_MODELS] = "A call that failed; the model reads this and goes on."
    kinds = "\n".join(f"| `{kind}` | {step} |" for kind, step in ERROR_KINDS.items())
    parts = [INTRODUCTION.format(codes=EXIT_CODES, kinds=kinds)]
    for area, sentence in sentences.items():
        own = [row for row in rows if row.area == area]
        head = ("| error | what to do |", "| --- | --- |")
        if area == TOLD_TO_MODELS:
            head = ("| text |", "| --- |")
            lines = [f"| {escape(row.text)} |" for row in own]
        else:
            lines = [f"| {escape(row.text)} | {escape(row.hint)} |" for row in own]
        parts.append("\n".join((f"## {area}", "", sentence, "", *head, *dict.fromkeys(lines), "")))
    return "\n".join(parts)


def escape(text: str) -> str:
    """Text for a cell of a table; what stands between backticks is code."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(
        part if is_code else re.sub(r"([\\<\[\]*_])(?!\|)", r"\\\1", part)
        for part, is_code in zip(parts, cycle((False, True)), strict=False)
    )


def test_the_page_is_up_to_date() -> None:
    """The page has the error texts of the code as it is."""
    assert DOC.read_text("utf-8") == print_page(), "run: python tests/packaging/test_troubleshooting_doc.py"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "llms: {m: {provider: nowhere, model: x}}\nresponses: [{llm: m, prompt: x}]\n",
        "llms: {m: {provider: openai, model: x}}\nresponses: [{llm: n, prompt: x}]\n",
        "llms: {m: {provider: openai, model: x}}\nresponses: [{llm: m, prompt: x}]\nchart: nowhere\n",
        "llms: {m: {provider: openai, model: x}}\nllms: {}\n",
    ],
)
def test_what_a_user_sees_is_on_the_page(text: str, tmp_path: Path) -> None:
    """The words of an error of a wrong agent are found on the page; a value may follow them."""
    file = tmp_path / "agent.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(SpecError) as caught:
        Engine(load_spec(file), log="memory")
    patterns = [re.escape(row.text).replace("…", ".*") + "(, found .*)?" for row in list_rows()]
    assert any(re.fullmatch(pattern, caught.value.message) for pattern in patterns), caught.value.message


def test_every_kind_of_failure_has_a_step() -> None:
    """The table of failed model calls has every kind that a guard can read, but for `none`."""
    assert set(ERROR_KINDS) == {*FAILURE_KINDS, "other"}


def test_every_section_has_texts() -> None:
    """No part of the code is missing because its texts could not be read."""
    assert {row.area for row in list_rows()} == {*AREAS, TOLD_TO_MODELS}


if __name__ == "__main__":
    DOC.write_text(print_page(), "utf-8")
    sys.exit()
