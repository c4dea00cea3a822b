"""Reads the package's source files: modules, their imports, and the functions and classes they define."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("states", "workers", "specs", "tools", "providers", "engine", "testing", "app")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module, and where the statement is."""

    target: str
    line: int
    function: str | None
    """The function that it stands in; None at the top of the module."""


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        return ast.parse(self.path.read_text("utf-8"))

    @property
    def room(self) -> str:
        """The layer of the module: the first folder of its path; empty for the package's own `__init__`."""
        parts = self.path.relative_to(ROOT).parts
        return parts[0] if len(parts) > 1 else ""

    @property
    def location(self) -> str:
        """The path of the file, from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    def iterate_functions(self) -> Iterator[Function]:
        """Yield every function: methods and nested functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def iterate_public_definitions(self) -> Iterator[tuple[str, Function | ast.ClassDef]]:
        """Yield the public functions, classes and methods with their qualified names."""
        yield from _iterate_public(self.tree, "")


def _iterate_public(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.If | ast.Try):
            yield from _iterate_public(node, prefix)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.startswith("_") or "overload" in map(ast.unparse, node.decorator_list):
                continue
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _iterate_public(node, f"{prefix}{node.name}.")


def load_modules() -> dict[str, Module]:
    """Return every module of the package by its dotted name."""
    paths = [ROOT / name for name in ("__init__.py", "__main__.py", "late_names.py")]
    for layer in LAYERS:
        paths += sorted((ROOT / layer).rglob("*.py"))
    return {name: Module(name, path) for path in paths for name in [_name_module(path)]}


def _name_module(path: Path) -> str:
    parts = ("toolchart", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def list_imports(module: Module, known_modules: Mapping[str, Module]) -> list[Import]:
    """Return every import of a module; `from package import module` counts as an import of that module."""
    imports: list[Import] = []

    def visit(node: ast.AST, function: str | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # holds no statement, and most of a tree are expressions
                continue
            targets = _list_targets(child, known_modules)
            for target in targets:
                imports.append(Import(target=target, line=child.lineno, function=function))
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            visit(child, function or (child.name if is_function else None))

    visit(module.tree, None)
    return imports


def _list_targets(node: ast.AST, known_modules: Mapping[str, Module]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or node.module is None:
        return []
    names = [f"{node.module}.{alias.name}" for alias in node.names]
    return list(dict.fromkeys(name if name in known_modules else node.module for name in names))


def find_cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def connect(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for neighbour in sorted(graph[node]):
            if neighbour not in order:
                connect(neighbour)
                lowest[node] = min(lowest[node], lowest[neighbour])
            elif neighbour in stack:
                lowest[node] = min(lowest[node], order[neighbour])
        if lowest[node] == order[node]:
            start = stack.index(node)
            component = stack[start:]
            del stack[start:]
            if len(component) > 1:
                cycles.append(sorted(component))

    for node in sorted(graph):
        if node not in order:
            connect(node)
    return cycles
