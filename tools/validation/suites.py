"""Suites of cases: `basic`, which comes along, BFCL files, and files of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.suggestions import nearest
from toolchart.tools.execution.arguments import check_schema
from toolchart.tools.validation.bfcl import load_bfcl
from toolchart.tools.validation.bfcl_turns import load_turns
from toolchart.tools.validation.cases import Case, ExpectedCall

SUITES = ("basic", "bfcl")


def _tool(
    name: str, description: str, required: Sequence[str], **properties: Any
) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolDefinition(name=name, description=description, parameters=schema)


_TEXT = {"type": "string"}
_WEATHER = _tool(
    "get_weather",
    "Get the weather of a city.",
    ["city"],
    city={"type": "string", "description": "Name of the city."},
    unit={"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Of temperatures."},
)
_CONVERT = _tool(
    "convert_currency",
    "Convert an amount of money.",
    ["amount", "source", "target"],
    amount={"type": "number", "description": "The amount."},
    source={"type": "string", "description": "ISO 4217 code, for instance EUR."},
    target={"type": "string", "description": "ISO 4217 code."},
)
_EVENT = _tool(
    "create_event",
    "Create an event in the calendar.",
    ["title", "day", "guests", "private"],
    title=_TEXT,
    day={"type": "string", "description": "ISO date."},
    guests={"type": "array", "items": {"type": "string"}, "description": "First names."},
    private={"type": "boolean"},
    minutes={"type": "integer", "description": "How long it takes."},
)
_LOOKUP = _tool(
    "find_customer",
    "Find a customer by number.",
    ["number"],
    number={"type": "integer", "description": "Customer number."},
)
_ALL = (_WEATHER, _CONVERT, _EVENT, _LOOKUP)


def _asks(text: str) -> tuple[tuple[str, str], ...]:
    return (("user", text),)


def basic() -> list[Case]:
    """A dozen cases: simple, multiple, parallel, irrelevant, argument types, error recovery."""
    return [
        Case(
            id="simple_1",
            category="simple",
            tools=(_WEATHER,),
            messages=_asks("What is the weather in Brno?"),
            calls=(_weather("Brno"),),
        ),
        Case(
            id="simple_2",
            category="simple",
            tools=(_LOOKUP,),
            messages=_asks("Look up customer 4711."),
            calls=(_customer(4711),),
        ),
        Case(
            id="multiple_1",
            category="multiple",
            tools=_ALL,
            messages=_asks("How much is 20 euros in US dollars?"),
            calls=(_converted(20, "EUR", "USD"),),
        ),
        Case(
            id="multiple_2",
            category="multiple",
            tools=_ALL,
            messages=_asks("Which customer has the number 12?"),
            calls=(_customer(12),),
        ),
        Case(
            id="parallel_1",
            category="parallel",
            tools=_ALL,
            messages=_asks("Compare the weather in Oslo and in Rome."),
            calls=(_weather("Oslo"), _weather("Rome")),
        ),
        Case(
            id="parallel_2",
            category="parallel",
            tools=_ALL,
            messages=_asks("Look up customers 1, 2 and 3."),
            calls=(_customer(1), _customer(2), _customer(3)),
        ),
        Case(
            id="irrelevant_1",
            category="irrelevant",
            tools=_ALL,
            messages=_asks("Write one sentence in praise of bread."),
        ),
        Case(
            id="irrelevant_2",
            category="irrelevant",
            tools=(_WEATHER,),
            messages=_asks("What is two plus two? Answer at once, with the number alone."),
        ),
        Case(
            id="types_1",
            category="types",
            tools=(_EVENT,),
            messages=_asks(
                "Put a private event 'Review' on 2026-03-05 for Ann and Bob, 45 minutes long."
            ),
            calls=(
                ExpectedCall(
                    name="create_event",
                    arguments={
                        "title": ["Review"],
                        "day": ["2026-03-05"],
                        "guests": [["Ann", "Bob"]],
                        "private": [True],
                        "minutes": [45],
                    },
                ),
            ),
        ),
        Case(
            id="types_2",
            category="types",
            tools=(_WEATHER,),
            messages=_asks("Weather in Chicago in degrees Fahrenheit, please."),
            calls=(
                ExpectedCall(
                    name="get_weather",
                    arguments={"city": ["Chicago", "Chicago, IL"], "unit": ["fahrenheit"]},
                ),
            ),
        ),
        Case(
            id="recovery_1",
            category="recovery",
            tools=_ALL,
            messages=_asks("How much is 100 pounds sterling in euros?"),
            failing={"convert_currency": "unknown currency; use the ISO codes GBP and EUR"},
            calls=(_converted(100, "GBP", "EUR"),),
        ),
        Case(
            id="recovery_2",
            category="recovery",
            tools=(_LOOKUP,),
            messages=_asks("Find customer 77. If the service is busy, try exactly once more."),
            failing={"find_customer": "the service is busy, try again"},
            calls=(_customer(77),),
        ),
    ]


def _weather(city: str) -> ExpectedCall:
    units = ["", "celsius", "fahrenheit"]
    return ExpectedCall(name="get_weather", arguments={"city": [city], "unit": units})


def _customer(number: int) -> ExpectedCall:
    return ExpectedCall(name="find_customer", arguments={"number": [number]})


def _converted(amount: float, source: str, target: str) -> ExpectedCall:
    arguments: dict[str, list[Any]] = {
        "amount": [amount],
        "source": [source],
        "target": [target],
    }
    return ExpectedCall(name="convert_currency", arguments=arguments)


def load_suite(name: str, *, bfcl: Path | None = None) -> list[Case]:
    """The cases of a suite: `basic`, `bfcl`, a file of BFCL questions, or a file of one's own.

    Args:
        bfcl: the folder of BFCL question files, for `bfcl`.

    Raises:
        SpecError: there is no such suite, or a file that cannot be used.
    """
    if name == "basic":
        return basic()
    if name == "bfcl":
        return _all_bfcl(bfcl)
    path = Path(name)
    if not path.exists():
        raise SpecError(
            f"there is no suite {name!r}", hint=f"{nearest(name, SUITES)}; or the path of a file"
        )
    return _bfcl(path) if path.suffix == ".jsonl" else _own(path)


def _bfcl(file: Path) -> list[Case]:
    return load_turns(file) if "multi_turn" in file.name else load_bfcl(file)


def _all_bfcl(folder: Path | None) -> list[Case]:
    """Every question of a folder."""
    files = sorted(folder.glob("BFCL_*.jsonl")) if folder is not None and folder.is_dir() else []
    if not files:
        raise SpecError(
            "the suite bfcl needs the benchmark's question files",
            hint="name their folder, or one of the files: --suite BFCL_v4_simple_python.jsonl",
        )
    return [case for file in files for case in _bfcl(file)]


# -- files of one's own --------------------------------------------------------------------------

_CASE_KEYS = (
    "id",
    "category",
    "message",
    "messages",
    "tools",
    "calls",
    "any_call",
    "failing",
    "comment",
)


def _own(path: Path) -> list[Case]:
    """`{tools: [...], cases: [{id, category, message, calls: [{name, arguments}]}]}` as YAML or JSON;
    an argument may be a value or, under `any_of`, a list of accepted ones."""
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"cannot be read: {reason}", file=str(path)) from None
    if not isinstance(data, Mapping) or not isinstance(data.get("cases"), list):
        raise SpecError("expected a mapping with `tools` and `cases`", file=str(path))
    shared = tuple(_own_tool(one, path) for one in data.get("tools") or ())
    return [
        _own_case(one, f"cases[{place}]", shared, path) for place, one in enumerate(data["cases"])
    ]


def _own_tool(data: Any, path: Path) -> ToolDefinition:
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise SpecError("a tool has a name, a description and parameters", file=str(path))
    parameters = data.get("parameters") or {"type": "object", "properties": {}}
    check_schema(parameters, data["name"])
    return ToolDefinition(
        name=data["name"], description=str(data.get("description") or ""), parameters=parameters
    )


def _own_case(data: Any, place: str, shared: tuple[ToolDefinition, ...], path: Path) -> Case:
    if not isinstance(data, Mapping):
        raise SpecError("expected a case", file=str(path), path=place)
    for key in data:
        if key not in _CASE_KEYS:
            hint = nearest(str(key), _CASE_KEYS)
            raise SpecError(f"unknown key {key!r}", file=str(path), path=place, hint=hint)
    tools = tuple(_own_tool(one, path) for one in data.get("tools") or ()) or shared
    known = {tool.name for tool in tools}
    calls = tuple(_own_call(one, known, f"{place}.calls", path) for one in data.get("calls") or ())
    messages = data.get("messages") or [{"role": "user", "content": data.get("message", "")}]
    return Case(
        id=str(data.get("id", place)),
        category=str(data.get("category", "own")),
        messages=tuple((str(one["role"]), str(one["content"])) for one in messages),
        tools=tools,
        calls=calls,
        any_call=bool(data.get("any_call", False)),
        failing={str(name): str(text) for name, text in (data.get("failing") or {}).items()},
    )


def _own_call(data: Any, known: set[str], place: str, path: Path) -> ExpectedCall:
    name = data.get("name") if isinstance(data, Mapping) else None
    if name not in known:
        hint = nearest(str(name), known) if known else "name the tools of the case"
        raise SpecError(f"no tool {name!r} is offered", file=str(path), path=place, hint=hint)
    arguments = {
        str(key): value["any_of"]
        if isinstance(value, Mapping) and value.keys() == {"any_of"}
        else [value]
        for key, value in (data.get("arguments") or {}).items()
    }
    return ExpectedCall(name=str(name), arguments=arguments)
