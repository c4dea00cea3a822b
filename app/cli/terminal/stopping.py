"""Stopping on SIGTERM and SIGHUP: running work ends within a grace time, and the turn is given back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolchart.app.cli.terminal.text import print_notice

if TYPE_CHECKING:
    from toolchart.engine.runtime.engine import Engine

GRACE_S = 10.0
"""Seconds that a running model or tool call has to end."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopRequest:
    """Whether a signal has asked the process to stop."""

    def __init__(self) -> None:
        self.is_made = False


@contextmanager
def stop_on_signals(engine: Engine) -> Iterator[StopRequest]:
    """Within the block, SIGTERM and SIGHUP stop the engine; a second one ends the process at once."""
    request = StopRequest()

    def stop(number: int, frame: Any) -> None:
        if request.is_made:
            raise SystemExit(128 + number)
        request.is_made = True
        engine.request_stop(GRACE_S)
        print_notice(f"toolchart: {signal.Signals(number).name}: what runs may end, for {GRACE_S:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
