"""Agents that act in every way that a spec can say: random tools, hosts, effects, children and spellings.

An agent is written into a folder of its own: the modules, charts, specs and documents that it names. Every
module is unique (`own_7_3`), and every address of an agent has a port of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import yaml

PADDING = (
    *(" " * 5000, "\t" * 300, "\u202e", "\x1b[2K\r", "\u3164" * 40, "a" * 400, "\u2800\u200b"),
    *("\n\n", "\u043e"),
)
"""What a hostile spec puts before the word that matters."""

MODULE = '''
from pydantic import BaseModel

class Form(BaseModel):
    """A result."""
    score: int

open({mark!r}, "a").close()

def act(text="x"):
    """Leave a trace."""
    open({mark!r} + ".called", "a").close()
    return {{"text": str(text)}}

def run(text: str = "x") -> str:
    """Leave a trace."""
    open({mark!r} + ".called", "a").close()
    return text
'''


class ActingAgent:
    """One random agent.

    Args:
        number: makes its modules unique.
        folder: where its files are written; the process works there.
        ports: ports of this machine where nobody listens.
    """

    def __init__(self, random_source: random.Random, number: int, folder: Path, ports: Sequence[int]) -> None:
        self._random = random_source
        self._number = number
        self._folder = folder
        self._modules = 0
        self._ports = cycle(ports)
        self._files = 0
        self._calls: list[tuple[str, dict[str, Any]]] = []

    # -- names ---------------------------------------------------------------------------------

    def make_module(self) -> str:
        """A module of the user in the folder, alone or in a package."""
        self._modules += 1
        name = f"own_{self._number}_{self._modules}"
        text = MODULE.format(mark=f"ran_{name}")
        if self._random.random() < 0.3:
            package = self._folder / name
            package.mkdir()
            (package / "__init__.py").write_text("", "utf-8")
            (package / "inner.py").write_text(text, "utf-8")
            return f"{name}.inner"
        (self._folder / f"{name}.py").write_text(text, "utf-8")
        return name

    def make_address(self) -> str:
        """An address of this machine where nobody listens."""
        return f"http://127.0.0.1:{next(self._ports)}"

    def write_file(self, suffix: str, text: str) -> str:
        """A file in the folder; its name has no meaning."""
        self._files += 1
        name = f"file_{self._number}_{self._files}{suffix}"
        (self._folder / name).write_text(text, "utf-8")
        return name

    def make_folder(self) -> str:
        """An empty folder in the folder."""
        self._files += 1
        name = f"folder_{self._number}_{self._files}"
        (self._folder / name).mkdir()
        return name

    def pick(self, *choices: Any) -> Any:
        """One of some choices."""
        return self._random.choice(choices)

    # -- tools ---------------------------------------------------------------------------------

    def spell_entry(self, name: str, kind: str, keys: dict[str, Any]) -> dict[str, Any]:
        """An entry of `tools.registry`: nested, flat, or with its settings beside its name."""
        form = self.pick("nested", "flat", "beside")
        inner = {key: keys[key] for key in ("handler",) if key in keys}
        outer = {key: value for key, value in keys.items() if key not in inner}
        if form == "flat":
            return {"name": name, "type": kind, **keys}
        if form == "beside":
            return {"name": name, **outer, "implementation": {"type": kind, **inner}}
        return {"name": name, "type": "function", "implementation": {"type": kind, **keys}}

    def make_python_tool(self, name: str) -> dict[str, Any]:
        """A Python function, with or without a process of its own."""
        entry = self.spell_entry(name, "python", {"handler": f"{self.make_module()}:run"})
        self._calls.append((name, {"text": "t"}))
        if self._random.random() < 0.03:
            entry |= {"isolation": "process", "environment": ["ACTING_TOKEN"]}
        return entry

    def make_standard_tool(self, name: str) -> dict[str, Any]:
        """A function of the standard library that starts a program."""
        self._calls.append((name, {"command": f"true {name}_{self._number}"}))
        return self.spell_entry(name, "python", {"handler": "os:system"})

    def make_http_tool(self, name: str) -> dict[str, Any]:
        """One HTTP request to this machine."""
        keys = {
            "url": f"{self.make_address()}/x?key=${{ACTING_TOKEN}}",
            "allow_hosts": ["127.0.0.1"],
            "headers": {"x-token": "${ACTING_TOKEN}"},
            "retry": {"attempts": 1},
        }
        self._calls.append((name, {}))
        return self.spell_entry(name, "http", keys)

    def make_folder_tool(self, name: str) -> dict[str, Any]:
        """A builtin that reads files of one folder."""
        root = self.make_folder()
        (self._folder / root / "note.txt").write_text("a word", "utf-8")
        handler = self.pick("read_file", "search_files", "list_directory")
        arguments = {"read_file": {"path": "note.txt"}, "search_files": {"query": "word"}}
        self._calls.append((name, arguments.get(handler, {})))
        return self.spell_entry(name, "builtin", {"handler": handler, "root": root})

    def make_shell_tool(self, name: str) -> dict[str, Any]:
        """The shell, whose calls a rule of the spec approves."""
        self._calls.append((name, {"command": "true"}))
        return self.spell_entry(name, "builtin", {"handler": "run_shell", "root": "."})

    def make_search_tool(self, name: str) -> dict[str, Any]:
        """The search over documents, under each of its names."""
        folder = self.make_folder()
        (self._folder / folder / "note.md").write_text("# Word\n\nA word.\n", "utf-8")
        keys: dict[str, Any] = {"handler": self.pick("search_documents", "rag_query")}
        keys |= self.pick({"folder": folder}, {"folders": {"one": folder}})
        keys |= self.pick({}, {"index": f"{folder}.db"})
        self._calls.append((name, {"query": "word"}))
        return self.spell_entry(name, self.pick("internal", "builtin"), keys)

    def make_plain_tool(self, name: str) -> dict[str, Any]:
        """A tool that stays inside."""
        if self._random.random() < 0.3:
            self._calls.append((name, {}))
            return self.spell_entry(name, "mock", {"mock_response": {"address": "http://mock.test"}})
        handler = self.pick("calculator", "math_eval", "echo")
        arguments = {"text": "x"} if handler == "echo" else {"expression": "1 + 1"}
        self._calls.append((name, arguments))
        return self.spell_entry(name, "builtin", {"handler": handler})

    def make_mcp_section(self) -> dict[str, Any]:
        """A server of `tools.mcp`: a command with variables that choose what runs, or an address."""
        if self._random.random() < 0.25:
            return {"far": {"url": f"{self.make_address()}/mcp", "headers": {"x": "${ACTING_TOKEN}"}}}
        padding = self._random.choice(PADDING)
        server: dict[str, Any] = {"command": "/bin/sh", "args": ["-c", "exit 0", padding, "end of line"]}
        if self._random.random() < 0.5:
            server["env"] = self.pick({"PYTHONPATH": "."}, {"LD_LIBRARY_PATH": f"/nowhere{padding}"})
        if self._random.random() < 0.3:
            server["cwd"] = "."
        return {"near": server}

    def make_openapi_section(self) -> list[dict[str, Any]]:
        """A document, inline or in a file, whose server stands in the entry or in the document."""
        address = self.make_address()
        document: dict[str, Any] = {
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "paths": {"/orders": {"get": {"operationId": "list_orders", "responses": {}}}},
        }
        entry: dict[str, Any] = {"allow_hosts": ["127.0.0.1"]}
        if self._random.random() < 0.5:
            entry["base_url"] = address
        else:
            document["servers"] = [{"url": address}]
        forms: list[Callable[[], Any]] = [
            lambda: document,
            lambda: self.write_file(".json", json.dumps(document)),
            lambda: self.write_file(".yaml", yaml.safe_dump(document)),
        ]
        # A YAML file is parsed in a worker, which costs a second to start; once is enough in a while.
        weights = (10, 10, 1)
        entry["document"] = self._random.choices(forms, weights)[0]()
        self._calls.append(("list_orders", {}))
        return [entry]

    # -- hosts ---------------------------------------------------------------------------------

    def make_other_host(self) -> dict[str, Any]:
        """A host that a declared call asks."""
        kind = self.pick(
            *("openai", "openai", "variable", "ollama"), *("anthropic", "gemini", "bedrock", "responses")
        )
        address = self.make_address()
        if kind in ("ollama", "anthropic", "gemini", "bedrock"):
            key = {} if kind == "ollama" else {"api_key": "${ACTING_TOKEN}"}
            return {"provider": kind, "model": "m", "base_url": address, **key}
        host: dict[str, Any] = {"provider": "openai", "model": "m", "base_url": f"{address}/v1"}
        host["api_key"] = "${ACTING_TOKEN}" if kind == "variable" else "sk-literal-key-of-a-test"
        if kind == "responses":
            host["api"] = "responses"
        if self._random.random() < 0.2:
            host["headers"] = {"x-other": "${ACTING_TOKEN}"}
        if self._random.random() < 0.2:
            host["proxy"] = self.make_address()
        return host

    # -- charts --------------------------------------------------------------------------------

    def make_effect(self, name: str, depth: int) -> tuple[dict[str, Any], tuple[str, str]]:
        """A declared effect and the events that answer it."""
        kinds = ["call_function", "call_function", "call_model", "summary", "schema"]
        kinds += ["run_agent"] * 2 if depth < 2 else []
        kind = self.pick(*kinds)
        if kind == "call_function":
            function = f"{self.make_module()}:act"
            arguments = {"text": self.pick("{{user_message}}", "x", self._random.choice(PADDING))}
            body: Any = self.pick(
                function,
                {"function": function},
                {"function": function, "as": f"value_{name}", "arguments": arguments},
            )
            if self._random.random() < 0.15:
                body = {"function": "os:system", "arguments": {"command": f"true {name}_{self._number}"}}
            return {"call_function": body}, ("returned", "failed")
        if kind == "run_agent":
            return {"run_agent": self.make_child(depth)}, ("agent_finished", "agent_failed")
        call: dict[str, Any] = {"llm": "other", "as": f"value_{name}", "prompt": "Write."}
        if kind == "schema":
            call["schema"] = f"{self.make_module()}:Form"
        return {"call_model": call}, ("replied", "failed")

    def make_child(self, depth: int) -> dict[str, Any]:
        """An agent of its own: by its spec, by an inline chart, or by a chart in a file."""
        kind = self.pick("spec", "spec", "inline", "path", "handler")
        name = f"child_{self._random.randrange(10**9)}"
        if kind == "handler":
            return {"handler": "first", "as": name}
        if kind == "spec":
            spec = self.make_spec(depth + 1)
            return {"spec": self.write_file(".yaml", yaml.safe_dump(spec)), "as": name}
        chart, _ = self.make_chart(depth + 1, declares=True)
        if kind == "inline":
            return {"chart": chart, "as": name}
        return {"chart": self.write_file(".yaml", yaml.safe_dump(chart, sort_keys=False)), "as": name}

    def make_chart(self, depth: int, *, declares: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """A chart that asks for random effects in turn, and the effects that the spec must declare.

        Args:
            declares: whether the chart declares all of them itself.
        """
        effects: dict[str, Any] = {"publish": {"answer": "done"}}
        states: dict[str, Any] = {}
        count = self._random.randint(1, 3 if depth == 0 else 2)
        for index in range(count):
            name = f"do_{index}"
            effects[name], (good, bad) = self.make_effect(name, depth)
            target = f"s{index + 1}" if index + 1 < count else "finished"
            rows = [{"event": event, "target": target} for event in (good, bad)]
            rows.append({"event": "cancelled", "target": "error"})
            states[f"s{index}"] = {"enter": name, "transitions": rows}
        states["s0"]["initial"] = True
        states["finished"] = {"final": True, "enter": "publish"}
        states["error"] = {"final": True, "enter": "answer_with_error"}
        chart = {"name": "flow", "states": states}
        if declares or self._random.random() < 0.5:
            return {**chart, "effects": effects}, {}
        return chart, effects

    def place_chart(self, spec: dict[str, Any], depth: int) -> None:
        """Put a chart into a spec: inline, in a file, or in one that extends another."""
        chart, effects = self.make_chart(depth)
        form = self.pick("inline", "path", "extends")
        if form == "inline":
            spec["chart"] = chart
        elif form == "path":
            spec["chart"] = self.write_file(".yaml", yaml.safe_dump(chart, sort_keys=False))
        else:
            base = self.write_file(".yaml", yaml.safe_dump(chart, sort_keys=False))
            spec["chart"] = {"extends": base, "name": "longer"}
        if effects:
            spec["effects"] = effects
        elif self._random.random() < 0.3:  # the spec changes what the chart declares
            spec["effects"] = {"do_0": self.change_effect(chart["effects"]["do_0"])}

    def change_effect(self, body: dict[str, Any]) -> dict[str, Any]:
        """Another parameter of the same kind, or another function."""
        kind = next(iter(body))
        if kind == "call_function":
            return {kind: {"function": f"{self.make_module()}:act"}}
        return {kind: {"comment": None}}

    # -- the whole -----------------------------------------------------------------------------

    def make_spec(self, depth: int = 0) -> dict[str, Any]:
        """The spec of an agent."""
        self._calls = []
        tools = self.make_tools()
        calls = [{"name": name, "arguments": arguments} for name, arguments in self._calls]
        script = [{"tool_calls": calls}, "done"] if calls else ["done"]
        spec: dict[str, Any] = {
            "name": "acting",
            "chart": "tool_loop",
            "llms": {"main": {"provider": "scripted", "model": "m", "replies": script}},
            "responses": [{"name": "first", "llm": "main", "prompt": "x", "tools": {"enabled": True}}],
        }
        if tools:
            spec["tools"] = tools
            spec["approval"] = [{"tools": "*", "decision": "always"}]
        spec["llms"]["other"] = self.make_other_host()
        if self._random.random() < 0.6:
            self.place_chart(spec, depth)
        self.add_sections(spec)
        return spec

    def make_tools(self) -> dict[str, Any]:
        """The section `tools`."""
        makers = [
            *(self.make_python_tool, self.make_python_tool, self.make_standard_tool, self.make_http_tool),
            *(self.make_folder_tool, self.make_shell_tool, self.make_search_tool, self.make_plain_tool),
        ]
        count = self._random.choice((0, 1, 1, 2, 3))
        entries = [self._random.choice(makers)(f"tool_{index}") for index in range(count)]
        tools: dict[str, Any] = {"registry": entries} if entries else {}
        if self._random.random() < 0.15:
            tools["mcp"] = self.make_mcp_section()
        if self._random.random() < 0.15:
            tools["openapi"] = self.make_openapi_section()
        return tools

    def add_sections(self, spec: dict[str, Any]) -> None:
        """Sections that name files, addresses and variables."""
        if self._random.random() < 0.15:
            spec["prices"] = self.write_file(".yaml", "models: {m: {input: 1, output: 1}}\n")
        if self._random.random() < 0.1:
            spec["debug"] = {"traces": True, "folder": f"debug_{self._number}"}
        if self._random.random() < 0.1:
            spec["rag_services"] = {"s": {"url": self.make_address(), "collections": ["c"]}}
        if self._random.random() < 0.2:
            spec["comment"] = self._random.choice(PADDING) + "${ACTING_TOKEN}"


def write_agent(seed: int, number: int, folder: Path, ports: Sequence[int]) -> dict[str, Any]:
    """Write the files of an agent into a folder, and return its spec."""
    random_source = random.Random(f"{seed}/{number}")
    return ActingAgent(random_source, number, folder, ports).make_spec()
