"""Imports what a spec names as `module:function`: from the environment, else from beside the spec."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from traceback import extract_tb
from typing import Any

from toolchart.states.descriptors import load_reference
from toolchart.states.errors import suggest_name
from toolchart.workers.error_text import describe_error


def load_own_reference(reference: str, folder: Path | None) -> Any:
    """The object behind `package.module:name`, imported now.

    A module that stands beside the spec is found wherever the program was started: its folder is added to the
    import path, behind everything else. A process has one module of a name. Where that is another file than
    the one beside the spec, it is refused: functions of the other file would run unseen.

    Args:
        folder: the folder of the spec; None where it has none.

    Raises:
        OtherModule: the process has another module of that name.
        ImportError, AttributeError: there is no such module or name.
        Exception: whatever the module raises.
    """
    module = reference.partition(":")[0]
    top = module.partition(".")[0]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        _require_own_module(top, folder)
        if error.name != top or folder is None or not _has_module(folder, top):
            raise
        sys.path.append(str(folder.resolve()))
        importlib.import_module(module)
    _require_own_module(module, folder)
    return load_reference(reference)


class OtherModule(ImportError):
    """The process has a module of the name that stands beside a spec, and it is another file."""


def _require_own_module(name: str, folder: Path | None) -> None:
    """Check that a module which stands beside the spec is the one that was imported, or reads as it does.

    A program may be installed, and its sources stand beside the spec as well: the same text is the same.

    Raises:
        OtherModule: it is another one.
    """
    loaded_file = getattr(sys.modules.get(name), "__file__", None)
    if folder is None or loaded_file is None:
        return
    base = folder.joinpath(*name.split("."))
    own_file = next(
        (file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None
    )
    if own_file is None or not Path(loaded_file).is_file():
        return
    if not own_file.samefile(loaded_file) and own_file.read_bytes() != Path(loaded_file).read_bytes():
        raise OtherModule(
            f"the module {name!r} of this process is {loaded_file}, and another one is {own_file.resolve()}, "
            "beside the spec"
        )


def explain_own_fault(error: Exception, reference: str, folder: Path | None) -> tuple[str, str | None]:
    """Why `load_own_reference` failed, in words for whoever wrote the module; and what to do, if it is known.

    A fault inside of the module is told with its file and line.
    """
    module, _, name = reference.partition(":")
    if isinstance(error, OtherModule):
        return str(error), "give one of the two files another name: a process has one module of a name"
    if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
        modules = sorted(file.stem for file in folder.glob("*.py")) if folder is not None else []
        hint = suggest_name(module, modules) if modules else "put its file beside the spec, or install it"
        return f"there is no module {module!r}, neither installed nor beside the spec", hint
    if isinstance(error, AttributeError) and module in sys.modules and not hasattr(sys.modules[module], name):
        names = [key for key in vars(sys.modules[module]) if not key.startswith("_")]
        return f"the module {module!r} has no {name!r}", suggest_name(name, names)
    text = describe_error(error)
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}", None
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {text}" if frames else text, None


def _has_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()
