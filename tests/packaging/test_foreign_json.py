"""JSON from outside is read in one place, which counts before it builds (`states/json_bounds.py`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("states", "specs", "tools", "providers", "engine", "app", "workers")
READER = "states/json_bounds.py"
CHECKS = {"check_foreign_json", "has_more_values", "count_values"}
"""A function that calls one of them may read with another parser."""

RECORDS = "the log, whose lines are ours; those of a log file are counted when it is opened"
OWN = {
    "app/cli/commands/keeping/import_.py": {"_read_message_lists": "what was read, with secrets struck"},
    "app/cli/terminal/forms.py": {"parse_field": "a line that a person types"},
    "engine/durable/stretches.py": dict.fromkeys(
        ("decode_rest", "decode_stretch", "decode_submission"), "rows of our own queue"
    ),
    "engine/durable/temporal_reports.py": {"_measure": "what was written a moment before"},
    "engine/log/continuation/checkpoint.py": {"": RECORDS},
    "engine/log/family.py": {"": RECORDS},
    "engine/log/record.py": {"": RECORDS},
    "engine/log/redaction.py": {"_redact_json_text": "records: what is not read is not redacted"},
    "engine/log/replay.py": {"_compile_chart": RECORDS},
    "engine/log/retention.py": {"": RECORDS},
    "engine/log/seal.py": {"": RECORDS},
    "engine/log/stores/base.py": {"": RECORDS},
    "engine/log/stores/large_parts.py": {"": RECORDS},
    "engine/log/stores/record_file.py": {"": "the first lines of conversations, which are counted before"},
    "engine/log/turn_totals.py": {"": RECORDS},
    "engine/log/stores/sql.py": {"_read_outline": "a row that the search index wrote"},
    "engine/mining/proposal.py": {"_propose_tool": "a definition of the log that it wrote a moment before"},
    "engine/reading/search.py": {"": RECORDS},
    "engine/reading/steps.py": {"": RECORDS, "_cut_json": RECORDS},
    "engine/reading/visited_path.py": {"_parse_chart": RECORDS},
    "engine/rerun/report.py": {"_to_json": "what was written a moment before"},
    "engine/runtime/result.py": {"_list_cut_results": "a summary that the engine wrote"},
    "providers/anthropic/batches.py": {"": "lines whose values stay text until they are counted"},
    "providers/openai/batches.py": {"": "lines whose values stay text until they are counted"},
    "providers/scripted/provider.py": {"_read_outcome": "a result that the engine wrote"},
    "providers/shared/sent_messages.py": {"_is_object": "arguments that were read before"},
    "providers/text_calls/formats.py": {"decode_json": "so many characters as arguments may have"},
    "states/call_arguments.py": {
        "": "an answer that was counted before",
        "_load_strict_json": "so many characters as arguments may have, and their depth is counted",
    },
    "states/core/encoding.py": {"read_json": RECORDS, "_get_decoder": RECORDS},
    "tools/execution/results.py": dict.fromkeys(
        ("add_arguments", "convert_result", "find_cut_notice"), "a result that the engine wrote"
    ),
    "tools/schemas/output.py": dict.fromkeys(("_load_check", "_load_value_check"), "a schema of the spec"),
    "tools/validation/tracker.py": {"_read_models": "a file that the tracker wrote"},
    "workers/host.py": dict.fromkeys(("_run_child", "_start_child", "main"), "messages of our own processes"),
    "workers/pool.py": {"_decode_answer": "messages of our own processes, whose size is bounded"},
}
"""Functions that read what this package has written, or what was counted before: each with the reason."""


def find_readers(tree: ast.Module) -> Iterator[tuple[str, str, bool]]:
    """Every call that parses JSON: its function, the call, and whether the function counts too."""

    def visit(node: ast.AST, function: str, is_counted: bool) -> Iterator[tuple[str, str, bool]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
            is_function = not isinstance(node, ast.ClassDef)
            function, is_counted = node.name, is_counted or (is_function and not CHECKS.isdisjoint(names))
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            is_parser = name in {"json.load", "json.loads", "orjson.loads", "msgspec.json.decode"}
            is_parser |= name in {"msgspec.json.Decoder", "json.JSONDecoder"}
            is_answer = name.endswith(".json") and not node.args and not node.keywords
            if is_parser or is_answer:
                yield function, name, is_counted
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function, is_counted)

    yield from visit(tree, "", False)


def list_uncounted() -> dict[str, set[str]]:
    """By file, the functions that parse JSON without a count."""
    found: dict[str, set[str]] = {}
    for path in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for function, _, is_counted in find_readers(ast.parse(path.read_text("utf-8"))):
            if name != READER and not is_counted:
                found.setdefault(name, set()).add(function)
    return found


def test_foreign_json_goes_through_the_one_reader() -> None:
    """A call that parses JSON stands in the reader, beside a count of it, or in the list of what is our own;
    and that list has nothing that is no longer there."""
    assert list_uncounted() == {name: set(functions) for name, functions in OWN.items()}


@pytest.mark.parametrize(
    "line",
    [
        "json.loads(a)",
        "json.load(a)",
        "orjson.loads(a)",
        "msgspec.json.decode(a)",
        "msgspec.json.Decoder(A)",
        "json.JSONDecoder()",
        "(await b.get(c)).json()",
    ],
)
def test_every_parser_is_found(line: str) -> None:
    """Each way to parse JSON is seen, in a module and in a function; beside a count it is allowed."""
    for text in (line, f"async def read():\n    return {line}"):
        assert [is_counted for _, _, is_counted in find_readers(ast.parse(text))] == [False]
    counted = f"async def read():\n    check_foreign_json(a)\n    return {line}"
    assert [is_counted for _, _, is_counted in find_readers(ast.parse(counted))] == [True]
