"""Agents that run agents, with a model that answers by a function of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request, Usage
from toolchart.states.ports import Store

Answer = Callable[[str, Request], "str | Reply | Exception | asyncio.Event"]
"""From the newest user message and the request to the words of a reply, a reply, an error to raise, or an
event after which the reply is `done`."""


class FunctionModel:
    """A model whose replies are made by a function; each costs ten tokens.

    Attributes:
        asked: the newest user message of every request, in order.
        running: how many requests run now; `most` is the most at once.
    """

    name = "scripted"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.requests: list[Request] = []
        self.running = self.most = 0
        self._arrival = asyncio.Event()

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """Nothing is sent."""
        return {}

    async def complete(self, request: Request) -> Reply:
        """The reply that the function makes."""
        said = [message.content or "" for message in request.messages if message.role == "user"][-1]
        self.asked.append(said)
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        self._arrival.set()
        try:
            answer = self._answer(said, request)
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                answer = "done"
            else:
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Reply):
            return answer
        usage = Usage(input=6, output=4, total=10)
        return Reply(content=answer, finish_reason="stop", usage=usage)

    async def wait_for_requests(self, count: int) -> None:
        """Return when so many requests run."""
        while self.running < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def aclose(self) -> None:
        """Nothing to close."""


def repeat_words(said: str, request: Request) -> str:
    """The newest user message in capitals."""
    return said.upper()


def refuse(message: str = "no such model") -> ProviderError:
    """An error of the model host."""
    return ProviderError(kind="not_found", message=message, status=404)


ONE_CALL = {
    "name": "one_call",
    "states": {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A child that asks its model once."""


def make_parent_chart(**rows: Any) -> dict[str, Any]:
    """A chart that does `work` and answers with `publish`.

    Args:
        rows: more rows of the state `working`, by any name; they come first.
    """
    return {
        "name": "parent",
        "states": {
            "working": {
                "initial": True,
                "enter": "work",
                "transitions": [
                    *rows.values(),
                    {"event": "agent_finished", "target": "finished", "cond": "outcome.pending == 0"},
                    {"event": "agent_failed", "target": "finished", "cond": "outcome.pending == 0"},
                    {"event": "cancelled", "target": "error"},
                ],
            },
            "finished": {"final": True, "enter": "publish"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
    }


def make_spec(chart: Mapping[str, Any], effects: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A spec with one host and one handler."""
    return {
        "chart": chart,
        "effects": effects,
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"name": "main", "llm": "model", "prompt": "You help."}],
        **changes,
    }


def make_engine(
    spec: Mapping[str, Any], model: FunctionModel, log: Store | str | None = None, **changes: Any
) -> Engine:
    """An engine whose only host is this model."""
    store = log if log is not None else MemoryStore()
    return Engine(spec, log=store, providers={"model": model}, **changes)
