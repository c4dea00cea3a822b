"""The checks of `toolchart doctor`: Python, packages, the log, and what an agent needs.

An agent needs keys, hosts, models and tools. Each check reports a result, and a failed one the next step.
Nothing is run or written. No secret is printed: of a key only its origin.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.stores import DEFAULT_LOG, find_store, open_store, open_store_for_reading
from toolchart.engine.runtime.model_hosts import create_model_provider
from toolchart.engine.runtime.start_check import find_start_problems
from toolchart.providers.adapter import HostAdapter
from toolchart.providers.catalogs import OfferedModel, find_model, list_models
from toolchart.providers.entries import can_list_models, is_local_address, list_own_variables, resolve_address
from toolchart.providers.hosts import find_host
from toolchart.providers.prices import load_price_table
from toolchart.specs.document_files import locate_errors
from toolchart.specs.models import AgentSpec, Handler, LLMConfig
from toolchart.specs.secrets import find_references, resolve_environment
from toolchart.specs.turn_plan import collect_options
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.descriptors import REGISTRIES, find_registry, load_row_reference
from toolchart.states.errors import LogDamaged, LogUnavailable, ProviderError, SpecError, suggest_name
from toolchart.states.messages import Message, Reply, Request, ToolDefinition

_MINIMUM_PYTHON = (3, 11)

_EXTRA_MARKER = re.compile(r"""extra\s*==\s*['"](\w+)""")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    about: str
    """The subject: `python`, `log`, `llms.box`, ..."""
    ok: bool | None
    """None if unknown, which is not a failure."""
    said: str
    """The result in words."""
    hint: str | None = None
    """The next step of the user."""


def check_environment(
    spec: AgentSpec | None, log: str | None, *, loads_plugins: bool = False
) -> Iterator[Check]:
    """Run every check of this machine and, with an agent, of what the agent needs.

    Args:
        loads_plugins: import everything that other packages add; without it they are only listed.
    """
    yield _check_python()
    yield from _check_packages()
    yield from _load_plugins() if loads_plugins else _list_plugins()
    yield _check_log(log)
    if spec is None:
        return
    yield _check_chart(spec)
    yield from _check_start(spec)
    yield from _check_prices(spec)
    for name, config in spec.llms.items():
        yield from _check_llm(name, config, spec)


def _check_chart(spec: AgentSpec) -> Check:
    """Check whether the chart can be used, and reads every limit of the agent."""
    try:
        chart = load_agent_chart(spec)
    except SpecError as error:
        return Check(about="chart", ok=False, said=str(error).partition("\n")[0], hint=error.hint)
    return Check(about="chart", ok=True, said=f"{chart.name}, which reads every limit of the agent")


def _check_start(spec: AgentSpec) -> Iterator[Check]:
    """Check whether tools, functions and adapters can be loaded; no server is started."""
    # What an entry of `llms` has wrong beside its provider, the check of that entry says.
    problems = [
        error
        for error in find_start_problems(spec)
        if not re.match(r"llms\.[^.]+\.(?!provider$)", error.path or "")
    ]
    for error in problems:
        yield _build_failed_check(error.path or "tools", error)
    if not problems and spec.tools is not None:
        finding = "every tool of the registry can be loaded; servers and OpenAPI documents were not asked"
        yield Check(about="tools", ok=True, said=finding)


# -- this machine --------------------------------------------------------------------------------


def _check_python() -> Check:
    finding = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    is_supported = sys.version_info[:2] >= _MINIMUM_PYTHON
    return Check(
        about="python", ok=is_supported, said=finding, hint=None if is_supported else "Python 3.11 or newer"
    )


def _check_packages() -> Iterator[Check]:
    """Check the packages that Toolchart requires; extras only if they are installed."""
    yield Check(
        about="toolchart",
        ok=True,
        said=_find_version("toolchart") or "not installed (running from a checkout)",
    )
    for requirement in _list_requirements():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        version, extra = _find_version(name), _EXTRA_MARKER.search(requirement)
        if extra and (version is None or extra.group(1) in ("test", "dev")):
            continue
        yield Check(
            about=name,
            ok=version is not None,
            said=version or "not installed",
            hint=None if version else f"pip install '{requirement}'",
        )


def _list_plugins() -> Iterator[Check]:
    """What other packages add, one check for each package; nothing of them is imported."""
    titles: dict[str, list[str]] = {}
    for group in REGISTRIES:
        for point in find_registry(group).list_added():
            titles.setdefault(point.package, []).append(point.title)
    for package, rows in titles.items():
        yield Check(
            about=f"package {package}",
            ok=None,
            said=f"adds {', '.join(rows)}",
            hint="each is loaded when it is named; to load all of them now: toolchart doctor --plugins",
        )


def _load_plugins() -> Iterator[Check]:
    """Load each row that other packages add, and what it refers to."""
    for group in REGISTRIES:
        registry = find_registry(group)
        for point in registry.list_added():
            about = f"package {point.package}"
            try:
                row = registry.find(point.name)
                for reference in row.list_references().values():
                    load_row_reference(row, reference)
            except (SpecError, ImportError, AttributeError) as error:
                hint = getattr(error, "hint", None) or "mend or remove the package; what it adds is not used"
                problem = str(getattr(error, "message", error))
                yield Check(about=about, ok=False, said=problem, hint=hint)
            else:
                yield Check(about=about, ok=True, said=f"{point.title} can be loaded")


def _list_requirements() -> list[str]:
    """Return the requirements of the installed Toolchart; in a checkout the packages that it imports."""
    try:
        requirements = metadata.requires("toolchart") or []
    except metadata.PackageNotFoundError:
        requirements = ["python-statemachine", "pydantic", "httpx2"]
    by_package: dict[str, str] = {}
    for requirement in requirements:
        by_package.setdefault(re.split(r"[^\w.-]", requirement, maxsplit=1)[0], requirement)
    return list(by_package.values())


def _find_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _check_log(address: str | None) -> Check:
    """Check whether the log could be written, without creating it, or be read where nobody writes to it."""
    text = address or DEFAULT_LOG
    try:
        row = find_store(text)
        if row.is_only_read:
            open_store_for_reading(text).close()
            return Check(about="log", ok=True, said=f"{text} can be read; it is only read")
        if not row.is_path:
            open_store(text, create=False).close()
    except (LogDamaged, LogUnavailable, SpecError) as error:
        hint = "check --log and TOOLCHART_LOG"
        return Check(about="log", ok=False, said=str(error), hint=hint)
    if not row.is_durable:
        return Check(about="log", ok=None, said=f"{text}: {row.summary}; nothing is kept")
    if not row.is_path:
        return Check(about="log", ok=True, said="the database is reachable")
    path = Path(text)
    existing_path = next(candidate for candidate in (path, *path.absolute().parents) if candidate.exists())
    is_writable = os.access(existing_path, os.W_OK) and (existing_path == path or existing_path.is_dir())
    action = "written" if existing_path == path else "created"
    finding = f"{text} {'can' if is_writable else 'cannot'} be {action}"
    return Check(
        about="log",
        ok=is_writable,
        said=finding,
        hint=None if is_writable else "choose another log with --log FILE",
    )


# -- an agent ------------------------------------------------------------------------------------


def _check_prices(spec: AgentSpec) -> Iterator[Check]:
    folder = Path(spec.source).parent if spec.source else None
    try:
        table = load_price_table(spec.prices, folder)
    except SpecError:  # what keeps an agent from starting is said by then
        return
    if table is not None:
        yield Check(about="prices", ok=True, said=f"{len(table.models)} models, in {table.currency}")
    elif spec.limits.max_cost is not None:
        yield Check(
            about="prices",
            ok=None,
            said="max_cost is set, but there is no price table",
            hint="set `prices` in the agent spec, unless the host reports the cost of each reply",
        )


def _check_llm(name: str, config: LLMConfig, spec: AgentSpec) -> Iterator[Check]:
    """Check one entry of `llms`: settings, key, whether the host answers, whether its models exist."""
    about = f"llms.{name}"

    def resolve_references(text: str) -> str:
        return resolve_environment(text, about)

    adapter_check = _check_adapter(about, config, spec)
    yield adapter_check
    if not adapter_check.ok or not find_host(config.provider).needs_network:
        return
    yield _check_key(about, config, resolve_references)
    yield from _check_fit(name, config, spec)
    if not can_list_models(config):
        finding = "the host has no list of models, so it was not asked"
        yield Check(about=about, ok=None, said=finding)
        return
    try:
        models = list_models(config, resolve_references, _find_folder(spec))
    except (ProviderError, SpecError) as error:
        yield _build_unreachable_check(about, config, resolve_references, error)
        return
    address = resolve_address(config, resolve_references)
    yield Check(about=about, ok=True, said=f"{address} answers and offers {len(models)} models")
    for model, handlers in _group_handlers_by_model(name, config, spec).items():
        yield from _check_model(about, config, model, handlers, models, spec)


def _check_fit(name: str, config: LLMConfig, spec: AgentSpec) -> Iterator[Check]:
    """What of the handlers' options the host or its model refuses, and what is sent in its place."""
    about = f"llms.{name}"
    plain = config.model_copy(update={"tool_format": "native"})
    adapter = create_model_provider(plain, about, beside=_find_folder(spec))
    if not isinstance(adapter, HostAdapter):
        return
    tool = ToolDefinition(name="tool", description="A tool.")
    for handler in spec.responses:
        if handler.llm != name:
            continue
        request = Request(
            model=handler.model or config.model or "",
            messages=[Message(role="user", content="Hello.")],
            tools=(tool,) if _uses_tools(spec, handler) else (),
            options=collect_options(handler, config),
        )
        if isinstance(request.options.get("tool_choice"), Mapping) or not request.tools:
            options = {key: value for key, value in request.options.items() if key != "tool_choice"}
            request = replace(request, options=options)
        elif request.options.get("tool_choice") not in (None, "auto", "none", "required"):
            request = replace(request, options={**request.options, "tool_choice": "tool"})
        try:
            warnings = adapter.list_warnings(request, Reply(finish_reason="unknown"))
        except ProviderError as error:
            yield Check(about=about, ok=False, said=error.message, hint=f"change handler {handler.name!r}")
            continue
        for warning in warnings:
            yield Check(about=about, ok=None, said=f"handler {handler.name or 'default'!r}: {warning}")


def _find_folder(spec: AgentSpec) -> Path | None:
    """The folder of the spec; None for one that was given as data."""
    return Path(spec.source).parent if spec.source else None


def _check_adapter(about: str, config: LLMConfig, spec: AgentSpec) -> Check:
    """Build the adapter of an entry and discard it: checks settings, variables and the key."""
    try:
        with locate_errors(spec):
            create_model_provider(config, about, beside=_find_folder(spec))
    except SpecError as error:
        return _build_failed_check(about, error)
    return Check(about=about, ok=True, said=f"provider {config.provider} is configured")


def _build_failed_check(about: str, error: SpecError) -> Check:
    line = f":{error.line}" if error.line else ""
    place = f"{error.file}{line}: " if error.file else ""
    if error.path and error.path != about:
        place += f"{error.path}: "
    hint = error.hint or f"correct `{about}` in the agent spec"
    return Check(about=about, ok=False, said=f"{place}{error.message}", hint=hint)


def _check_key(about: str, config: LLMConfig, resolve_references: Callable[[str], str]) -> Check:
    """Report where the key comes from. The adapter check has already found a missing key."""
    if config.api_key:
        names = [name for name, _ in find_references(config.api_key)]
        return Check(about=about, ok=True, said=f"key from {', '.join(names) or 'the agent spec'}")
    variables = list_own_variables(config, resolve_references)
    variable = next((name for name in variables if os.environ.get(name)), None)
    if variable is None:
        return Check(about=about, ok=None, said="no key is sent; this host may not need one")
    return Check(about=about, ok=True, said=f"key from {variable}")


def _build_unreachable_check(
    about: str, config: LLMConfig, resolve_references: Callable[[str], str], error: ProviderError | SpecError
) -> Check:
    address = resolve_address(config, resolve_references) or ""
    if isinstance(error, SpecError):
        return _build_failed_check(about, error)
    is_local = is_local_address(address)
    host = find_host(config.provider)
    key_places = " or ".join([*host.own_row.key_variables, "`api_key`"])
    hints = {
        "auth": f"the host refused the key: check {key_places}",
        "connection": "is it running? " + (f"`{host.start_command}`" if host.start_command else address)
        if is_local
        else "check `base_url`, the network and the proxy settings",
        "not_found": "check `base_url`: for OpenAI-compatible hosts it ends in /v1",
    }
    hint = hints.get(error.kind, "try again later" if error.retryable else "check `base_url`")
    return Check(about=about, ok=False, said=f"{address}: {error}", hint=hint)


def _group_handlers_by_model(name: str, config: LLMConfig, spec: AgentSpec) -> dict[str, list[Handler]]:
    """Return the models that the handlers of an entry use, each with its handlers."""
    handlers_by_model: dict[str, list[Handler]] = {}
    for handler in spec.responses:
        model = handler.model or config.model
        if handler.llm == name and model:
            handlers_by_model.setdefault(model, []).append(handler)
    if config.model and not handlers_by_model:
        handlers_by_model[config.model] = []
    return handlers_by_model


def _check_model(
    about: str,
    config: LLMConfig,
    model: str,
    handlers: list[Handler],
    models: list[OfferedModel],
    spec: AgentSpec,
) -> Iterator[Check]:
    match = find_model(model, models)
    if match is None:
        hint = (
            suggest_name(model, [offer.name for offer in models]) if models else "the host offers no models"
        )
        pull_command = find_host(config.provider).pull_command
        if pull_command:
            hint = f"{pull_command.replace('{model}', model)}; {hint}"
        yield Check(about=about, ok=False, said=f"the host has no model {model!r}", hint=_shorten_hint(hint))
        return
    yield Check(about=about, ok=True, said=f"model {model!r} is available")
    if any(_uses_tools(spec, handler) for handler in handlers):
        yield _check_tool_support(
            about, model, match, uses_text_calls=bool(config.extra_options().get("tool_format"))
        )


def _shorten_hint(hint: str, limit: int = 300) -> str:
    return hint if len(hint) <= limit else hint[:limit].rsplit(",", 1)[0] + ", ..."


def _uses_tools(spec: AgentSpec, handler: Handler) -> bool:
    if spec.tools is None or not spec.tools.enabled:
        return False
    return spec.tools.apply_globally if handler.tools is None else handler.tools.enabled


def _check_tool_support(about: str, model: str, offer: OfferedModel, *, uses_text_calls: bool) -> Check:
    if offer.tools:
        return Check(about=about, ok=True, said=f"model {model!r} supports tool calls")
    if offer.tools is None:
        return Check(
            about=about, ok=None, said=f"the host does not say whether {model!r} supports tool calls"
        )
    if uses_text_calls:
        return Check(about=about, ok=True, said=f"model {model!r} calls tools as text (tool_format)")
    return Check(
        about=about,
        ok=False,
        said=f"model {model!r} does not support tool calls, but a handler offers tools",
        hint="choose a model that supports tools: toolchart models list SPEC",
    )
