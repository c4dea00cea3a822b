"""The test bench: runs one query against one model with the agent's tools, and keeps the score.

A test is a turn of an agent of its own: the hosts and tools of the served agent, the default chart, one
handler with all tools and 1,000 tokens. Its log is that of the served agent. A call that needs an approval is
rejected, because nobody watches a test. Where the host refuses tools the test ends, instead of asking again
with the tools as text or without them: it says whether the model takes tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.site import Site
from toolchart.app.server.testing_api.side_engines import open_side_engine
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.result import FinishedCall, Turn
from toolchart.specs.models import AgentSpec, Handler, HandlerTools, LLMConfig, ToolsConfig
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.tools.validation.runner import format_current_time
from toolchart.tools.validation.tracker import Entry, ModelRating, Tracker

INLINE_ITERATIONS = 5
QUERY_SUITE = "query"
"""The suite of free questions in the record of a model."""

BENCH_CHART: dict[str, Any] = {
    "name": "test_bench",
    "extends": "full",
    "states": {
        "prompting": {
            "transitions": [
                {
                    "event": "failed",
                    "target": "error",
                    "cond": "tools_sent and "
                    "(error_kind == 'tools_unsupported' or error_kind == 'bad_request')",
                }
            ]
        }
    },
}
"""The default chart, without its further requests where a host refuses tools: with the tools as text, and
without tools."""

_MAX_QUERY = 500
"""Characters of a question that the record keeps."""

_JUDGED_STATUSES = (400, 404, 422)
"""HTTP statuses of a host that say something about the model, and not about the network or the key."""


class BenchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One question to one model."""

    llm: str
    model: str
    query: str
    tools: frozenset[str] | None = None
    """Names of the tools; None offers all."""
    llm_config: LLMConfig | None = None
    """A host that is no entry of the agent; only where the operator allows it."""

    @property
    def is_inline(self) -> bool:
        """Whether the request itself names the tools."""
        return self.tools is not None


class BenchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test."""

    result: Turn
    validation: dict[str, Any]


class Bench:
    """The tests of one site.

    Args:
        results: file with the scores of models.
    """

    def __init__(self, site: Site, results: str) -> None:
        self._site = site
        self._tracker = Tracker(results)

    async def run_query(self, query: BenchQuery, access: Access) -> BenchOutcome:
        """Run one test and record its score.

        Raises:
            SpecError: the host cannot be used: a variable is missing, for instance.
            Refusal: 429; too many turns run.
        """
        with self._site.turns.hold():
            result = await self._ask_model(query, access)
        config = query.llm_config or self._site.engine.spec.llms[query.llm]
        entry = judge_result(result, query.query)
        name = f"{config.provider}/{query.model}"
        if entry is not None and query.llm_config is None:
            await asyncio.to_thread(self._tracker.record, name, entry)
        ratings = await asyncio.to_thread(self._tracker.list_ratings)
        return BenchOutcome(
            result=result, validation=encode_status(query.llm, query.model, ratings.get(name))
        )

    async def _ask_model(self, query: BenchQuery, access: Access) -> Turn:
        served = self._site.engine
        llms = [query.llm] if query.llm_config is None else []
        spec = build_bench_spec(served.spec, query, self._site.limits.test_tokens)
        tools = [tool for tool in served.tools.registry if query.tools is None or tool.name in query.tools]
        options = self._site.claim(access, f"test-{generate_conversation_id()}")
        options.update({"llm": query.llm, "model": query.model})
        opening = open_side_engine(self._site, spec, llms, functions=tools, approver=_reject_call)
        async with opening as engine:
            return await engine.arun(query.query, **options)

    def list_statuses(self) -> list[dict[str, Any]]:
        """The score of every model of the agent's hosts that was tested, or that the agent names."""
        spec, ratings = self._site.engine.spec, self._tracker.list_ratings()
        models = {(llm, config.model or "") for llm, config in spec.llms.items() if config.model}
        models |= {(handler.llm, handler.model) for handler in spec.responses if handler.model}
        for name in ratings:
            provider, _, model = name.partition("/")
            models |= {(llm, model) for llm, config in spec.llms.items() if config.provider == provider}
        return [
            encode_status(llm, model, ratings.get(f"{spec.llms[llm].provider}/{model}"))
            for llm, model in sorted(models)
        ]


async def _reject_call(call: ToolCall) -> Decided:
    reason = "a test runs no call that needs an approval"
    return Decided(call_id=call.id, approved=False, reason=reason, by="test bench")


def build_bench_spec(spec: AgentSpec, query: BenchQuery, max_tokens: int) -> AgentSpec:
    """The agent of one test, with the hosts and the rules of approval of the served one."""
    iterations = spec.tools.max_iterations if spec.tools and not query.is_inline else INLINE_ITERATIONS
    llms = {query.llm: query.llm_config or spec.llms[query.llm]}
    tools = HandlerTools(enabled=True, max_iterations=iterations)
    handler = Handler(llm=query.llm, model=query.model, max_tokens=max_tokens, tools=tools)
    bench = spec.model_copy(
        update={
            "chart": BENCH_CHART,
            "llms": llms,
            "responses": [handler],
            "tools": ToolsConfig(max_iterations=iterations),
            "limits": AgentSpec.model_fields["limits"].get_default(call_default_factory=True),
            "rag_services": {},
            **dict.fromkeys(("effects", "intent", "topic", "profile")),
        }
    )
    public = spec.to_public_dict()
    public_fields: dict[str, Any] = {
        key: public[key] for key in ("name", "approval", "prices", "redact", "output") if key in public
    }
    hosts = public.get("llms", {})
    bench._chart_lines = {}
    bench._public_document = {
        **public_fields,
        "chart": BENCH_CHART,
        "llms": {query.llm: hosts.get(query.llm, {"provider": llms[query.llm].provider})},
        "responses": [handler.model_dump(exclude_none=True, exclude_defaults=True)],
    }
    return bench


def judge_result(result: Turn, query: str) -> Entry | None:
    """The entry in the record of the model; None where the turn says nothing about it.

    A free question counts as a success where at least one call has succeeded.
    """
    error = result.error
    if error is not None and error.kind != "tools_unsupported" and error.status not in _JUDGED_STATUSES:
        return None
    has_succeeded = any(call.ok for call in result.tool_calls)
    reason = error.message if error is not None else "no tool call succeeded"
    return Entry(
        at=format_current_time(),
        suite=QUERY_SUITE,
        case=query[:_MAX_QUERY],
        category=QUERY_SUITE,
        passed=has_succeeded,
        reason=None if has_succeeded else reason,
        tools=tuple(dict.fromkeys(call.tool for call in result.tool_calls)),
        iterations=result.iterations,
    )


def encode_status(llm: str, model: str, rating: ModelRating | None) -> dict[str, Any]:
    """The score of a model as front ends read it."""
    tested = rating if rating is not None and rating.has_results else None
    return {
        "modelId": f"{llm}/{model}",
        "validated": tested is not None and tested.is_validated,
        "successRate": tested.success_rate if tested else None,
        "totalTests": tested.total if tested else 0,
        "successCount": tested.passed if tested else 0,
        "lastTestedAt": tested.last_tested if tested else None,
        "history": [_encode_entry(entry) for entry in tested.history] if tested else [],
    }


def _encode_entry(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"success": entry.passed, "timestamp": entry.at, "query": entry.case}
    if entry.iterations is None and entry.reason:
        return {**row, "error": entry.reason}
    return {**row, "tools_used": list(entry.tools), "iterations_used": entry.iterations or 0}


def encode_call(call: FinishedCall) -> dict[str, Any]:
    """A call as front ends read it; iterations count from 1 there."""
    return {
        "tool": call.tool,
        "tool_name": call.tool,
        "params": call.params,
        "result": call.result,
        "iteration": call.iteration + 1,
        "execution_time_ms": call.execution_time_ms,
        "outcome": call.outcome,
    }


def explain_failure(result: Turn, provider: str) -> tuple[int, str]:
    """HTTP status and text for a turn that ended in error."""
    error, model = result.error, result.model
    assert error is not None
    if error.kind == "tools_unsupported" or error.status in (400, 422):
        status = f" (HTTP {error.status})" if error.status else ""
        return 422, (
            f'Model "{model}" rejected the request{status}. This usually means the model '
            f"does not support tool/function calling. Provider said: {error.message}"
        )
    if error.status == 404:
        text = f'Model "{model}" was not found on provider "{provider}". Check the model name is correct.'
        return 500, text
    return 500, error.message


def select_names(names: Collection[str], registry: Any) -> frozenset[str]:
    """The tools that a request names; unknown ones are left out."""
    rows = registry if isinstance(registry, list) else []
    wanted = {str(row.get("name")) for row in rows if isinstance(row, dict)}
    return frozenset(wanted.intersection(names))
