"""Code of other packages: finding what they add, loading it when it is named, and naming it when it fails.

A package that is broken must cost nobody anything who does not use it. Three rules hold:

- **Names are read, code is not.** The text of `entry_points.txt` says what is installed. Each package is read
  on its own: metadata that cannot be parsed hides that package and no other.
- **Code is imported when somebody names it**, in a thread of its own, within the seconds of
  `TIMEOUT_VARIABLE`. Whatever it raises becomes one `PluginUnusable`. The outcome is remembered.
- **What it raises later names it**: `guard_use` around a call, `find_culprit` for what got through.

Why a thread: an import that never returns cannot be ended, only left. The thread is a daemon, so the process
ends without it. It keeps the import locks of its own modules for ever, and no others (there is one lock per
module): others import on, and only who imports the same modules would wait for ever. So while a package
hangs, nothing of it is tried again. The Ctrl-C of a person is raised in the main thread alone, which waits
here; so a `KeyboardInterrupt` in this thread is the module's own, and an error like any other. A module that
must be imported in the main thread (it sets a signal handler, say) cannot hold a row; it may do that later.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from toolchart.states.errors import PluginFailure, PluginUnusable, ToolchartError
from toolchart.states.visible_text import make_visible, make_visible_line
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    from importlib.metadata import Distribution

log = logging.getLogger("toolchart")

Value = TypeVar("Value")

Row = TypeVar("Row", bound=msgspec.Struct)

TIMEOUT_VARIABLE = "TOOLCHART_PLUGIN_TIMEOUT"
"""The variable with the seconds that loading one thing of another package may take."""

_DEFAULT_TIMEOUT_S = 30.0
"""Generous: a package may import a whole SDK from a cold disk."""

_MAX_TEXT = 300
"""Characters of a foreign text that an error repeats."""

_MAX_OUTPUT = 2000
"""Characters that a module may print while it is imported."""

_NAME = re.compile(r"\w[\w.+-]{0,99}")
"""What a row may be called: a word of specs and command lines, without spaces, quotes and invisible signs."""

_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\s*:\s*[^\W\d]\w*(\.[^\W\d]\w*)*")


def shorten_foreign(text: object) -> str:
    """A text of another package on one line: control characters visible, and not longer than an error is."""
    try:
        line = make_visible_line(" ".join(str(text).split()))
    except BaseException:  # `__str__` of somebody else
        return f"({make_visible_line(type(text).__name__)})"
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"


def describe_foreign_error(error: BaseException) -> str:
    """Class and text of an error of another package; of a mistake in its source, file and line too."""
    kind = shorten_foreign(type(error).__name__)
    if isinstance(error, SyntaxError):
        return f"{kind}: {shorten_foreign(f'{error.msg} ({error.filename}, line {error.lineno})')}"
    return shorten_foreign(describe_error(error))


# -- what is installed -----------------------------------------------------------------------------------


class PluginPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of another package, as its metadata has it; nothing of the package is imported."""

    kind: str
    """What the row is, for messages: `store`."""
    name: str
    """The name of the row."""
    reference: str
    """Where the row is: `package.module:name`."""
    package: str
    """The distribution, for people."""

    @property
    def origin(self) -> str:
        """Where the row comes from, for messages."""
        return f"entry point {self.name!r} of {self.package}"

    @property
    def title(self) -> str:
        """The row, for messages."""
        return f"{self.kind} {self.name!r}"


_unreadable: set[str] = set()
"""Packages whose metadata cannot be read, and that a warning has named."""


def read_points(group: str, kind: str) -> list[PluginPoint]:
    """The entry points of a group, in the order of the import path; one that cannot be used is left out.

    A warning says which, and why.

    Args:
        kind: what their rows are, for messages.
    """
    from importlib.metadata import distributions  # slow to import, and rarely needed

    points: list[PluginPoint] = []
    packages: set[str] = set()
    for distribution in _iterate_safely(distributions):
        try:
            text = distribution.read_text("entry_points.txt")
            if not text or group not in text:
                continue
            package = _name_distribution(distribution)
            # As `entry_points` of the standard library: the first of a name on the path hides the others.
            key = re.sub(r"[-_.]+", "-", package).lower()
            if key not in packages:
                points += _parse_points(text, group, kind, package)
            packages.add(key)
        except Exception as error:  # bytes that are no UTF-8, a folder that cannot be read
            folder = shorten_foreign(getattr(distribution, "_path", "a package"))
            if folder not in _unreadable:  # once, and not for each group
                log.warning("%s is ignored: %s", folder, describe_foreign_error(error))
            _unreadable.add(folder)
    return points


def _iterate_safely(list_distributions: Callable[[], Iterable[Distribution]]) -> Iterator[Distribution]:
    try:
        yield from list_distributions()
    except Exception as error:  # a finder of another package
        log.warning("installed packages cannot be listed: %s", describe_foreign_error(error))


def _name_distribution(distribution: Distribution) -> str:
    """The name for people: that of the metadata; without one, that of its folder."""
    name: Any = None
    try:
        name = distribution.metadata["Name"]
    except Exception:
        log.debug("a package has no name", exc_info=True)
    folder = getattr(distribution, "_path", None)
    return shorten_foreign(name or getattr(folder, "stem", "") or "an unknown package")


def _parse_points(text: str, group: str, kind: str, package: str) -> Iterator[PluginPoint]:
    """The entry points of one group in a text of the form of INI files; a wrong line hides only itself."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == group and line and not line.startswith(("#", ";")):
            name, separator, reference = (part.strip() for part in line.partition("="))
            if separator and _NAME.fullmatch(name):
                yield PluginPoint(kind=kind, name=name, reference=reference, package=package)
            else:
                problem = "is no line NAME = MODULE:OBJECT" if not separator else "has no usable name"
                log.warning("an entry point of %s is ignored: %r %s", package, shorten_foreign(line), problem)


# -- loading ---------------------------------------------------------------------------------------------


class _Loading(Generic[Value]):
    """One run of foreign code in a thread of its own, and its outcome."""

    def __init__(self, top: str, load: Callable[[], Value]) -> None:
        self.top = top
        self.value: Value | None = None
        self.error: BaseException | None = None
        self.problem = ""
        """What the error says: read in the thread, since its text is made by foreign code too."""
        self.is_over = threading.Event()
        self._load = load
        self.thread = threading.Thread(target=self.run, name=f"loading {top}", daemon=True)

    def run(self) -> None:
        """Run the code, and keep what it returns or raises."""
        try:
            self.value = self._load()
        except BaseException as error:  # SystemExit, a KeyboardInterrupt of the module, a class of its own
            self.error, self.problem = error, describe_foreign_error(error)
        self.is_over.set()


_hanging: dict[str, _Loading[Any]] = {}
"""By top-level package: an import that was left, because it did not return in time."""

_packages: dict[str, str] = {}
"""By top-level package that was loaded here: the distribution that it belongs to, for messages."""


def load_foreign(point: PluginPoint, reference: str, make: Callable[[Any], Value]) -> Value:
    """The object behind a reference into another package, made into a value.

    Args:
        point: what names it.
        reference: `package.module:name`.
        make: checks the object, and returns the value. It runs in the same thread, since an object of
            somebody else may raise or hang wherever it is touched.

    Raises:
        PluginUnusable: the module cannot be imported in time, has no such name, or `make` refuses the object.
            An error of this class that `make` raises comes as it is.
    """
    what = f"{point.title} cannot be loaded from {shorten_foreign(reference)} ({point.origin})"
    if not _REFERENCE.fullmatch(reference):
        raise PluginUnusable(f"{what}: that is no reference `module:name`")
    module, _, path = (part.strip() for part in reference.partition(":"))
    top = module.partition(".")[0]
    _packages.setdefault(top, point.package)

    def load() -> Value:
        return make(reduce(getattr, path.split("."), importlib.import_module(module)))

    loading = _Loading(top, load)
    if _is_importing(top):
        # A module of the package runs an agent that names a row of the package, while it is imported itself.
        # Its import lock belongs to this thread, which would wait for the other one, which would wait for it.
        loading.run()
    else:
        _wait_for(loading, what, point)
    if loading.error is None:
        return loading.value  # type: ignore[return-value]  # without an error, `load` has returned it
    if isinstance(loading.error, PluginUnusable):
        raise loading.error
    raise PluginUnusable(f"{what}: {loading.problem}") from loading.error


def _is_importing(top: str) -> bool:
    """Whether this thread is in the middle of importing a module of a top-level package."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and name.partition(".")[0] == top:
            return True
        frame = frame.f_back
    return False


def _wait_for(loading: _Loading[Any], what: str, point: PluginPoint) -> None:
    """Run a loading, and return when it is over.

    Raises:
        PluginUnusable: it takes too long, or an earlier one of the same package never returned.
    """
    earlier = _hanging.get(loading.top)
    if earlier is not None and not earlier.is_over.is_set():
        raise PluginUnusable(
            f"{what}: the package {loading.top!r} is still being imported",
            hint="an earlier import of it did not return in time; mend or remove the package",
        )
    seconds = _read_timeout()
    with _divert_output(loading.thread, point.origin):
        loading.thread.start()
        is_over = loading.is_over.wait(seconds)
    if not is_over:
        _hanging[loading.top] = loading
        raise PluginUnusable(
            f"{what}: it was not imported in {seconds:g} seconds",
            hint=f"if it only needs longer, set {TIMEOUT_VARIABLE} to more seconds",
        )


def _read_timeout() -> float:
    """Seconds for one loading; what is no number above 0 is the default."""
    try:
        seconds = float(os.environ.get(TIMEOUT_VARIABLE) or _DEFAULT_TIMEOUT_S)
    except ValueError:
        return _DEFAULT_TIMEOUT_S
    return min(seconds, threading.TIMEOUT_MAX) if seconds > 0 else _DEFAULT_TIMEOUT_S


# -- output of an import ---------------------------------------------------------------------------------


class _Diversion:
    """A standard stream that keeps back what one thread writes, and passes on everything else."""

    def __init__(self, stream: Any, thread: threading.Thread, texts: list[str]) -> None:
        self._stream, self._thread, self._texts = stream, thread, texts

    def write(self, text: str) -> int:
        """Keep or pass on a text."""
        if threading.current_thread() is self._thread:
            self._texts.append(str(text))
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_diversion_lock = threading.Lock()


@contextmanager
def _divert_output(thread: threading.Thread, origin: str) -> Iterator[None]:
    """Keep what an import prints out of our output, which may be JSON; say it on stderr, escaped, in the end.

    One loading diverts at a time. A second one that runs beside it prints as it likes, which only a server
    can see.
    """
    texts: list[str] = []
    if not _diversion_lock.acquire(blocking=False):
        yield
        return
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Diversion(stream, thread, texts) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        _diversion_lock.release()
    text = make_visible("".join(texts)[:_MAX_OUTPUT]).strip()
    if text:
        log.warning("%s printed while it was imported:\n%s", origin, text)


# -- use -------------------------------------------------------------------------------------------------


@contextmanager
def guard_use(origin: str, expected: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Name the package in what its code raises; nothing that it raises ends a server or a loop.

    Args:
        origin: what runs, for messages; empty for code of Toolchart, which is not guarded.
        expected: errors that pass, beside those that it reports as `ToolchartError`.

    Raises:
        PluginFailure: the code raised an error that is none of Toolchart.
    """
    try:
        yield
    except BaseException as error:
        if not origin or is_stop(error) or isinstance(error, (ToolchartError, *expected)):
            raise
        raise PluginFailure(f"{origin} failed: {describe_foreign_error(error)}") from error


def is_stop(error: BaseException) -> bool:
    """Whether an error stops the code from outside: a cancellation, or the Ctrl-C of a person.

    Python raises a `KeyboardInterrupt` for a Ctrl-C only in the main thread, and only where nobody else
    handles the signal. In a server, or in another thread, it is the code's own.
    """
    if isinstance(error, KeyboardInterrupt):
        handler = signal.getsignal(signal.SIGINT)
        is_raised = handler is signal.default_int_handler or "asyncio.runners" in str(
            getattr(getattr(handler, "func", None), "__module__", "")
        )
        return is_raised and threading.current_thread() is threading.main_thread()
    asyncio = sys.modules.get("asyncio")  # without it nothing can be cancelled
    is_cancelled = asyncio is not None and isinstance(error, asyncio.CancelledError)
    return is_cancelled or isinstance(error, GeneratorExit)


def describe_failure(error: BaseException) -> str:
    """What an unexpected error says, for messages; of another package its name, and the rest escaped."""
    culprit = find_culprit(error)
    if culprit:
        return f"the package {culprit} failed: {describe_foreign_error(error)}"
    return describe_error(error)


def find_culprit(error: BaseException) -> str:
    """Which package of somebody else an error came out of, for messages; empty for Toolchart itself.

    It is the one whose code was innermost: what it called (a library, the standard library) raised for it.
    """
    trace: TracebackType | None = error.__traceback__
    culprit = ""
    while trace is not None:
        top = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if top == __name__.partition(".")[0]:
            culprit = ""  # it called back into Toolchart
        culprit = _packages.get(top, culprit)
        trace = trace.tb_next
    return culprit
