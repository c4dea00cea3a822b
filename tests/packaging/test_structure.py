"""The structure of the source tree: layers, import cycles, names, docstrings and late imports.

These are the house rules of CONTRIBUTING.md. They read the syntax trees and need no other tool.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache

import pytest
import source_tree
from source_tree import Import, Module

MODULES = source_tree.load_modules()


@cache
def list_all_imports() -> dict[str, list[Import]]:
    """The imports of every module; read when a test asks, since every worker collects this file."""
    return {name: source_tree.list_imports(module, MODULES) for name, module in MODULES.items()}


MAX_LATE_IMPORTS = 212

RANKS = {
    "workers": 0,
    "states": 1,
    "specs": 2,
    "tools": 3,
    "providers": 3,
    "engine": 4,
    "testing": 5,
    "app": 6,
}

IRREGULAR_PARTICIPLES = {
    *("told", "made", "found", "given", "kept", "said", "asked", "taken", "shown", "seen"),
    *("chosen", "known", "held", "left", "got", "written", "sent", "begun", "gone", "come"),
    *("drawn", "heard", "brought", "built", "bought", "lost", "met", "paid", "sold", "won"),
}
NOT_PARTICIPLES = {"feed", "need", "seed", "speed", "embed", "shed", "exceed", "proceed", "succeed"}

SAME_TASK_IN_EACH_ADAPTER = {
    "_encode_message": "encodes one message",
    "_build_provider_data": "keeps what a host wants back of its reply",
    "_encode_tool": "encodes a tool definition",
    "_encode_tool_call": "encodes an earlier tool call",
    "_encode_tool_choice": "encodes the tool choice",
    "_encode_response_format": "encodes the format that the answer must have",
    "_decode_tool_call": "decodes a tool call of a reply",
}
"""Private functions that do the same task for the wire format of each host, and so share a name."""

HEAVY_PACKAGES = {
    "re2": "2.5 MB; only agents with patterns need it",
    "anyio": "loaded with the MCP client",
    "azure": "extra `entra`",
    "asyncio": "not needed by the child process that runs untrusted work",
    "botocore": "extra `bedrock`",
    "cryptography": "signatures: needed only where a decision or a seal is signed or checked",
    "dbos": "extra `durable`",
    "fast_sugiyama": "extra `pictures`",
    "google": "SDK of Gemini: hundreds of modules",
    "httpx": "HTTP client: needed only where a request is sent",
    "httpx2": "HTTP client of the MCP and Gemini SDKs",
    "hypothesis": "test extra: absent from a plain install",
    "json_repair": "extra `repair`",
    "jsonpath_ng": "extra `http`",
    "jsonschema": "schema checks: needed only where a schema is compiled",
    "jsonschema_specifications": "schema checks: needed only where a schema is compiled",
    "jsonschema_rs": "schema checks: needed only where a schema is compiled",
    "mcp": "extra `mcp`",
    "mcp_types": "extra `mcp`",
    "ollama": "SDK",
    "opentelemetry": "extra `otel`",
    "openai": "SDK: more than a second",
    "prometheus_client": "extra `metrics`",
    "prompt_toolkit": "needed only on a terminal",
    "psycopg": "extra `postgres`",
    "pydantic": "models of specs: a fifth of a second",
    "pydantic_core": "the compiled half of pydantic",
    "pypdf": "extra `pdf`",
    "resvg_py": "extra `pictures`",
    "rich": "needed only on a terminal",
    "sqlite3": "library of SQLite: needed only where a database is opened",
    "sqlalchemy": "extra `durable`",
    "starlette": "extra `serve`",
    "statemachine": "python-statemachine: needed only where a chart is compiled or checked",
}
"""Packages that may be imported inside a function, each with the reason."""

ALWAYS_LIGHT_MODULES = {"toolchart.testing.plugin": "pytest loads it in every run"}
"""Modules in which every import of the package may be inside a function, each with the reason."""

RARELY_NEEDED_MODULES = {
    "toolchart.app.cli.handing_over": "going on with an open turn",
    "toolchart.app.cli.log_access": "output as JSON",
    "toolchart.app.cli.newest_conversation": "`--continue`",
    "toolchart.app.cli.stored_agent": "going on with an open turn",
    "toolchart.app.cli.terminal.approval_prompt": "a person at the terminal",
    "toolchart.app.cli.terminal.forms": "a person at the terminal",
    "toolchart.engine.batch.runner": "`batch`, after its options were checked",
    "toolchart.engine.exchange.exports": "`Engine.export_owner`",
    "toolchart.engine.exchange.mermaid": "`Engine.draw`",
    "toolchart.engine.exchange.sequence": "`draw --format sequence`",
    "toolchart.engine.log.fork": "`Engine.fork`",
    "toolchart.engine.log.reading.records": "`draw --format sequence`",
    "toolchart.engine.log.reading.visited_path": "drawing a conversation",
    "toolchart.engine.log.record_schema": "`schema records`",
    "toolchart.engine.rerun.judges": "`rerun`, after its options were checked",
    "toolchart.engine.rerun.rendering": "`rerun`, after its options were checked",
    "toolchart.engine.rerun.report": "`rerun`, after its options were checked",
    "toolchart.engine.runtime.turn_context": "specs that find topic and intent",
    "toolchart.engine.runtime.engine": "commands whose options were checked",
    "toolchart.engine.runtime.recorded_answers": "forks, reruns and children of them",
    "toolchart.engine.runtime.streaming": "`Engine.stream`",
    "toolchart.engine.runtime.handle": "`Engine.conversation`",
    "toolchart.providers.catalogs": "search by meaning",
    "toolchart.specs.child_agents": "charts that run agents",
    "toolchart.specs.chat_messages": "`--history`",
    "toolchart.specs.sections.preparation": "specs that find topic and intent",
    "toolchart.tools.schemas.repair": "arguments that do not fit",
    "toolchart.tools.execution.isolation": "tools in processes",
    "toolchart.tools.retrieval.services": "specs with `rag_services`",
    "toolchart.tools.sources.attachments": "messages with attachments",
    "toolchart.tools.sources.http.settings": "HTTP tools",
    "toolchart.tools.sources.http.tool": "HTTP tools",
    "toolchart.workers.pool": "untrusted work in a worker",
}
"""Modules of the package that may be imported inside a function though they load nothing heavy: most runs
never need them, and importing hundreds of modules is most of a start. Each with what needs it."""

LATE_STANDARD_MODULES = {
    "fcntl": "exists only on Unix",
    "resource": "exists only on Unix",
    "termios": "exists only on Unix",
    "tomllib": "needed only where a configuration file is read",
    "importlib.metadata": "needed only where entry points are read",
}
"""Modules of the standard library that may be imported inside a function, each with the reason."""


def list_layer_breaks(module: Module) -> list[str]:
    """Return the imports of a module that reach a higher layer, or the other room of its own layer."""
    if not module.room:
        return []
    breaks = []
    for entry in list_all_imports()[module.name]:
        target_room = MODULES[entry.target].room if entry.target in MODULES else ""
        is_inner = target_room in ("", module.room)
        if not is_inner and RANKS[target_room] >= RANKS[module.room]:
            breaks.append(f"{module.location}:{entry.line} imports {entry.target}")
    return breaks


def test_a_lower_layer_never_imports_a_higher_one() -> None:
    """Imports go down the layers only, and `tools` and `providers` never import each other."""
    assert [line for module in MODULES.values() for line in list_layer_breaks(module)] == []


def test_there_is_no_import_cycle() -> None:
    """No module imports itself through others, not even inside a function or for type checking only."""
    graph = {
        name: {entry.target for entry in entries if entry.target in MODULES} - {name}
        for name, entries in list_all_imports().items()
    }
    assert source_tree.find_cycles(graph) == []


def is_bare_participle(name: str) -> bool:
    """Tell whether a name is one past participle: `settled`, `_told`; `read_line` and `is_open` are not."""
    word = name.strip("_")
    if "_" in word or word in NOT_PARTICIPLES:
        return False
    return word in IRREGULAR_PARTICIPLES or (len(word) > 3 and word.endswith("ed"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("told", True),
        ("_settled", True),
        ("opened", True),
        ("read_line", False),
        ("mark_opened", False),
        ("embed", False),
        ("red", False),
    ],
)
def test_the_rule_for_participles(name: str, expected: bool) -> None:
    """The rule recognises participles of one word, and neither compounds nor verbs that end in -ed."""
    assert is_bare_participle(name) is expected


def test_no_function_is_a_bare_participle() -> None:
    """A function is named by a verb: `close_call`, and never `closed`."""
    assert [
        f"{module.location}:{function.lineno} {function.name}"
        for module in MODULES.values()
        for function in module.iterate_functions()
        if is_bare_participle(function.name)
    ] == []


def test_private_names_are_specific() -> None:
    """A private function's name is in at most three modules, except where adapters do the same task."""
    modules_by_name: defaultdict[str, set[str]] = defaultdict(set)
    for module in MODULES.values():
        for function in module.iterate_functions():
            if function.name.startswith("_") and not function.name.startswith("__"):
                modules_by_name[function.name].add(module.location)
    shared = {name: places for name, places in modules_by_name.items() if len(places) >= 4}
    assert {
        name: sorted(places) for name, places in shared.items() if name not in SAME_TASK_IN_EACH_ADAPTER
    } == {}
    assert set(SAME_TASK_IN_EACH_ADAPTER) <= set(shared), "an exception that is not needed"
    for name in SAME_TASK_IN_EACH_ADAPTER:
        assert all(place.startswith("providers/") for place in shared[name]), name


def test_public_definitions_have_docstrings() -> None:
    """Every module, public class, public function and public method has a docstring."""
    missing = [
        f"{module.location} (the module)"
        for module in MODULES.values()
        if ast.get_docstring(module.tree) is None
    ]
    for module in MODULES.values():
        for name, node in module.iterate_public_definitions():
            if ast.get_docstring(node) is None:
                missing.append(f"{module.location}:{node.lineno} {name}")
    assert missing == []


def find_package(target: str) -> str:
    """Return the top-level name of a module: `google` of `google.genai.types`."""
    return target.partition(".")[0]


@cache
def list_loaded_modules(name: str) -> frozenset[str]:
    """Return the modules that importing a module of the package loads, directly or through others."""
    loaded: set[str] = set()
    queue = [name]
    while queue:
        current = queue.pop()
        if current in loaded:
            continue
        loaded.add(current)
        if current not in MODULES:
            continue
        queue += [entry.target for entry in list_all_imports()[current] if entry.runs_at_import]
        parts = current.split(".")
        queue += [".".join(parts[:count]) for count in range(1, len(parts))]
    return frozenset(loaded)


def list_heavy_packages(name: str) -> set[str]:
    """Return the heavy packages that importing a module of the package loads."""
    return {find_package(target) for target in list_loaded_modules(name)} & set(HEAVY_PACKAGES)


def is_justified(module: Module, entry: Import) -> bool:
    """Tell whether an import inside a function keeps a start-up light.

    A foreign module must be heavy or platform-specific. A module of the package must load a heavy
    package that the importing module does not load anyway, or be one that most runs never need.
    """
    if entry.target in MODULES:
        is_allowed = module.name in ALWAYS_LIGHT_MODULES or entry.target in RARELY_NEEDED_MODULES
        return is_allowed or bool(list_heavy_packages(entry.target) - list_heavy_packages(module.name))
    return find_package(entry.target) in HEAVY_PACKAGES or entry.target in LATE_STANDARD_MODULES


def test_imports_inside_functions_keep_the_start_light() -> None:
    """An import is inside a function only if it would load a heavy package at the top of the module."""
    late = [
        (module, entry)
        for module in MODULES.values()
        for entry in list_all_imports()[module.name]
        if entry.function is not None
    ]
    assert [
        f"{module.location}:{entry.line} {entry.target}"
        for module, entry in late
        if not is_justified(module, entry)
    ] == []
    assert len(late) <= MAX_LATE_IMPORTS


def test_each_exception_is_used() -> None:
    """Every package that may be imported late is imported late somewhere, directly or through a module."""
    late = {entry.target for entries in list_all_imports().values() for entry in entries if entry.function}
    packages = {find_package(target) for target in late}
    for target in late & set(MODULES):
        packages |= list_heavy_packages(target)
    assert set(HEAVY_PACKAGES) <= packages
    assert set(LATE_STANDARD_MODULES) <= late
    assert set(RARELY_NEEDED_MODULES) <= late
