"""A store in which something happens right before a lease is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolchart.engine.log.stores.memory import MemoryStore


class TurningStore(MemoryStore):
    """Lets something happen once, right before a lease is given back."""

    before_release: Callable[[], None] | None = None

    def release_lease(self, *args: Any, **options: Any) -> Any:
        """Let it happen, then give the lease back."""
        happen, self.before_release = self.before_release, None
        if happen is not None:
            happen()
        return super().release_lease(*args, **options)
