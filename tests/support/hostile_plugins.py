"""Packages that add a row of every kind to Toolchart, and are broken in every way that a package can be.

Each fault is a package of its own, with one row for each entry point group, all of the same short name.
"""

from __future__ import annotations

import os
from pathlib import Path

from toolchart.states.descriptors import REGISTRIES

ESCAPES = "\x1b[2J\u202egnp"
"""What their errors and outputs hold: a sequence that clears a terminal, and a text shown backwards."""

_ROW_TYPES = {
    "toolchart.hosts": "toolchart.providers.descriptor:HostDescriptor",
    "toolchart.stores": "toolchart.engine.log.stores:StoreDescriptor",
    "toolchart.tool_sources": "toolchart.tools.sources.table:ToolSourceDescriptor",
}
assert _ROW_TYPES.keys() == REGISTRIES.keys()


def _write_rows(name: str, options: str) -> str:
    """Code that makes a row of each group, in a variable with the last word of the group."""
    lines = []
    for group, row_type in _ROW_TYPES.items():
        module, _, kind = row_type.partition(":")
        lines.append(f"from {module} import {kind}")
        lines.append(f"{group.partition('.')[2]} = {kind}(name={name!r}{options})")
    return "\n".join(lines) + "\n"


_CONSTANTS = "\n".join(f"{group.partition('.')[2]} = 5" for group in REGISTRIES)

FAULTS: dict[str, tuple[str, str]] = {
    "zzsyntax": ("def broken(:\n", "SyntaxError: "),
    "zztype": (_CONSTANTS, "not a int"),
    "zzgaps": (_write_rows("zzgaps", ""), "is incomplete: "),
    "zzgap2": (
        "class Row:\n    def __getattr__(self, name): raise SystemExit('touched')\n"
        + "\n".join(f"{group.partition('.')[2]} = Row()" for group in REGISTRIES),
        "not a Row",
    ),
    "zzerror": (f"raise ValueError({ESCAPES!r})\n", "ValueError: \\x1b[2J\\u202egnp"),
    "zzexit": (f"raise SystemExit({ESCAPES!r})\n", "SystemExit: \\x1b[2J\\u202egnp"),
    "zzctrlc": (f"raise KeyboardInterrupt({ESCAPES!r})\n", "KeyboardInterrupt: \\x1b[2J\\u202egnp"),
    "zzown": (
        f"class Stop(BaseException):\n    def __str__(self): raise SystemExit({ESCAPES!r})\nraise Stop()\n",
        "): Stop",
    ),
    "zzhang": ("import threading\nthreading.Event().wait()\n", "zzhang"),
    "zzprint": (
        f"import sys\nprint({ESCAPES!r})\nprint({ESCAPES!r}, file=sys.stderr)\n" + _write_rows("zzprint", ""),
        "is incomplete: ",
    ),
}
"""By the name of a package and its rows: its code, and what the error says that names a row of it."""


def install_hostile_plugins(folder: Path) -> None:
    """Write all of them into a folder, as if each had been installed there, and some broken metadata."""
    for name, (code, _) in FAULTS.items():
        (folder / f"{name}.py").write_text(code, "utf-8")
        sections = [f"[{group}]\n{name} = {name}:{group.partition('.')[2]}\n" for group in REGISTRIES]
        write_metadata(folder, name, "".join(sections))
    group = "[toolchart.stores]\n"
    write_metadata(folder, "zzours", f"{group}sqlite = zzerror:x\n[toolchart.hosts]\nopenai = zzerror:x\n")
    lines = f"no equals sign\n\x1b[2J = zzerror:x\n{'n' * 5000} = zzerror:x\n= y\nzzdup = zzerror:x\n"
    write_metadata(folder, "zzlines", f"{group}{lines}")
    write_metadata(folder, "zztwice", f"{group}zzdup = zzexit:x\nZZ = zzexit:stores\nzzval = \x1b[2J!!\n")
    nameless = folder / "zznameless-1.dist-info"
    nameless.mkdir()
    (nameless / "entry_points.txt").write_text(f"{group}zzanon = zzerror:x\n", "utf-8")
    binary = folder / "zzbinary-1.dist-info"
    binary.mkdir()
    (binary / "entry_points.txt").write_bytes(b"[toolchart.stores]\n\xff\xfe = zzerror:x\n")
    (folder / "zzfile-1.dist-info").write_text("a file where a folder should be", "utf-8")


def write_metadata(folder: Path, name: str, entry_points: str) -> None:
    """Write what `pip install` leaves of a package beside its code."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n", "utf-8")
    (info / "entry_points.txt").write_text(entry_points, "utf-8")


def add_to_path(packages: Path | None) -> str:
    """The PYTHONPATH of a process that sees the packages of a folder."""
    return os.pathsep.join(filter(None, [str(packages or ""), os.environ.get("PYTHONPATH")]))


SHAKY = """
import os
from toolchart.engine.log.stores import StoreDescriptor
from toolchart.providers.descriptor import HostDescriptor
from toolchart.tools.sources.table import ToolSourceDescriptor

class Stop(BaseException):
    pass

def fail(*arguments, **options):
    kinds = {"ValueError": ValueError, "SystemExit": SystemExit, "Stop": Stop}
    raise kinds[os.environ["ZZ_RAISE"]]("ESCAPES")

class Adapter:
    name = "zzshaky"
    @classmethod
    def from_config(cls, config, resolve):
        return cls()
    def build_body(self, request, *, stream):
        return {}
    async def complete(self, request):
        fail()
    async def aclose(self):
        pass

s = {"name": "zzshaky", "summary": "shaky"}
starts = "toolchart.states.starts:list_no_starts"
hosts = HostDescriptor(**s, adapter="zzshaky:Adapter", needs_network=False, list_starts=starts)
stores = StoreDescriptor(**s, address="zzshaky://x", open="zzshaky:fail", is_durable=True)
tool_sources = ToolSourceDescriptor(**s, load="zzshaky:fail", list_starts=starts)
"""
"""A package with whole rows whose code raises when it is used."""


def install_shaky_plugin(folder: Path) -> None:
    """Write it into a folder, as if it had been installed there."""
    (folder / "zzshaky.py").write_text(SHAKY.replace('"ESCAPES"', repr(ESCAPES)), "utf-8")
    sections = [f"[{group}]\nzzshaky = zzshaky:{group.partition('.')[2]}\n" for group in REGISTRIES]
    write_metadata(folder, "zzshaky", "".join(sections))


RUN_LINES = """
import io, json, os, threading
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as `main` does
from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import flush_output, run_to_exit_code
streams = sys.stdout, sys.stderr
lines, outcomes = json.loads(sys.stdin.buffer.read()), []
for words, text in lines:
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in streams)
    code = run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
    outcomes.append([code, *(s.buffer.getvalue().decode() for s in (sys.stdout, sys.stderr))])
sys.stdout, sys.stderr = streams
loaded = sorted(name for name in sys.modules if name.startswith("zz"))
threads = sorted(t.name for t in threading.enumerate() if t.name.startswith("loading "))
json.dump({"outcomes": outcomes, "loaded": loaded, "threads": threads}, sys.stdout)
sys.stdout.flush()
"""
"""Code that runs command lines one after the other in one process, and tells what they left in it."""

__all__ = ["ESCAPES", "FAULTS", "RUN_LINES", "add_to_path", "install_hostile_plugins", "write_metadata"]
