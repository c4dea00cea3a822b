"""The structure of the source tree: import cycles, names of functions and docstrings.

import-linter holds the layers. `python tests/counts/house.py` prints what is worth watching and no rule.
"""

from __future__ import annotations

import ast

import pytest
import source_tree

MODULES = source_tree.load_modules()

IRREGULAR_PARTICIPLES = {
    *("told", "made", "found", "given", "kept", "said", "asked", "taken", "shown", "seen"),
    *("chosen", "known", "held", "left", "got", "written", "sent", "begun", "gone", "come"),
    *("drawn", "heard", "brought", "built", "bought", "lost", "met", "paid", "sold", "won"),
}
NOT_PARTICIPLES = {"feed", "need", "seed", "speed", "embed", "shed", "exceed", "proceed", "succeed"}


def test_there_is_no_import_cycle() -> None:
    """No module imports itself through others, not even inside a function or for type checking only."""
    graph = {
        name: {entry.target for entry in source_tree.list_imports(module, MODULES)} & MODULES.keys() - {name}
        for name, module in MODULES.items()
    }
    assert source_tree.find_cycles(graph) == []


def is_bare_participle(name: str) -> bool:
    """Tell whether a name is one past participle: `settled`, `_told`; `read_line` and `is_open` are not,
    nor is a name that Python gives: `__reversed__`."""
    word = name.strip("_")
    if "_" in word or word in NOT_PARTICIPLES or name == f"__{word}__":
        return False
    return word in IRREGULAR_PARTICIPLES or (len(word) > 3 and word.endswith("ed"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("told", True),
        ("_settled", True),
        ("opened", True),
        ("__reversed__", False),
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
