"""Run something within a second of processor time and a bounded amount of memory.

The limits are the kernel's, in a process of its own: what goes beyond them is killed, whatever it is
busy with, and the test fails; no clock is compared.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import traceback
from collections.abc import Callable
from typing import Any

CPU_S = 1.0
MEMORY = 400 * 1024 * 1024
"""Beyond what the test process itself takes."""


class OutOfBounds(AssertionError):
    """It took more than a second or more memory than it may."""


def bounded(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value from a limited process; its exception, where it raises one.

    Raises:
        OutOfBounds: it went beyond its limits.
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _limited(function, arguments, writable)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        raise OutOfBounds(f"{function.__name__}{arguments!r}: killed ({status})")
    good, value = pickle.loads(answer)
    if not good:
        raise value
    return value


def _limited(function: Callable[..., Any], arguments: tuple[Any, ...], writable: int) -> None:
    try:
        with open("/proc/self/statm") as statm:
            taken = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            answer = (True, function(*arguments))
        except MemoryError:
            os._exit(1)
        except Exception as error:
            answer = (False, error)
        os.write(writable, pickle.dumps(answer))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
