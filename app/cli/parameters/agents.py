"""The agent that a command line names: one that ships, a spec file, or one that is written in Python.

`FILE.py:NAME` is the typed `Agent` of that name in a Python file, and `FILE.py` the only one there. The file
is imported, so whoever names it runs it: such a name is taken from the command line alone, never from a spec,
a log or a request.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from toolchart.specs.models import AgentSpec
from toolchart.states.errors import SpecError, ToolchartError, suggest_name
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    from toolchart.engine.agents import Agent

_PYTHON_NAME = re.compile(r"(?P<file>.+\.py)(?::(?P<name>.*))?", re.DOTALL)


def find_python_agent(text: str) -> Agent[Any, Any] | None:
    """The agent in a Python file that a text names; None where the text names no Python file.

    Raises:
        SpecError: there is no such file, it cannot be imported, or it has no such agent.
    """
    match = _PYTHON_NAME.fullmatch(text)
    if match is None:
        return None
    file, name = match["file"], match["name"]
    if not Path(file).is_file():
        raise SpecError("there is no such file", file=file, hint="FILE.py:NAME is an agent in a Python file")
    agents = _list_agents(_import_file(Path(file).resolve(), file))
    if not agents:
        hint = 'make one there: support = Agent("openai:gpt-5-mini", prompt="...")'
        raise SpecError("the file has no `Agent`", file=file, hint=hint)
    if name is None:
        if len(agents) > 1:
            raise SpecError(
                f"the file has {len(agents)} agents", file=file, hint=f"name one: {file}:{next(iter(agents))}"
            )
        return next(iter(agents.values()))
    if name not in agents:
        raise SpecError(f"there is no `Agent` {name!r}", file=file, hint=suggest_name(name, agents))
    return agents[name]


def load_named_spec(text: str) -> AgentSpec:
    """The spec of the agent that a text names; none of its tools can be run by it.

    Raises:
        SpecError: there is none, or it cannot be used.
    """
    from toolchart.specs.loader import load_spec

    agent = find_python_agent(text)
    return load_spec(text) if agent is None else agent.spec()


def list_engine_options(agent: AgentSpec | dict[str, Any] | str) -> dict[str, Any]:
    """What `Engine` takes to run an agent: its spec, and what of it is Python.

    Args:
        agent: a text that names it, or a loaded spec.

    Raises:
        SpecError: there is none, it cannot be used, or its tools need objects that no command can give.
    """
    python_agent = find_python_agent(agent) if isinstance(agent, str) else None
    if python_agent is None:
        return {"spec": agent}
    python_agent.require_no_dependencies()
    return python_agent.list_engine_options()


def _list_agents(module: ModuleType) -> dict[str, Agent[Any, Any]]:
    """The agents of a module by their names in it, each once."""
    from toolchart.engine.agents import Agent

    agents: dict[str, Agent[Any, Any]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Agent) and not name.startswith("_"):
            agents[name] = value
    return agents


@cache
def _import_file(path: Path, file: str) -> ModuleType:
    """The module of a Python file; what stands beside it can be imported by it.

    Raises:
        SpecError: it cannot be imported.
    """
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_command_line"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends with .py"
    assert spec.loader is not None, "it is a file"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ToolchartError as error:
        raise _build_import_error(path, file, error, str(error)) from None
    except (Exception, SystemExit) as error:  # whatever the code of the file does
        raise _build_import_error(path, file, error, describe_error(error)) from None
    return module


def _build_import_error(path: Path, file: str, error: BaseException, text: str) -> SpecError:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    return SpecError(f"the file cannot be imported: {text}", file=file, line=line)
