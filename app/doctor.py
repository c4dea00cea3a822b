"""Whether an agent could run here and now: keys, hosts, models, tools, packages and the log.

Each check says what was found, and a failed one what to do next. Nothing is run, nothing is written, and
no secret is printed: of a key only where it comes from.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from toolchart.providers.models import (
    KEY_VARIABLES,
    OfferedModel,
    find_model,
    key_of,
    list_models,
)
from toolchart.providers.shared.addresses import address_of, on_this_machine
from toolchart.specs.models import AgentSpec, Handler, LLMConfig
from toolchart.specs.secrets import references, resolve
from toolchart.states.errors import (
    LogDamaged,
    LogUnavailable,
    ProviderError,
    ReplayMismatch,
    SpecError,
)
from toolchart.states.suggestions import nearest

_LEAST_PYTHON = (3, 11)

_EXTRA = re.compile(r"""extra\s*==\s*['"](\w+)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    about: str
    """What: `python`, `log`, `llms.box`, ..."""
    ok: bool | None
    """None where it cannot be told, which is no failure."""
    said: str
    """What was found."""
    hint: str | None = None
    """What to do next."""


def examine(spec: AgentSpec | None, log: str | None) -> Iterator[Check]:
    """Every check of this machine and, with an agent, of what it needs."""
    yield _python()
    yield from _packages()
    yield _log(log)
    if spec is None:
        return
    yield from _prices(spec)
    for name, config in spec.llms.items():
        yield from _entry(name, config, spec)


# -- this machine --------------------------------------------------------------------------------


def _python() -> Check:
    said = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    )
    fits = sys.version_info[:2] >= _LEAST_PYTHON
    return Check(about="python", ok=fits, said=said, hint=None if fits else "Python 3.11 or newer")


def _packages() -> Iterator[Check]:
    """What Toolchart requires, as its own metadata says; extras only where they are installed."""
    yield Check(
        about="toolchart", ok=True, said=_version("toolchart") or "not installed: a checkout"
    )
    for requirement in _requires():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        version, extra = _version(name), _EXTRA.search(requirement)
        if extra and (version is None or extra.group(1) in ("test", "dev")):
            continue
        yield Check(
            about=name,
            ok=version is not None,
            said=version or "not installed",
            hint=None if version else f"pip install '{requirement}'",
        )


def _requires() -> list[str]:
    """The requirements of an installed Toolchart; of a checkout the packages that it imports."""
    try:
        found = metadata.requires("toolchart") or []
    except metadata.PackageNotFoundError:
        found = ["python-statemachine", "pydantic", "openai", "ollama", "google-genai"]
    wanted: dict[str, str] = {}
    for one in found:
        wanted.setdefault(re.split(r"[^\w.-]", one, maxsplit=1)[0], one)
    return list(wanted.values())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _log(address: str | None) -> Check:
    """Whether the log could be written; it is not made."""
    from toolchart.engine.log.stores import DEFAULT_LOG, open_store

    text = address or DEFAULT_LOG
    if "://" in text:
        try:
            open_store(text, create=False).close()
        except LogUnavailable as error:
            return Check(about="log", ok=False, said=str(error), hint="see --log and TOOLCHART_LOG")
        return Check(about="log", ok=True, said="the database answers")
    path = Path(text)
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    fits = os.access(there, os.W_OK) and (there == path or there.is_dir())
    said = f"{text} {'can' if fits else 'cannot'} be {'written' if there == path else 'made'}"
    return Check(
        about="log", ok=fits, said=said, hint=None if fits else "choose another: --log FILE"
    )


# -- an agent ------------------------------------------------------------------------------------


def _prices(spec: AgentSpec) -> Iterator[Check]:
    from toolchart.providers.prices import price_table

    beside = Path(spec.source).parent if spec.source else None
    try:
        table = price_table(spec.prices, beside)
    except SpecError as error:
        yield _failed("prices", error)
        return
    if table is not None:
        yield Check(
            about="prices", ok=True, said=f"{len(table.models)} models, in {table.currency}"
        )
    elif spec.limits.max_cost is not None:
        yield Check(
            about="prices",
            ok=None,
            said="max_cost is set and there is no price table",
            hint="give `prices`, unless the host itself says what a reply cost",
        )


def _entry(name: str, config: LLMConfig, spec: AgentSpec) -> Iterator[Check]:
    """One entry: can its adapter be made, is there a key, does the host answer, is the model there."""
    about = f"llms.{name}"

    def resolved(text: str) -> str:
        return resolve(text, about)

    made = _made(about, config, spec)
    yield made
    if not made.ok or config.provider not in KEY_VARIABLES:
        return
    yield _key(about, config, resolved)
    try:
        offered = list_models(config, resolved)
    except (ProviderError, SpecError) as error:
        yield _unreachable(about, config, resolved, error)
        return
    address = address_of(config, resolved)
    yield Check(about=about, ok=True, said=f"{address} answers and offers {len(offered)} models")
    for model, handlers in _models(name, config, spec).items():
        yield from _model(about, config, model, handlers, offered, spec)


def _made(about: str, config: LLMConfig, spec: AgentSpec) -> Check:
    """The adapter of an entry, made and thrown away: settings, variables, a key, a cassette."""
    from toolchart.engine.runtime.model_hosts import model_host

    beside = Path(spec.source).parent if spec.source else None
    quiet = config.model_copy(update={"record": None})  # nothing is written here
    try:
        model_host(quiet, about, beside=beside)
    except SpecError as error:
        return _failed(about, error)
    except (LogUnavailable, LogDamaged, ReplayMismatch) as error:
        said, _, hint = str(error).partition("\n")
        hint = hint.strip() or "look closer: toolchart verify --log LOG"
        return Check(about=about, ok=False, said=said, hint=hint)
    return Check(about=about, ok=True, said=f"provider {config.provider} is set up")


def _failed(about: str, error: SpecError) -> Check:
    place = f"{error.file}: " if error.file else ""
    hint = error.hint or f"correct `{about}` in the agent spec"
    return Check(about=about, ok=False, said=f"{place}{error.message}", hint=hint)


def _key(about: str, config: LLMConfig, resolved: Callable[[str], str]) -> Check:
    """Where the key comes from; that there is one was seen when the adapter was made."""
    if config.api_key:
        names = [name for name, _ in references(config.api_key)]
        return Check(about=about, ok=True, said=f"key from {', '.join(names) or 'the agent spec'}")
    variables = KEY_VARIABLES[config.provider]
    found = next((name for name in variables if os.environ.get(name)), None)
    if key_of(config, resolved) is None or found is None:
        return Check(about=about, ok=None, said="no key is sent; this host may ask for none")
    return Check(about=about, ok=True, said=f"key from {found}")


def _unreachable(
    about: str, config: LLMConfig, resolved: Callable[[str], str], error: ProviderError | SpecError
) -> Check:
    address = address_of(config, resolved) or ""
    if isinstance(error, SpecError):
        return _failed(about, error)
    here = on_this_machine(address)
    hints = {
        "auth": f"the key was refused: check {' or '.join(KEY_VARIABLES[config.provider])}, or `api_key`",
        "connection": "is it running? "
        + ("`ollama serve`" if config.provider == "ollama" else address)
        if here
        else "check `base_url`, the network and proxies",
        "not_found": "check `base_url`: for OpenAI's kind it ends in /v1",
    }
    hint = hints.get(error.kind, "try again later" if error.retryable else "check `base_url`")
    return Check(about=about, ok=False, said=f"{address}: {error}", hint=hint)


def _models(name: str, config: LLMConfig, spec: AgentSpec) -> dict[str, list[Handler]]:
    """The models that handlers want of an entry, with those handlers."""
    wanted: dict[str, list[Handler]] = {}
    for handler in spec.responses:
        model = handler.model or config.model
        if handler.llm == name and model:
            wanted.setdefault(model, []).append(handler)
    if config.model and not wanted:
        wanted[config.model] = []
    return wanted


def _model(
    about: str,
    config: LLMConfig,
    model: str,
    handlers: list[Handler],
    offered: list[OfferedModel],
    spec: AgentSpec,
) -> Iterator[Check]:
    found = find_model(model, offered)
    if found is None:
        hint = nearest(model, [one.name for one in offered]) if offered else "it offers none"
        if config.provider == "ollama":
            hint = f"ollama pull {model}; {hint}"
        yield Check(about=about, ok=False, said=f"there is no model {model!r}", hint=_brief(hint))
        return
    yield Check(about=about, ok=True, said=f"model {model!r} is there")
    if any(_uses_tools(spec, handler) for handler in handlers):
        yield _tools(about, model, found, text=bool(config.extras().get("tool_format")))


def _brief(hint: str, most: int = 300) -> str:
    return hint if len(hint) <= most else hint[:most].rsplit(",", 1)[0] + ", ..."


def _uses_tools(spec: AgentSpec, handler: Handler) -> bool:
    if spec.tools is None or not spec.tools.enabled:
        return False
    return spec.tools.apply_globally if handler.tools is None else handler.tools.enabled


def _tools(about: str, model: str, found: OfferedModel, *, text: bool) -> Check:
    if found.tools:
        return Check(about=about, ok=True, said=f"model {model!r} calls tools")
    if found.tools is None:
        return Check(about=about, ok=None, said=f"the host does not say if {model!r} calls tools")
    if text:
        return Check(about=about, ok=True, said=f"model {model!r} calls tools in its text")
    return Check(
        about=about,
        ok=False,
        said=f"model {model!r} does not call tools, and a handler offers some",
        hint="choose a model with tools: toolchart models list SPEC",
    )
