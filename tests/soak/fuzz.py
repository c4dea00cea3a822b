"""Fuzzes the trust boundary with a fixed seed: `python tests/soak/fuzz.py [CASES [FAMILY ...]]`.

Each family feeds hostile input to a real entrance: replies, streams, calls as text, arguments, approval
rules, expressions, specs, charts, logs, imports, redaction, documents, OpenAPI documents, texts for a
terminal. A case passes if it ends within two seconds with a value or an error of Toolchart's own; one that
takes longer is tried once more, because the machine may have been busy. The script prints the number of
cases, the slowest case and the most memory that this process or an ended child held, and exits with 1 where a
case failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]
import conftest  # noqa: E402, F401  makes the checkout importable
from hostile_values import build_schema, build_text, build_value  # noqa: E402
from random_expressions import FAMILIES, build_expression  # noqa: E402
from stored_input import fuzz_imports, fuzz_logs, fuzz_replies, fuzz_shipped_charts, fuzz_streams  # noqa: E402

from toolchart.engine.log.record import parse_record  # noqa: E402
from toolchart.engine.log.redaction import PATTERNS, Redactor  # noqa: E402
from toolchart.providers.text_calls.formats import TEXT_FORMATS  # noqa: E402
from toolchart.providers.text_calls.scanner import TextCallScanner  # noqa: E402
from toolchart.specs.loader import load_spec  # noqa: E402
from toolchart.states.chart.loading import parse_chart  # noqa: E402
from toolchart.states.errors import ToolchartError  # noqa: E402
from toolchart.states.visible_text import make_visible  # noqa: E402
from toolchart.tools.approval import parse_policy  # noqa: E402
from toolchart.tools.builtin import BUILTINS  # noqa: E402
from toolchart.tools.builtin.calculator import calculate  # noqa: E402
from toolchart.tools.definition import ToolFailure  # noqa: E402
from toolchart.tools.schemas.examination import ArgumentExaminer  # noqa: E402
from toolchart.tools.sources.document_text import UnreadableDocument, read_passages  # noqa: E402
from toolchart.tools.sources.foreign_schemas import sanitize_schema  # noqa: E402
from toolchart.tools.sources.openapi import load_openapi_tools  # noqa: E402
from toolchart.tools.sources.registry_entries import LoadingContext  # noqa: E402

SEED = 14
MAX_SECONDS = 2.0
MAX_MEGABYTES = 300


def fuzz_text_calls(random: Random) -> None:
    """A reply as text, in pieces, in every format: no character is lost."""
    text = build_text(random)
    scanner = TextCallScanner([row for row in TEXT_FORMATS.values() if row.is_detected], {"name": {}})
    cut = random.randint(0, len(text))
    list(scanner.add_text(text[:cut])), list(scanner.add_text(text[cut:])), list(scanner.finish_text())


def fuzz_arguments(random: Random) -> None:
    """Arguments against a foreign schema."""
    schema, _ = sanitize_schema({"type": "object", "properties": {"x": build_schema(random)}})
    ArgumentExaminer(schema, "t").examine({"x": build_value(random), "y": build_value(random, 1)})


def fuzz_rules(random: Random) -> None:
    """An approval policy with random conditions."""
    operator = random.choice(["eq", "ne", "gt", "le", "in", "not_in", "glob", "regex", "contains", "exists"])
    rule = {
        "when": {"amount": {operator: build_value(random, 1)}},
        "decision": random.choice(["always", "never"]),
    }
    policy = parse_policy([rule])
    policy.find_ruling(BUILTINS["echo"], {"amount": build_value(random)})


def fuzz_expressions(random: Random) -> None:
    """An expression, of a family or of pieces."""
    if random.random() < 0.2:
        text = build_expression(random.choice(FAMILIES), random)
    else:
        text = build_text(random, 6) + random.choice(["+1", "*2", "", "**9", "/3"])
    value = calculate({"expression": text})
    if inspect.isawaitable(value):

        async def wait() -> Any:
            return await value

        asyncio.run(wait())


def fuzz_specs(random: Random) -> None:
    """A spec as a mapping."""
    data = {
        "llms": {"m": {"provider": "scripted", "replies": ["x"], **_make_mapping(random)}},
        "responses": [{"llm": "m", **_make_mapping(random)}],
        **_make_mapping(random),
    }
    load_spec(data)


def _make_mapping(random: Random) -> dict[str, Any]:
    value = build_value(random, 3)
    return value if isinstance(value, dict) and random.random() < 0.5 else {}


def fuzz_charts(random: Random) -> None:
    """A chart as text."""
    parse_chart("states:\n  a: {initial: true, final: true, enter: " + build_text(random, 8) + "}\n")


def fuzz_log_lines(random: Random) -> None:
    """A line of a log."""
    line = build_text(random) if random.random() < 0.5 else json.dumps(build_value(random))
    parse_record(line.encode("utf-8", "surrogatepass"), 0, "c")


def fuzz_redaction(random: Random) -> None:
    """A message of a user under every pattern."""
    Redactor(keys=["*key*"], patterns=list(PATTERNS)).redact_event(
        {"type": "user_said", "message": build_text(random)}
    )


def fuzz_documents(random: Random) -> None:
    """A document of each kind."""
    name = random.choice(["a.md", "a.txt", "a.html"])
    read_passages(Path(name), build_text(random, 200).encode("utf-8", "surrogatepass"))


def fuzz_openapi(random: Random) -> None:
    """An OpenAPI document."""
    operation = {
        "operationId": "o",
        "parameters": [{"name": "x", "in": "query", "schema": build_schema(random)}],
    }
    document: dict[str, Any] = {"openapi": "3.1.0", "servers": [{"url": "https://x.example"}]}
    document["paths"] = {"/": {"get": operation}} if random.random() < 0.7 else build_value(random)
    document |= _make_mapping(random)
    load_openapi_tools({"document": document}, "tools.openapi[0]", LoadingContext())


def fuzz_display(random: Random) -> None:
    """A text for a terminal."""
    text = make_visible(build_text(random))
    assert "\x1b" not in text
    assert "\u202e" not in text


CASES: tuple[Callable[[Random], None], ...] = (
    *(fuzz_text_calls, fuzz_arguments, fuzz_rules, fuzz_expressions, fuzz_specs, fuzz_charts),
    *(fuzz_log_lines, fuzz_redaction, fuzz_documents, fuzz_openapi, fuzz_display),
    *(fuzz_replies, fuzz_streams, fuzz_shipped_charts, fuzz_logs, fuzz_imports),
)
EXPECTED = (ToolchartError, ToolFailure, UnreadableDocument)


def run_case(function: Callable[[Random], None], number: int) -> tuple[float, str | None]:
    """The seconds of one case, and its traceback if it failed."""
    random = Random(f"{SEED} {function.__name__} {number}")
    start = time.perf_counter()
    problem = None
    try:
        with contextlib.suppress(*EXPECTED):
            function(random)
    except Exception:
        problem = traceback.format_exc(limit=-3)
    return time.perf_counter() - start, problem


def measure_most_memory() -> int:
    """Megabytes that this process and its largest ended child held at most."""
    pair = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in pair) // 1024


def main(cases: int, families: list[str]) -> int:
    """Run the cases in turn over all families, or over those that are named."""
    failures, slowest = 0, (0.0, "")
    with contextlib.suppress(ToolFailure):
        fuzz_expressions(Random("1+sqrt(2)"))  # starts the worker
    functions = [function for function in CASES if not families or function.__name__ in families]
    for number in range(cases):
        function = functions[number % len(functions)]
        seconds, problem = run_case(function, number)
        if seconds > MAX_SECONDS:
            seconds, problem = run_case(function, number)
        slowest = max(slowest, (seconds, f"{function.__name__} {number}"))
        if problem is not None or seconds > MAX_SECONDS:
            failures += 1
            print(f"{function.__name__} {number}: {seconds:.2f} s\n{problem or 'too slow'}", file=sys.stderr)
    megabytes = measure_most_memory()
    print(f"{cases} cases, {failures} failures; slowest {slowest[0]:.2f} s ({slowest[1]}); {megabytes} MB")
    return int(failures > 0 or megabytes > MAX_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2:]))
