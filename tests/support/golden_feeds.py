"""What golden logs are fed with: virtual time, salts and ids that are the same in every run.

A record depends on what happened and on what the machine drew: the time, a jitter, a salt, a key.
Here each of these is a function of what the record is about, never of how often the program asked for it. So
another way through the code writes the same bytes.

- Time is that of a loop that jumps to its next timer. It moves where a model or a tool takes time, never by
  being read.
- A jitter is drawn once for each wait. Each one differs from the one before.
- A salt belongs to a conversation and to the number of the record in it.
- The release has one name, whatever the product is called today.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from simulation import VirtualLoop, close_loop

from toolchart.engine.log import group_commit, record
from toolchart.engine.log.continuation import versions
from toolchart.engine.runtime.clock import SystemClock
from toolchart.tools import whole_definition

RELEASE = "golden"
"""The name of the release in golden logs."""

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class InlineLoop(VirtualLoop):
    """A loop with virtual time that runs the work of threads at once: it takes no time and has one order."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """A future that has the result of the call already."""
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            done.set_result(func(*args))
        except BaseException as error:
            done.set_exception(error)
        return asyncio.wrap_future(done, loop=self)


class FedClock:
    """The clock of the driver on virtual time; no two jitters that follow each other are equal."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.release = RELEASE
        self._draws = 0

    def now(self) -> str:
        """The present time."""
        return format_time(self.loop.now_s)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """The next jitter: multiples of the golden ratio without their whole part never repeat."""
        self._draws += 1
        return round(self._draws * 0.6180339887 % 1, 6)


def format_time(seconds: float) -> str:
    """Virtual seconds as the time of a record."""
    moment = START + timedelta(milliseconds=round(seconds * 1000))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Salts:
    """Salts by conversation and number of the record."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def generate(self) -> str:
        conversation = _find_conversation()
        self._given[conversation] += 1
        digest = hashlib.sha256(f"{conversation}\0{self._given[conversation]}".encode()).hexdigest()
        return digest[: record.SALT_CHARACTERS]


def _find_conversation() -> str:
    """The conversation for which a salt is drawn: that of the nearest caller that knows one."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        for value in (frame.f_locals.get("conversation"), frame.f_locals.get("self")):
            name = value if isinstance(value, str) else getattr(value, "conversation", None)
            if isinstance(name, str):
                return name
        frame = frame.f_back
    raise AssertionError(
        "no caller of generate_salt knows its conversation: adapt golden_feeds._find_conversation"
    )


class _Draws:
    """Random bytes that count up."""

    def __init__(self) -> None:
        self._given = 0

    def draw(self, count: int) -> bytes:
        self._given += 1
        return hashlib.shake_256(b"nonce %d" % self._given).digest(count)


def _submit_inline(log_writer: Any, work: Any) -> asyncio.Future[Any]:
    """Do a job of the log's writer at once, in place of in its thread."""
    job = group_commit._Job(work, asyncio.get_running_loop().create_future())
    log_writer.job_count += 1
    log_writer._do_jobs([job])
    return job.done


_describe_function = whole_definition.describe_function


def _describe_function_anywhere(function: Callable[..., Any]) -> dict[str, str]:
    """What running a function does, without the module of the product that it stands in at present."""
    module, _, name = _describe_function(function)["function"].partition(":")
    return {"function": f"toolchart:{name}" if module.startswith("toolchart.") else f"{module}:{name}"}


@contextmanager
def replace_everywhere(original: Any, substitute: Any) -> Iterator[None]:
    """Put a substitute for a function wherever a module of the product has it by name."""
    _rebind(original, substitute)
    try:
        yield
    finally:
        _rebind(substitute, original)  # also in modules that were loaded meanwhile


def _rebind(before: Any, now: Any) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "toolchart":
            for key in [key for key, value in vars(module).items() if value is before]:
                setattr(module, key, now)


@contextmanager
def feed_values(clock: FedClock) -> Iterator[None]:
    """Feed the program everything that it draws by chance or reads from the machine."""
    draws, salt_feed = _Draws(), _Salts()
    give_salt, give_release = salt_feed.generate, lambda: clock.release
    with ExitStack() as stack:
        stack.enter_context(replace_everywhere(record.generate_salt, give_salt))
        stack.enter_context(replace_everywhere(versions.read_release, give_release))
        stack.enter_context(replace_everywhere(_describe_function, _describe_function_anywhere))
        stack.enter_context(patch.object(group_commit.LogWriter, "submit", _submit_inline))
        stack.enter_context(patch.object(SystemClock, "now", lambda _: clock.now()))
        stack.enter_context(patch.object(secrets, "token_bytes", lambda count=32: draws.draw(count)))
        stack.enter_context(patch.object(secrets, "token_hex", lambda count=32: draws.draw(count).hex()))
        stack.enter_context(patch("time.perf_counter", clock.loop.time))
        yield


def run_fed(work: Callable[[FedClock], Any]) -> Any:
    """Run a coroutine function of the clock on a loop of its own, fed; its result."""
    loop = InlineLoop()
    clock = FedClock(loop)
    try:
        with feed_values(clock):
            return loop.run_until_complete(work(clock))
    finally:
        close_loop(loop)
