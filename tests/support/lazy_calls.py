"""Finds calls of generators and coroutines whose result nobody consumes: what they say never runs.

A generator does nothing until somebody iterates over it, and a coroutine nothing until somebody awaits it. So
`replay(lines)` as a statement checks nothing, and `assert find(lines)` always holds. A function counts as
lazy where it is `async def`, has a `yield` of its own, or says that it returns an iterator or an awaitable.

Names are resolved by the syntax trees alone: a function by its definition in the same file or by its import,
a method by its name, where every definition of that name in the tree is lazy and no type of the standard
library that tests commonly hold has an attribute of that name.
"""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import contextlib
import io
import multiprocessing.process
import pathlib
import socket
import sqlite3
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_LAZY_RESULTS = {
    *("Iterator", "Generator", "AsyncIterator", "AsyncGenerator", "Coroutine", "Awaitable"),
    *("AsyncIterable", "AbstractContextManager", "AbstractAsyncContextManager"),
}

_COMMON_TYPES = (
    *(list, dict, set, str, bytes, asyncio.Task, asyncio.Event, asyncio.Queue, asyncio.Lock, asyncio.Server),
    *(asyncio.StreamWriter, asyncio.AbstractEventLoop, threading.Thread, threading.Event),
    *(multiprocessing.process.BaseProcess, subprocess.Popen, concurrent.futures.Executor, io.BytesIO),
    *(concurrent.futures.Future, socket.socket, pathlib.Path, contextlib.ExitStack, sqlite3.Connection),
)
_COMMON_ATTRIBUTES = {name for kind in _COMMON_TYPES for name in dir(kind)} | {"verify"}
"""Names of methods that say nothing; `verify` is that of public keys too."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A file, or one function in it, without the functions within."""

    node: ast.Module | Function
    is_method: bool
    nodes: list[ast.AST]

    @cached_property
    def is_lazy(self) -> bool:
        """Whether a call does nothing until its result is iterated over, awaited or entered."""
        if isinstance(self.node, ast.Module | ast.AsyncFunctionDef):
            return isinstance(self.node, ast.AsyncFunctionDef)
        result = self.node.returns
        if isinstance(result, ast.Subscript):
            result = result.value
        if result is not None and ast.unparse(result).rpartition(".")[2] in _LAZY_RESULTS:
            return True
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in self.nodes)

    def iterate_idle_calls(self) -> Iterator[ast.Call]:
        """The calls whose result is dropped, kept and never read, or only asked for truth or equality."""
        for node in self.nodes:
            values: list[ast.expr | None] = []
            match node:
                case ast.Expr():
                    values = [node.value]
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    is_idle = isinstance(node.value, ast.Call) and not self._reads(name)
                    values = [node.value] if is_idle else []
                case ast.Assert() | ast.If() | ast.While() | ast.IfExp():
                    values = [node.test]
                case ast.UnaryOp(op=ast.Not()):
                    values = [node.operand]
                case ast.BoolOp():
                    values = list(node.values[:-1])
                case ast.Compare():
                    is_iterated = any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
                    values = [node.left, *(() if is_iterated else node.comparators)]
            yield from (value for value in values if isinstance(value, ast.Call))

    def _reads(self, name: str) -> bool:
        """Whether the function, or one within, reads a variable; one of a file counts as read."""
        if isinstance(self.node, ast.Module):
            return True
        return name in self._read_names

    @cached_property
    def _read_names(self) -> set[str]:
        names: set[str] = set()
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names.add(node.id)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                names.update(node.names)
        return names


class LazyCalls:
    """The lazy functions of a set of files, and the calls of them that nobody consumes.

    Args:
        trees: the syntax tree of each file, by its dotted name, as imports name it.
    """

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._scopes = {module: _list_scopes(tree) for module, tree in trees.items()}
        self._methods: dict[str, set[bool]] = defaultdict(set)
        """Of each name that a method has anywhere: whether its definitions are lazy."""
        self._functions: dict[str, dict[str, bool]] = {}
        """Of each file, whether what a name of a function means there is lazy, methods aside."""
        for module, scopes in self._scopes.items():
            kinds: dict[str, set[bool]] = defaultdict(set)
            for scope in scopes:
                if isinstance(scope.node, Function):
                    (self._methods if scope.is_method else kinds)[scope.node.name].add(scope.is_lazy)
            self._functions[module] = {name: lazy == {True} for name, lazy in kinds.items()}
        for name in _list_blocking_forms(trees):
            self._methods[name].add(False)

    def list_lazy(self, module: str) -> set[str]:
        """The names of the lazy functions of a file, methods aside."""
        return {name for name, lazy in self._functions[module].items() if lazy}

    def list_unconsumed(self, module: str) -> list[tuple[int, str]]:
        """The calls in a file whose result nobody consumes: the line, and what is called."""
        names = self._resolve_names(module)
        methods = {
            scope.node.name
            for scope in self._scopes[module]
            if scope.is_method and isinstance(scope.node, Function)
        }
        calls = [call for scope in self._scopes[module] for call in scope.iterate_idle_calls()]
        lazy = [call for call in calls if self._is_lazy(call, names, methods)]
        return sorted((call.lineno, ast.unparse(call.func)) for call in lazy)

    def _resolve_names(self, module: str) -> dict[str, bool]:
        """Whether what each name in a file means is lazy; functions of an imported module with their dot."""
        names: dict[str, bool] = {}
        for node in (node for scope in self._scopes[module] for node in scope.nodes):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    name = alias.asname or alias.name
                    names.update(self._list_functions_of(f"{node.module}.{alias.name}", name))
                    names[name] = self._functions.get(node.module, {}).get(alias.name, False)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name
                    names[name] = False
                    names.update(self._list_functions_of(alias.name, name))
        return {**names, **self._functions[module]}

    def _list_functions_of(self, module: str, name: str) -> dict[str, bool]:
        return {f"{name}.{function}": lazy for function, lazy in self._functions.get(module, {}).items()}

    def _is_lazy(self, call: ast.Call, names: Mapping[str, bool], methods: set[str]) -> bool:
        name = ast.unparse(call.func)
        if name in names:
            return names[name]
        if not isinstance(call.func, ast.Attribute) or call.func.attr in _COMMON_ATTRIBUTES:
            return False
        owner = ast.unparse(call.func.value)
        if owner in names or (owner == "self" and call.func.attr not in methods):
            return False  # a foreign module's, or inherited from a foreign class
        return self._methods.get(call.func.attr) == {True}


def _list_scopes(tree: ast.Module) -> list[Scope]:
    """The file and each function in it."""
    scopes = []
    pending: list[tuple[ast.Module | Function, bool]] = [(tree, False)]
    while pending:
        scope, is_method = pending.pop()
        nodes, waiting = [], list(ast.iter_child_nodes(scope))
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            if isinstance(node, ast.ClassDef):
                pending += ((part, True) for part in node.body if isinstance(part, Function))
                waiting += (part for part in node.body if not isinstance(part, Function))
            elif isinstance(node, Function):
                pending.append((node, False))
            elif not isinstance(node, ast.Lambda):
                waiting += ast.iter_child_nodes(node)
        scopes.append(Scope(node=scope, is_method=is_method, nodes=nodes))
    return scopes


def _list_blocking_forms(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """The methods that classes make of their coroutines: `run = blocking(arun)`."""
    for tree in trees.values():
        for node in ast.walk(tree):
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                match part:
                    case ast.Assign(
                        targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="blocking"))
                    ):
                        yield name


def load_trees(root: Path) -> dict[str, ast.Module]:
    """The syntax trees of the package and of its tests and benchmarks, by the names that imports use."""
    trees = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part.startswith(".") or part in ("build", "site") for part in parts):
            continue
        if parts[:2] == ("tests", "support") or parts[0] == "benchmarks":
            name = parts[-1]  # their folders are on the path
        elif parts[0] == "tests":
            name = ".".join(parts)
        else:
            name = ".".join(("toolchart", *(parts[:-1] if parts[-1] == "__init__" else parts)))
        trees[name] = ast.parse(path.read_text("utf-8"))
    return trees
