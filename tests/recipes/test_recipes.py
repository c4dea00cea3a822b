"""docs/recipes is correct: each program prints what its page says, and the index has a row for each.

The pages are generated from the programs: `python tests/recipes/test_recipes.py` writes them.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "recipes"

INTRODUCTION = """\
# Recipes

Here you find a whole program to begin with. Each one runs as it stands, without a key and without a
network, because a scripted model answers: save it as a file, and start it in an empty folder. A comment
`# yours:` marks what you change for a model of your own. Lines such as `conversation ada: ...` are
warnings, which `logging` writes to standard error.

The pages are generated: `python tests/recipes/test_recipes.py` writes them, and the same file runs the
programs.
"""


@dataclass(frozen=True)
class Recipe:
    """What a page has beside its program."""

    title: str
    links: dict[str, str]
    """The pages that say more: what they are about, by the address from the folder of the recipes."""


RECIPES = {
    "approval_in_a_web_chat": Recipe(
        "An approval in a web chat",
        {"../web-application.md": "A web application", "../howto/approvals.md": "Approvals"},
    ),
    "structured_answer_with_repair": Recipe(
        "A structured answer with repair", {"../agents.md#an-answer-with-a-type": "An answer with a type"}
    ),
    "nightly_batch": Recipe(
        "A nightly batch",
        {"../batch.md": "A nightly batch, by command", "../pipelines.md": "Inside other people's pipelines"},
    ),
    "two_models_with_fallback": Recipe(
        "Two models with a fallback",
        {
            "../flows.md#fallback": "The flow fallback",
            "../writing-charts/agents.md#fallback": "How its chart is written",
        },
    ),
    "long_conversation": Recipe(
        "A long conversation",
        {"../context.md": "Long conversations", "../flows.md#long-conversation": "The flow with a summary"},
    ),
    "answers_from_documents": Recipe(
        "Answers from documents",
        {"../tools.md#documents": "Documents", "../check.md#data-flow": "What words of strangers can reach"},
    ),
    "mcp_tools": Recipe("Tools of an MCP server", {"../tools.md": "Tools", "../tools.md#pins": "Pins"}),
    "test_with_a_scripted_model": Recipe(
        "A test with a scripted model",
        {"../agents.md#tests": "Tests of agents", "../scripts.md": "Scripts and prices"},
    ),
    "agent_as_a_tool": Recipe(
        "An agent as a tool",
        {"../agents.md#several-agents": "Several agents", "../tools.md#agents": "Agents as tools"},
    ),
    "budget": Recipe(
        "A budget",
        {"../limits.md": "Limits and policies", "../scripts.md#compute-costs": "How costs are computed"},
    ),
    "rerun_under_a_new_model": Recipe(
        "A rerun under a new model", {"../howto/regression.md": "Regression in CI"}
    ),
    "flow_with_a_critic": Recipe(
        "A flow with a critic",
        {"../flows.md#reflection": "The flow reflection", "../writing-charts/index.md": "Writing charts"},
    ),
}
"""The recipes in the order of the index."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_its_page_says(name: str, tmp_path: Path) -> None:
    """A program that runs in an empty folder, without a key, ends well and prints the lines of its page."""
    assert print_output(run_recipe(name, tmp_path)) == split_page(name)[1], WRITE


@pytest.mark.parametrize("name", RECIPES)
def test_a_page_is_up_to_date(name: str) -> None:
    """A page has the text and the program of its file as they are; only running says what it prints."""
    text, output = split_page(name)
    assert text + output == print_page(name, output), WRITE


def test_the_index_is_up_to_date() -> None:
    """The index has one row for each recipe, with what its reader can do."""
    assert (FOLDER / "index.md").read_text("utf-8") == print_index(), WRITE


def test_every_file_of_the_folder_belongs_to_a_recipe() -> None:
    """A program without a row, and a page without a program, is noticed."""
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    pages = {name: find_page(name).name for name in RECIPES}
    assert files == {"index.md", *pages.values(), *(f"{name}.py" for name in RECIPES)}


# -- the pages -----------------------------------------------------------------------------------------

WRITE = "run: python tests/recipes/test_recipes.py"
OUTPUT = "It prints:\n\n"


def find_page(name: str) -> Path:
    """The page of a recipe."""
    return FOLDER / f"{name.replace('_', '-')}.md"


def run_recipe(name: str, folder: Path) -> str:
    """What a recipe prints in a process of its own, standard error included.

    Raises:
        AssertionError: it fails.
    """
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ},
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / ".typing"),
        "PYTHONUNBUFFERED": "1",  # so that both streams keep their order
        "PYTHONDONTWRITEBYTECODE": "1",  # pytest would leave a folder beside the recipes
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "80",
    }
    process = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=100,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


def print_output(output: str) -> str:
    """The block of a page that has what the program prints."""
    return f"{OUTPUT}```text\n{output}```\n"


def split_page(name: str) -> tuple[str, str]:
    """A page as it is: what stands before the output, and the block of the output. The links are left out."""
    page = find_page(name).read_text("utf-8")
    assert page.endswith(print_links(name)), WRITE
    before, heading, output = page.removesuffix(print_links(name)).partition(OUTPUT)
    return before, heading + output


def print_page(name: str, output: str) -> str:
    """A page as it should be, without its links.

    Args:
        output: the block of the output.
    """
    lines = (FOLDER / f"{name}.py").read_text("utf-8").splitlines(keepends=True)
    docstring = ast.parse("".join(lines)).body[0]
    code = "".join(lines[docstring.end_lineno :]).strip("\n")
    return f"# {RECIPES[name].title}\n\n{read_docstring(name)}\n\n```python\n{code}\n```\n\n{output}"


def read_docstring(name: str) -> str:
    """The text of a recipe."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text("utf-8")))
    assert text is not None
    return text


def print_links(name: str) -> str:
    """The last line of a page."""
    links = [f"[{title}]({address})" for address, title in RECIPES[name].links.items()]
    return f"\nMore: {', '.join(links)}.\n"


def print_index() -> str:
    """The index as it should be."""
    rows = [
        f"| {read_docstring(name).splitlines()[0].rstrip('.')} | [{recipe.title}]({find_page(name).name}) |"
        for name, recipe in RECIPES.items()
    ]
    return "\n".join((INTRODUCTION, "| what you can do | recipe |", "|---|---|", *rows, ""))


if __name__ == "__main__":
    for recipe_name in sys.argv[1:] or RECIPES:
        with tempfile.TemporaryDirectory() as empty_folder:
            block = print_output(run_recipe(recipe_name, Path(empty_folder)))
        page_text = print_page(recipe_name, block) + print_links(recipe_name)
        find_page(recipe_name).write_text(page_text, "utf-8")
    (FOLDER / "index.md").write_text(print_index(), "utf-8")
