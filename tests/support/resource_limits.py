"""Run a function in a process with limits on processor time and memory.

The kernel enforces the limits: a function that exceeds them is killed, and the test fails. No test
compares clock times.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CPU_S = 20.0
"""Seconds of processor time: far more than anything that ends takes, also on a slow machine."""

MEMORY_BYTES = 400 * 1024 * 1024
"""Bytes in addition to what the test process itself uses."""


class LimitExceeded(AssertionError):
    """The function used more processor time or memory than allowed."""


@contextmanager
def ends_in_time() -> Iterator[None]:
    """Fail where the block has used more processor time of this process than `CPU_S`.

    A block that waits for others, or for its turn on a busy machine, uses none.
    """
    start = time.process_time()
    yield
    used_s = time.process_time() - start
    assert used_s < CPU_S, f"{used_s:.1f} s of processor time"


def run_bounded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run the function in a limited process and return its value, or raise its exception.

    Raises:
        LimitExceeded: the function exceeded a limit.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _run_limited(function, arguments, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        pickled_result = pipe.read()
    _, status = os.waitpid(child, 0)
    if not pickled_result:
        raise LimitExceeded(f"{function.__name__}{arguments!r}: killed ({status})")
    succeeded, value = pickle.loads(pickled_result)
    if not succeeded:
        raise value
    return value


def _run_limited(function: Callable[..., Any], arguments: tuple[Any, ...], write_end: int) -> None:
    try:
        with open("/proc/self/statm") as statm:
            used_memory = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_memory + MEMORY_BYTES, used_memory + MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            pickled_result = (True, function(*arguments))
        except MemoryError:
            os._exit(1)
        except Exception as error:
            pickled_result = (False, error)
        os.write(write_end, pickle.dumps(pickled_result))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
