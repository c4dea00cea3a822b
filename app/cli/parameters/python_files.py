"""The agents that stand in Python files, for `FILE.py:NAME` on a command line.

`FILE.py:NAME` is the typed `Agent` of that name in a Python file, and `FILE.py` the only one there. The file
is imported, so whoever names it runs it: such a name is taken from the command line alone, never from a spec,
a log or a request.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from toolchart.states.errors import SpecError, ToolchartError, suggest_name
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    from toolchart.engine.agents import Agent


def load_python_agent(file: str, name: str | None) -> Agent[Any, Any]:
    """The agent of a name in a Python file; None is the only one there.

    Raises:
        SpecError: there is no such file, it cannot be imported, or it has no such agent.
    """
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
