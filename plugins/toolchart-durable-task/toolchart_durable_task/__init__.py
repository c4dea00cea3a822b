"""Durable Task as a durable host of Toolchart: what starts stretches, and the worker that performs them."""

from __future__ import annotations

from toolchart_durable_task.task_hub import TaskHub, TaskHubWorker

__all__ = ["TaskHub", "TaskHubWorker"]
