"""Mutants: one small change of one function, which can be put into a running process.

A mutant is named by its place and its change: `states/core/step.py::step::negate 'not x'`. The name holds as
long as its function keeps its text there, so a list of mutants survives changes elsewhere.
"""

from __future__ import annotations

import ast
import gc
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import msgspec

import toolchart

ROOT = Path(next(iter(toolchart.__path__))).resolve()

Edit = Callable[[], None]
"""Changes the tree in one place."""

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOGGERS = ("log", "logger", "logging", "warnings")


class NothingToChange(LookupError):
    """No function of the process has the code to change, or a closure would get other variables."""


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one function."""

    path: str
    """The module's file, from the root of the package."""
    function: str
    """The qualified name of the outermost function that is changed."""
    change: str
    """What is changed; the same change of one function is numbered."""
    line: int
    """Where the change stands in the file at present."""

    @property
    def name(self) -> str:
        """The name under which it is listed."""
        return f"{self.path}::{self.function}::{self.change}"

    @property
    def rank(self) -> str:
        """Its place in the order in which mutants are drawn: at random, and the same in each run."""
        return hashlib.sha256(self.name.encode()).hexdigest()


def list_mutants(path: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    tree = ast.parse((ROOT / path).read_text())
    return [
        Mutant(path=path, function=name, change=change, line=line)
        for name, function in _iterate_functions(tree)
        for change, line, _ in _iterate_edits(function)
    ]


def install_mutant(mutant: Mutant) -> None:
    """Change every function object of this process that has the code of the mutant's function.

    Raises:
        NothingToChange: no function has that code, or a closure would get other variables.
    """
    module = import_module("toolchart." + mutant.path.removesuffix(".py").replace("/", "."))
    file = module.__file__ or ""
    original = _compile_function(mutant, file, is_changed=False)
    changed = _compile_function(mutant, file, is_changed=True)
    functions = [
        thing
        for thing in gc.get_objects()
        if type(thing) is FunctionType and _is_same_place(thing.__code__, original)
    ]
    if not functions or original.co_freevars != changed.co_freevars:
        raise NothingToChange(mutant.name)
    for function in functions:
        function.__code__ = changed


def _is_same_place(code: CodeType, other: CodeType) -> bool:
    return (code.co_qualname, code.co_firstlineno, code.co_filename) == (
        other.co_qualname,
        other.co_firstlineno,
        other.co_filename,
    )


def _compile_function(mutant: Mutant, file: str, *, is_changed: bool) -> CodeType:
    """The code of the mutant's function, in a module that is compiled as the running one was."""
    tree = ast.parse((ROOT / mutant.path).read_text())
    function = next(node for name, node in _iterate_functions(tree) if name == mutant.function)
    if is_changed:
        next(edit for change, _, edit in _iterate_edits(function) if change == mutant.change)()
        ast.fix_missing_locations(tree)
    return _find_code(compile(tree, file, "exec", dont_inherit=True), mutant.function)


def _find_code(code: CodeType, name: str) -> CodeType:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for candidate in inner:
        if candidate.co_qualname == name:
            return candidate
        if name.startswith(candidate.co_qualname + "."):
            return _find_code(candidate, name)
    raise LookupError(name)


def _iterate_functions(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The functions and methods of a module with their names; what stands inside one belongs to it."""
    seen = Counter[str]()
    todo: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while todo:
        prefix, node = todo.pop(0)
        if isinstance(node, _FUNCTIONS) and node.name != "__repr__":  # what a debugger shows
            name = prefix + node.name
            seen[name] += 1
            if seen[name] == 1:  # not the setter of a property, not a second overload
                yield name, node
        elif isinstance(node, ast.ClassDef):
            todo[:0] = [(f"{prefix}{node.name}.", child) for child in node.body]


def _iterate_edits(function: ast.AST) -> Iterator[tuple[str, int, Edit]]:
    """The changes of a function, each with its name and its line."""
    seen = Counter[str]()
    for node, change, edit in _iterate_unnamed_edits(function):
        text = " ".join(ast.unparse(node).split())
        name = f"{change} `{text if len(text) <= 70 else text[:67] + '...'}`"
        seen[name] += 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), node.lineno, edit


def _iterate_unnamed_edits(function: Any) -> Iterator[tuple[Any, str, Edit]]:
    for node in _iterate_code(function):
        match node:
            case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
                yield node, "swap", lambda node=node, op=op: node.ops.__setitem__(0, _SWAPPED[type(op)]())
            case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _SWAPPED and not _has_text(node):
                yield node, "swap", lambda node=node, op=op: setattr(node, "op", _SWAPPED[type(op)]())
            case ast.If() | ast.IfExp() | ast.While():
                yield node.test, "negate", lambda node=node: _negate(node)
                if not isinstance(node, ast.While) and not _only_raises(node):
                    yield node.test, "never", lambda node=node: setattr(node, "test", ast.Constant(False))
            case ast.Constant(value=bool() as value):
                yield node, "flip", lambda node=node, value=value: setattr(node, "value", not value)
            case ast.Constant(value=int() as value):
                yield node, "one more than", lambda node=node, value=value: setattr(node, "value", value + 1)
            case ast.Call(keywords=[_, *_]):
                for keyword in node.keywords:
                    if keyword.arg is not None and not _is_logging(node):
                        yield (
                            keyword,
                            f"in {ast.unparse(node.func)[-40:]} without",
                            lambda node=node, keyword=keyword: node.keywords.remove(keyword),
                        )
            case ast.Return(value=ast.AST()) if not _is_none(node.value):
                yield node, "nothing for", lambda node=node: setattr(node, "value", ast.Constant(None))
        for body in _list_bodies(node):
            for index, statement in enumerate(body):
                if _can_go(statement):
                    yield (
                        statement,
                        "without",
                        lambda body=body, index=index: body.__setitem__(index, ast.Pass()),
                    )


def _iterate_code(function: Any) -> Iterator[Any]:
    """The nodes that run when the function runs: no annotations, decorators, defaults, docstrings."""
    todo: list[Any] = list(function.body)
    yield function
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node
        if isinstance(node, ast.AnnAssign):
            todo[:0] = [node.value] if node.value is not None else []
        elif isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            todo[:0] = node.body if isinstance(node.body, list) else [node.body]
        elif isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
            continue  # the words of errors are not what is proved here
        else:
            todo[:0] = list(ast.iter_child_nodes(node))


def _list_bodies(node: Any) -> list[list[Any]]:
    bodies = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [body for body in bodies if isinstance(body, list)]


def _can_go(statement: ast.AST) -> bool:
    """Whether a statement may be left out: a call for its effect, or a change of something that exists."""
    match statement:
        case ast.Expr(value=ast.Call() as call):
            return not _is_logging(call)
        case ast.Expr(value=ast.Await(value=ast.Call())) | ast.AugAssign() | ast.Delete():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Continue() | ast.Break():
            return True
    return False


def _is_logging(call: ast.Call) -> bool:
    name = call.func
    while isinstance(name, ast.Attribute):
        name = name.value
    return isinstance(name, ast.Name) and name.id in _LOGGERS


def _only_raises(node: Any) -> bool:
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _has_text(node: ast.AST) -> bool:
    """Whether a sum joins texts: a difference of texts would only raise."""
    return any(isinstance(child, ast.JoinedStr) for child in ast.walk(node))


def _negate(node: Any) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)
