"""The endpoints about tools: list them, run one alone, test a model with them, and the scores of models.

To run a tool alone and to test a model with all tools goes beyond what any handler gives, so both need the
role `debug`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup, require_role
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.app.server.testing_api.bench import (
    Bench,
    BenchQuery,
    encode_call,
    explain_failure,
    select_names,
)
from toolchart.app.server.testing_api.entries import find_entry
from toolchart.app.server.testing_api.forms import RunToolForm, TryForm
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.events import ToolFinished
from toolchart.states.messages import ToolCall
from toolchart.tools.definition import Tool

ROUTES = RouteGroup()

_INLINE_KEYS = {"provider", "model", "name", "replies", "rules"}
"""What a configuration of a request may hold with `--allow-inline`: a scripted model, and no host."""


def describe_tool(tool: Tool) -> dict[str, Any]:
    """A tool as lists show it."""
    definition = tool.definition
    return {
        "name": definition.name,
        "description": definition.description,
        "type": tool.kind,
        "parameters": definition.parameters,
        "risk": tool.risk,
        "requires_approval": tool.requires_approval,
    }


@ROUTES.endpoint("GET", "/api/tools/list", "read")
async def list_tools(request: Request) -> Response:
    """List the tools of the agent, with its settings about tools."""
    engine = get_site(request).engine
    tools = [describe_tool(tool) for tool in engine.tools.registry]
    config = engine.spec.tools
    if config is None and not tools:
        return JsonAnswer({"tools": [], "count": 0, "message": "Tool manager not initialized"})
    settings = {
        "enabled": config is None or config.enabled,
        "apply_globally": config is not None and config.apply_globally,
        "max_iterations": config.max_iterations if config is not None else None,
    }
    return JsonAnswer({"tools": tools, "count": len(tools), **settings})


@ROUTES.endpoint("GET", "/api/tools/available", "read")
async def list_available_tools(request: Request) -> Response:
    """List the tools of the agent."""
    tools = [describe_tool(tool) for tool in get_site(request).engine.tools.registry]
    return JsonAnswer({"tools": tools, "count": len(tools)})


@ROUTES.endpoint("GET", "/api/tools/validation", "read")
async def list_validation(request: Request) -> Response:
    """List how well models call tools."""
    bench = get_bench(get_site(request))
    return JsonAnswer({"statuses": await asyncio.to_thread(bench.list_statuses)})


def get_bench(site: Site) -> Bench:
    """The test bench of a site."""
    return Bench(site, site.settings.results)


# -- running one tool ----------------------------------------------------------------------------


@ROUTES.endpoint("POST", "/api/tools/{name}/run", "debug", body=RunToolForm)
async def run_tool(request: Request) -> Response:
    """Run one tool alone, the way the engine runs a model's call."""
    form = await read_form(request, RunToolForm)
    site, name = get_site(request), str(request.path_params["name"])
    if site.engine.tools.registry.get(name) is None:
        raise Refusal(
            404, f"this agent has no tool {name!r}: {site.engine.tools.registry.suggest_name(name)}"
        )
    call = ToolCall(id="call_1", name=name, arguments=form.arguments)
    with site.turns.hold():
        event = await _run_call(site, call, form, get_access(request))
    return JsonAnswer({"tool": name, **event.result, "outcome": event.outcome, "notes": list(event.notes)})


async def _run_call(site: Site, call: ToolCall, form: RunToolForm, access: Access) -> ToolFinished:
    """Review the call, and run it if nothing is against it."""
    tools = site.engine.tools
    verdict = await asyncio.to_thread(tools.review, call, (call.name,))
    match verdict.ruling:
        case "denied":
            return tools.refuse(call, "denied", verdict.reason or "refused")
        case "invalid":
            return tools.refuse(call, "failed", verdict.reason or "the arguments are not valid")
        case "needs_approval" if not form.approved:
            raise Refusal(409, "this call needs an approval", details={"needs_approval": True})
        case "needs_approval":
            require_role(access, "approve")
    return await tools.run(call, (call.name,))


# -- testing a model -----------------------------------------------------------------------------


@ROUTES.endpoint("POST", "/api/tools/test", "debug", body=TryForm)
async def try_model(request: Request) -> Response:
    """Ask a model a question with the agent's tools, and record whether it called one."""
    form, site = await read_form(request, TryForm), get_site(request)
    query = _build_query(site, form)
    config = query.llm_config or site.engine.spec.llms[query.llm]
    try:
        outcome = await get_bench(site).run_query(query, get_access(request))
    except SpecError as error:
        raise Refusal(400, f"Failed to create provider: {error}") from None
    result = outcome.result
    if result.error is not None:
        status, text = explain_failure(result, config.provider)
        details = {"model": query.model, "llm": query.llm, "conversation": result.conversation}
        raise Refusal(status, text, details={**details, "validation": outcome.validation})
    return JsonAnswer(
        {
            "content": result.content,
            "model": result.model,
            "service": result.service,
            "tool_calls": [encode_call(call) for call in result.tool_calls],
            "max_iterations_reached": result.max_iterations_reached,
            "validation": outcome.validation,
            "conversation": result.conversation,
            "iterations": result.iterations,
        }
    )


def _build_query(site: Site, form: TryForm) -> BenchQuery:
    """The test that a request asks for.

    Raises:
        Refusal: 400; something is missing, unknown or not allowed.
    """
    is_complete = all(isinstance(value, str) and value.strip() for value in (form.query, form.model))
    if not is_complete:
        raise Refusal(400, "Missing required parameters: query, model")
    if form.provider_config is not None:
        return _build_inline_query(site, form)
    llms = site.engine.spec.llms
    if not isinstance(form.llm, str) or not form.llm:
        text = "Missing required parameters: query, model, llm (or use provider_config for inline mode)"
        raise Refusal(400, text)
    if not list(site.engine.tools.registry):
        raise Refusal(400, 'Tool manager not initialized. Add a "tools" section to your config.')
    if form.llm not in llms:
        raise Refusal(400, f'LLM provider "{form.llm}" not found. Available: {", ".join(llms)}')
    return BenchQuery(llm=form.llm, model=form.model, query=form.query)


def _build_inline_query(site: Site, form: TryForm) -> BenchQuery:
    """The test of a request with a configuration: it must be an entry of the agent, or a scripted model."""
    config = form.provider_config
    if not isinstance(config, dict) or not isinstance(config.get("provider"), str):
        raise Refusal(400, 'provider_config must include a "provider" field')
    tools = select_names(site.engine.tools.names(), form.registry)
    llm = find_entry(site.engine.spec.llms, config)
    if llm is not None:
        return BenchQuery(llm=llm, model=form.model, query=form.query, tools=tools)
    if not site.settings.allow_inline:
        raise Refusal(
            400,
            "Failed to create provider: this host is no entry of the agent's `llms`; a request cannot name "
            "another one",
        )
    if config["provider"] != "scripted" or not config.keys() <= _INLINE_KEYS or "${" in repr(config):
        raise Refusal(
            400,
            "Failed to create provider: a configuration in a request may only be a scripted model "
            "(`provider: scripted` with `replies` or `rules`)",
        )
    return BenchQuery(
        llm="inline", model=form.model, query=form.query, tools=tools, llm_config=_make_scripted(config)
    )


def _make_scripted(config: dict[str, Any]) -> LLMConfig:
    try:
        return LLMConfig.model_validate(config)
    except ValueError as error:
        raise Refusal(400, f"Failed to create provider: {error}") from None
