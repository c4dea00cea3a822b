"""docs/writing-charts is correct: every example is loaded, checked and run, every output compared.

An example is a block below a comment `<!-- example: NAME -->`; `refused: true` says that it does not load,
`finding: KIND` that `check` finds something, and `run` and `answer` lead a conversation through the engine.
A console block is a list of commands with their outputs. After a change,
`python tests/packaging/test_writing_charts_doc.py` writes the outputs and the tables of parameters to
the pages; read them before you commit them.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = [
    ROOT / "docs" / "writing-charts" / f"{name}.md"
    for name in ("index", "structure", "effects", "time-and-people", "agents", "testing")
]
"""The pages in the order in which they are read: the later ones use examples of the earlier ones."""
PARAMETERS = ROOT / "states" / "flows" / "parameters.py"

EXAMPLE = re.compile(r"<!-- (example: [^\n]*?) -->\n```yaml\n(.*?)```", re.DOTALL)
MODULE = re.compile(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"(?<!-->\n)```python\n(.*?)```", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
TABLES = re.compile(r"(?<=<!-- parameters -->\n).*?(?=<!-- end of parameters -->)", re.DOTALL)


# -- the tables of parameters ----------------------------------------------------------------------


def print_parameters() -> str:
    """A table for each kind of declared effect, from the structs and their docstrings."""
    module = ast.parse(PARAMETERS.read_text("utf-8"))
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return "\n" + "\n".join(print_kind(node) for node in classes if "`" in (ast.get_docstring(node) or ""))


def print_kind(node: ast.ClassDef) -> str:
    """The heading, the meaning and the parameters of a kind."""
    first_line, *rest = (ast.get_docstring(node) or "").splitlines()
    kind, _, meaning = first_line.partition(": ")
    text = "\n".join((meaning[:1].upper() + meaning[1:], *rest)).strip()
    rows = [f"| `{name}` | {meaning} |" for name, meaning in iterate_parameters(node)]
    return "\n".join((f"### {kind}", "", text, "", "| parameter | meaning |", "| --- | --- |", *rows, ""))


def iterate_parameters(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Each field with its docstring, under the name that YAML has for it."""
    for field, text in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name = "as" if field.target.id == "result" else field.target.id
        has_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        meaning = str(text.value.value) if has_text else "The name of the result."
        yield name, " ".join(meaning.split())
    last = node.body[-1]
    if isinstance(last, ast.AnnAssign) and isinstance(last.target, ast.Name):
        yield last.target.id, "The name of the result."


# -- the examples ----------------------------------------------------------------------------------


def list_examples(page: str) -> dict[str, tuple[dict[str, Any], str]]:
    """By name: what the comment says about an example, and its text."""
    import yaml

    rows = ((yaml.safe_load("{" + comment + "}"), text) for comment, text in EXAMPLE.findall(page))
    return {row["example"]: (row, text) for row, text in rows}


def write_examples(page: str, folder: Path) -> None:
    """Write each example and each module under its name."""
    for name, (_, text) in list_examples(page).items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    for name, text in MODULE.findall(page):
        (folder / name).write_text(text, "utf-8")


def iterate_commands(page: str) -> Iterator[tuple[str, str]]:
    """Every command line of the page, and the output that the page shows for it."""
    for block in CONSOLE.findall(page):
        for command in block.removeprefix("$ ").split("\n$ "):
            line, _, output = command.partition("\n")
            yield line, output.strip()


def run_command(line: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a command of the page, run in the folder with the examples."""
    from standard_input import empty_stdin

    from toolchart.app.cli import cli
    from toolchart.app.cli.exit_codes import run_to_exit_code

    words, output = shlex.split(line)[1:], io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with chdir(folder), empty_stdin(), redirect_stdout(output), redirect_stderr(output):
        code = run_to_exit_code(lambda: cli.main(words, standalone_mode=False, prog_name="toolchart"))
        output.seek(0)
        return code, output.read().strip()


def read_pages() -> str:
    """The text of all pages, in order."""
    return "\n".join(page.read_text("utf-8") for page in DOCS)


def write_pages() -> None:
    """Write the outputs of the commands and the tables of parameters to the pages."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:
        write_examples(read_pages(), Path(name))
        sys.path.insert(0, name)

        def fill_block(match: re.Match[str]) -> str:
            outputs = (
                f"$ {line}\n{run_command(line, Path(name))[1]}\n" for line, _ in iterate_commands(match[0])
            )
            return f"```console\n{''.join(outputs)}```"

        for doc in DOCS:
            page = TABLES.sub(lambda _: print_parameters() + "\n", doc.read_text("utf-8"))
            doc.write_text(CONSOLE.sub(fill_block, page), "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    write_pages()
    sys.exit()

import pytest  # noqa: E402

from toolchart.engine import Engine  # noqa: E402
from toolchart.engine.log.replay import replay_conversation  # noqa: E402
from toolchart.specs.charts import load_chart  # noqa: E402
from toolchart.specs.loader import load_spec  # noqa: E402
from toolchart.specs.unread_limits import load_agent_chart  # noqa: E402
from toolchart.states.chart.document import Chart  # noqa: E402
from toolchart.states.errors import SpecError  # noqa: E402
from toolchart.states.proofs.check import check  # noqa: E402

PAGE = read_pages()
EXAMPLES = list_examples(PAGE)
COMMANDS = list(iterate_commands(PAGE))
CONVERSATIONS = [name for name, (row, _) in EXAMPLES.items() if "run" in row]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, in which commands and Python blocks run."""
    write_examples(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def load_example(name: str) -> Chart:
    """The chart of an example: a chart file, or the chart of an agent."""
    is_agent = "\nllms:" in EXAMPLES[name][1]
    path = f"{name}.yaml"
    return load_agent_chart(load_spec(path)) if is_agent else load_chart(path, base_folder=Path())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_checked(name: str, folder: Path) -> None:
    """An example is clean, or refused, or has the one finding that its comment names."""
    row: Mapping[str, Any] = EXAMPLES[name][0]
    if row.get("refused"):
        with pytest.raises(SpecError):
            load_example(name)
        return
    report = check(load_example(name))
    expected = [row["finding"]] if "finding" in row else []
    assert [finding.kind for finding in report.findings] == expected, report.findings
    assert expected or report.worst is not None


@pytest.mark.slow
def test_every_command_prints_what_the_page_shows(folder: Path) -> None:
    """The commands of the pages run in order; no output holds a traceback."""
    for line, output in COMMANDS:
        code, printed = run_command(line, folder)
        assert printed == output, line
        assert "Traceback" not in printed
        words = shlex.split(line)
        row = next((EXAMPLES[Path(word).stem][0] for word in words if Path(word).stem in EXAMPLES), {})
        expected = 2 if row.get("refused") else 1 if "finding" in row else 0
        assert code == expected, line


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_ends_with_the_answer(name: str, folder: Path) -> None:
    """The messages of the comment lead to its answer, which the page shows too; the log replays."""
    row, _ = EXAMPLES[name]
    with Engine(f"{name}.yaml", log="memory") as engine:
        results = [engine.run(message, conversation="c") for message in row["run"]]
        assert list(replay_conversation(engine.store, "c"))
    assert results[-1].content == row["answer"]
    assert row["answer"] in "".join(output for _, output in COMMANDS)


@pytest.mark.parametrize("code", PYTHON.findall(PAGE))
def test_a_python_block_runs(code: str, folder: Path) -> None:
    """Each block runs by itself in the folder of the examples, and its assertions hold."""
    exec(compile(code, "writing-charts", "exec"), {"__name__": "example"})  # noqa: S102  our own text


def test_every_block_is_run() -> None:
    """The pages have no block that this module does not run, and no example without a use."""
    blocks = re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)
    counts = {kind: blocks.count(kind) for kind in set(blocks)}
    assert counts == {
        "yaml": len(EXAMPLES),
        "python": len(PYTHON.findall(PAGE)) + len(MODULE.findall(PAGE)),
        "console": len(CONSOLE.findall(PAGE)),
    }
    for name, (_, text) in EXAMPLES.items():
        assert text.startswith(f"# {name}.yaml\n"), "the first line names the file"
        assert PAGE.count(f"{name}.yaml") > 1, "the page uses the example"


def test_the_tables_are_the_parameters() -> None:
    """The tables of parameters are those of the code."""
    (tables,) = TABLES.findall(PAGE)
    assert tables.strip() == print_parameters().strip()
