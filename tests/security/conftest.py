"""Fixtures that run command lines inside the test process."""

from __future__ import annotations

from command_runs import restored_loggers, run_cli

__all__ = ["restored_loggers", "run_cli"]
