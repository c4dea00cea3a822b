"""Names of workers that are no engine of this process, for tests that take leases themselves.

Engines are numbered from 1 on over the whole process. A test that names a worker by a number of its own gets
the lease of an engine, or gives it its own, as soon as so many engines were made before it.
"""

from __future__ import annotations

from toolchart.engine.log.leases import name_worker

ALIVE = name_worker(-1)
"""A worker that lives: its lease holds until it expires or is given back."""

DEAD = ALIVE.replace(":", ":9").replace("/", "9999/")
"""A worker of this machine whose process does not exist."""
