"""Fuzzes the trust boundary with a fixed seed: `python tests/soak/fuzz.py [CASES]`.

Each family feeds hostile input to a real entrance: replies and streams as text, arguments, approval rules,
expressions, specs, charts, log lines, redaction, documents, OpenAPI documents, texts for a terminal. A case
passes if it ends within two seconds with a value or an error of Toolchart's own. The script prints the number
of cases, the slowest case and the memory, and exits with 1 where a case failed.
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
from random_expressions import FAMILIES, build_expression  # noqa: E402

from toolchart.engine.log.record import parse_record  # noqa: E402
from toolchart.engine.log.redaction import PATTERNS, Redactor  # noqa: E402
from toolchart.providers.text_calls.formats import TEXT_FORMATS  # noqa: E402
from toolchart.providers.text_calls.scanner import TextCallScanner  # noqa: E402
from toolchart.specs.loader import load_spec  # noqa: E402
from toolchart.states.chart.loading import parse_chart  # noqa: E402
from toolchart.states.diagram.visible_text import make_visible  # noqa: E402
from toolchart.states.errors import ToolchartError  # noqa: E402
from toolchart.tools.approval import parse_policy  # noqa: E402
from toolchart.tools.builtin import BUILTINS  # noqa: E402
from toolchart.tools.builtin.calculator import calculate  # noqa: E402
from toolchart.tools.definition import ToolFailure  # noqa: E402
from toolchart.tools.execution.examination import ArgumentExaminer  # noqa: E402
from toolchart.tools.sources.document_text import UnreadableDocument, read_passages  # noqa: E402
from toolchart.tools.sources.foreign_schemas import sanitize_schema  # noqa: E402
from toolchart.tools.sources.openapi import load_openapi_tools  # noqa: E402
from toolchart.tools.sources.registry_entries import LoadingContext  # noqa: E402

SEED = 14
MAX_SECONDS = 2.0
MAX_MEGABYTES = 300

PIECES = (
    *("{", "}", "[", "]", '"', "'", ":", ",", "\\", "\n", " ", "&a ", "*a ", "<<: ", "- ", "# "),
    *("null", "true", "-1", "1e999", "0x10", "NaN", "name", "arguments", "type", "object", "$ref", "#/"),
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<think>", "<!--", "<a ", "${HOME}"),
    *("\x00", "\x1b[2J", "\u202e", "\ud800", "\U000e0041", "é", "日本", "a" * 200, "(a+)+$", "9**9"),
    *("sqrt(", ")", "{{x}}", "anyOf", "!!python/object "),
)


def build_text(random: Random, most: int = 40) -> str:
    """A text of random pieces."""
    return "".join(random.choice(PIECES) for _ in range(random.randint(0, most)))


def build_value(random: Random, depth: int = 4) -> Any:
    """A random JSON value."""
    kind = random.randrange(8 if depth else 5)
    if kind < 5:
        return random.choice([None, True, 0, -1, 10**30, 0.5, "", "5000", build_text(random, 5)])
    if kind < 7:
        return [build_value(random, depth - 1) for _ in range(random.randint(0, 4))]
    names = ("type", "properties", "items", "anyOf", "pattern", "$ref", "enum", "name", "amount", "x")
    return {random.choice(names): build_value(random, depth - 1) for _ in range(random.randint(0, 4))}


def build_schema(random: Random, depth: int = 3) -> Any:
    """A random JSON Schema, mostly well-formed."""
    if random.random() < 0.05:
        return build_value(random, 2)
    schema: dict[str, Any] = {}
    if random.random() < 0.8:
        schema["type"] = random.choice(["string", "integer", "array", "object", "number", ["string", "null"]])
    if random.random() < 0.2:
        schema["pattern"] = random.choice(["^(a+)+$", "(a|aa)*b", "(?=a)b", "(", "^x", r"(a)\1"])
    if depth and random.random() < 0.4:
        schema["properties"] = {name: build_schema(random, depth - 1) for name in ("x", "amount", "name")}
    if depth and random.random() < 0.3:
        word = random.choice(["anyOf", "oneOf", "allOf"])
        schema[word] = [build_schema(random, depth - 1) for _ in range(random.randint(1, 3))]
    if random.random() < 0.1:
        schema["$ref"] = random.choice(["#", "#/properties/x", "#/nothing", "https://x.example"])
    return schema


def fuzz_text_calls(random: Random) -> None:
    """A reply as text, in pieces, in every format: no character is lost."""
    text = build_text(random)
    scanner = TextCallScanner([row for row in TEXT_FORMATS if row.is_detected], {"name": {}})
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


def main(cases: int) -> int:
    """Run the cases in turn over all families."""
    failures, slowest = 0, (0.0, "")
    with contextlib.suppress(ToolFailure):
        fuzz_expressions(Random("1+sqrt(2)"))  # starts the worker
    for number in range(cases):
        function = CASES[number % len(CASES)]
        seconds, problem = run_case(function, number)
        slowest = max(slowest, (seconds, f"{function.__name__} {number}"))
        if problem is not None or seconds > MAX_SECONDS:
            failures += 1
            print(f"{function.__name__} {number}: {seconds:.2f} s\n{problem or 'too slow'}", file=sys.stderr)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{cases} cases, {failures} failures; slowest {slowest[0]:.2f} s ({slowest[1]}); {megabytes} MB")
    return int(failures > 0 or megabytes > MAX_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
