"""docs/extending.md is correct: its package is installed, and each of its commands runs through the CLI.

The code on the page is that of `tests/plugin_package`. After a change there,
`python tests/packaging/test_extending.py` copies it to the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "extending.md"
PACKAGE = ROOT / "tests" / "plugin_package"

FILE_BLOCK = re.compile(r"(?<=\n)`([\w./]+)`:\n\n```(\w+)\n(.*?)```\n", re.DOTALL)


def copy_code_to_page() -> str:
    """Return the page with the code of the package in its blocks."""

    def fill_block(match: re.Match[str]) -> str:
        """The block with the text of its file, if it is a file of the package."""
        path = PACKAGE / match[1]
        text = path.read_text("utf-8") if path.is_file() else match[3]
        return f"`{match[1]}`:\n\n```{match[2]}\n{text}```\n"

    return FILE_BLOCK.sub(fill_block, DOC.read_text("utf-8"))


if __name__ == "__main__":
    DOC.write_text(copy_code_to_page(), "utf-8")
    sys.exit()

import json  # noqa: E402
import os  # noqa: E402
import shlex  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402
from command_line import SETUP  # noqa: E402
from plugin_installation import install_package, run_with_packages  # noqa: E402
from web import WebAnswer, serve_web  # noqa: E402

from toolchart.states.descriptors import REGISTRIES  # noqa: E402

PAGE = DOC.read_text("utf-8")
FILES = {name: text for name, _, text in FILE_BLOCK.findall(PAGE)}
BLOCKS = re.findall(r"```(\w+)\n.*?```", PAGE, re.DOTALL)


def list_commands() -> Iterator[tuple[str, str]]:
    """Yield every command line of the page, with the output that the page shows for it, if any."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for command in block.removeprefix("$ ").split("\n$ "):
            line, _, output = command.partition("\n")
            yield line, output.strip()


def test_the_page_and_the_package_are_the_same() -> None:
    """Each file of the package stands on the page, letter by letter, and nothing else is installed."""
    names = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml")
    }
    assert names <= set(FILES)
    for name in names:
        assert FILES[name] == (PACKAGE / name).read_text("utf-8"), name


def test_every_block_is_a_file_or_a_command() -> None:
    """The page has no block that this module does not run."""
    assert len(BLOCKS) == len(FILES) + BLOCKS.count("console")


def test_the_table_has_every_group() -> None:
    """The page names each entry point group, and the class of its rows."""
    table = dict(re.findall(r"^\| [^|]+ \| `([\w.]+)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE))
    assert set(table) == set(REGISTRIES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the files of the page, and the package installed in `packages`."""
    folder = tmp_path_factory.mktemp("extending")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    install_package(folder, folder / "packages")
    return folder


def test_every_command_of_the_page_works(folder: Path) -> None:
    """The commands of the page run in order, and print what the page shows."""
    for line, output in list_commands():
        words = shlex.split(line)[1:]
        result = run_with_packages(*words, packages=folder / "packages", cwd=folder)
        is_refused = output.startswith("toolchart: ")
        assert result.returncode == (2 if is_refused else 0), (line, result.stderr)
        if is_refused:
            assert result.stderr.strip() == output
        elif output:
            assert result.stdout.strip() == output
        else:
            assert result.stdout, line


def test_the_store_of_the_page_passes_the_suite(folder: Path) -> None:
    """The store that is written from the page alone passes the conformance suite, as the page runs it."""
    shutil.copy(ROOT / "tests" / "support" / "store_conformance.py", folder)
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "test_store.py"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "packages")}
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
    assert " passed" in result.stdout


def test_a_host_with_a_network_is_called_as_its_row_says(folder: Path) -> None:
    """The host of the page gets the request at its own address, with its own key in its own header."""
    reply = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    models = {"data": [{"id": "rocket"}]}

    def make_answer(request: dict[str, Any]) -> WebAnswer:
        """The models for GET, else the reply."""
        body = models if request["method"] == "GET" else reply
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    agent = "llms: {m: {provider: acme, model: rocket}}\nresponses: [{llm: m}]\n"
    (folder / "acme.yaml").write_text(agent, "utf-8")
    packages = folder / "packages"
    with serve_web(make_answer) as server:
        settings = {"ACME_BASE_URL": f"{server.url}/v1", "ACME_API_KEY": "sesame"}
        results = [
            run_with_packages(*words, packages=packages, cwd=folder, **settings)
            for words in (("run", "acme.yaml", "hi"), ("models", "list", "acme.yaml"))
        ]
    assert [result.returncode for result in results] == [0, 0], results
    assert results[0].stdout.strip() == "hello"
    assert "rocket" in results[1].stdout
    assert [request["path"] for request in server.requests] == ["/v1/chat/completions", "/v1/models"]
    for request in server.requests:
        headers = {name.lower(): value for name, value in request["headers"].items()}
        assert headers["authorization"] == "Bearer sesame"


def test_the_rows_are_listed(folder: Path) -> None:
    """Help texts name the store and its package."""
    packages = folder / "packages"
    front_page = run_with_packages("--help", packages=packages, cwd=folder).stdout
    assert "jsonfile://... (from the package toolchart-shop)" in " ".join(front_page.split())


def ask_about_tea(folder: Path) -> None:
    """Have the agent of the page answer, in the conversation `shop` of `shop.db`."""
    words = ("run", "shop.yaml", "How much is tea?", "--conversation", "shop", "--log", "shop.db")
    ran = run_with_packages(*words, packages=folder / "packages", cwd=folder)
    assert ran.returncode == 0, ran.stderr


READ_LOG = """
from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code
for words in {words!r}:
    assert run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False)) == 0, words
    assert "toolchart_shop" not in sys.modules, words
"""


def test_reading_a_log_loads_no_code(folder: Path) -> None:
    """A log whose agent names rows of the package is listed, shown, verified and exported without it."""
    ask_about_tea(folder)
    lines = [["runs"], ["stats"], ["verify", "shop"]]
    lines += [["show", "shop", *more] for more in ([], ["--json"], ["-n", "1"])]
    lines += [["export", "shop", "--format", form] for form in ("openai", "jsonl")]
    words = [[*line, "--log", "shop.db"] for line in lines]
    code = f"{SETUP}\n{READ_LOG.format(words=words)}"
    environment = {**os.environ, "PYTHONPATH": str(folder / "packages")}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert "How much is tea?" in result.stdout


def test_a_package_says_what_its_rows_start(folder: Path) -> None:
    """The list of `--trust-log` has the package, and what each of its rows says: the file."""
    packages = folder / "packages"
    ask_about_tea(folder)
    words = ("resume", "shop", "--trust-log", "--log", "shop.db")
    lines = run_with_packages(*words, packages=packages, cwd=folder).stderr
    assert "plugin: toolchart-shop: toolchart_shop.host:HOST  (is loaded for the provider clerk" in lines
    assert "plugin: toolchart-shop: toolchart_shop.tool_source:DESCRIPTOR" in lines
    assert "file: prices.csv  (is read by price; tools.registry[0])" in lines
    assert "this is no terminal" in lines


NOTES = '''
from toolchart import Tool, ToolDefinition
from toolchart.tools.sources.table import ToolSourceDescriptor

ROW = ToolSourceDescriptor(
    name="notes", summary="fixed notes", load="notes:load", place="section", checks_settings=True,
    list_starts="toolchart.states.starts:list_no_starts",
)

def load(section, context):
    """One tool for each note."""
    return [make_tool(name, text) for name, text in section.items()], ["one note is missing"]

def make_tool(name, text):
    """A tool that returns the note."""
    definition = ToolDefinition(name=name, description=text, parameters={"type": "object"})
    return Tool(definition=definition, run=lambda arguments: text, kind="notes", action={})
'''


def test_a_source_may_own_a_section(tmp_path: Path) -> None:
    """A row with `place="section"` makes the tools of its key of `tools`; it is no word of `type`."""
    points = '[project.entry-points."toolchart.tool_sources"]\nnotes = "notes:ROW"\n'
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "__init__.py").write_text(NOTES, "utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT.format(name="notes") + points, "utf-8")
    install_package(tmp_path, tmp_path / "packages")
    agent = AGENT.format(type="mock").replace("{registry", "{notes: {hint: look up}, registry")
    (tmp_path / "good.yaml").write_text(agent, "utf-8")
    (tmp_path / "bad.yaml").write_text(AGENT.format(type="notes"), "utf-8")
    good, bad = (
        run_with_packages("tools", "list", spec, packages=tmp_path / "packages", cwd=tmp_path)
        for spec in ("good.yaml", "bad.yaml")
    )
    assert good.returncode == 0, good.stderr
    assert good.stdout.split() == ["one", "mock", "one", "(mock)", "hint", "notes", "look", "up"]
    assert "one note is missing" in good.stderr
    assert bad.returncode == 2
    assert "bad.yaml:2: tools.registry[0].implementation.type: 'notes' is a section" in bad.stderr


BROKEN_ROWS = {
    "toolchart.hosts": ("provider", "`adapter` is missing", "run host.yaml hello"),
    "toolchart.stores": ("store", "`open` is missing", "runs --log broken://x"),
    "toolchart.tool_sources": ("tool source", "`load` is missing", "run source.yaml hello"),
}
"""By group: the kind, a gap of a row with nothing but a name, and a command that uses the row."""

PROJECT = """\
[project]
name = "{name}"
version = "1"
[tool.setuptools]
packages = ["{name}"]
"""

AGENT = """\
llms: {{m: {{provider: scripted, model: m, replies: [x]}}}}
tools: {{registry: [{{name: one, implementation: {{type: {type}}}}}]}}
responses: [{{llm: m, tools: {{}}}}]
"""


@pytest.fixture(scope="module")
def broken_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with an installed package whose rows have nothing but a name."""
    folder = tmp_path_factory.mktemp("broken")
    table = dict(re.findall(r"`(toolchart\.\w+)` \| `([\w.]+)` \|", PAGE))
    code, points = [], []
    for number, (group, row_type) in enumerate(table.items()):
        module, _, name = row_type.rpartition(".")
        code.append(f"from {module} import {name}\nROW{number} = {name}(name='broken')\n")
        points.append(f'[project.entry-points."{group}"]\nbroken = "broken:ROW{number}"\n')
    project = PROJECT.format(name="broken")
    (folder / "broken").mkdir()
    (folder / "broken" / "__init__.py").write_text("".join(code), "utf-8")
    (folder / "pyproject.toml").write_text(project + "".join(points), "utf-8")
    install_package(folder, folder / "packages")
    host_agent = AGENT.format(type="mock").replace("scripted", "broken")
    (folder / "host.yaml").write_text(host_agent, "utf-8")
    (folder / "source.yaml").write_text(AGENT.format(type="broken"), "utf-8")
    run_with_packages(
        *("run", "quickstart", "2+3", "--conversation", "one"), packages=folder / "packages", cwd=folder
    )
    return folder


@pytest.mark.parametrize("group", REGISTRIES)
def test_an_incomplete_row_is_refused(group: str, broken_folder: Path) -> None:
    """A command that uses an incomplete row fails with 2, and says which row of which package lacks what."""
    kind, gap, line = BROKEN_ROWS[group]
    packages = broken_folder / "packages"
    result = run_with_packages(*line.split(), packages=packages, cwd=broken_folder)
    assert result.returncode == 2
    assert f"{kind} 'broken' (entry point 'broken' of broken) is incomplete: " in result.stderr
    assert gap in result.stderr
    assert "Traceback" not in result.stderr


def test_an_incomplete_row_hides_no_other(broken_folder: Path) -> None:
    """`toolchart --help` lists the other stores and names this one; only its use reports what it lacks."""
    result = run_with_packages("--help", packages=broken_folder / "packages", cwd=broken_folder)
    assert result.returncode == 0
    assert "a SQLite file" in result.stdout
    assert "broken://... (from the package broken)" in " ".join(result.stdout.split())
    assert result.stderr == ""
