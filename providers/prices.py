"""Compute what replies cost, from a price table that the user provides.

A table is data: prices per million tokens by model, in one currency, in a YAML or JSON file beside the
spec or inline. It is read when an agent starts, and never fetched. No library's table is used: its prices
change with the library's version and differ by contract, so the same log would give another sum after an
upgrade. A table of one's own is a few lines, and is versioned with its spec.

    currency: USD
    models:
      gpt-4.1-mini: {input: 0.40, cached: 0.10, output: 1.60}
      "qwen3*": {input: 0, output: 0}          # a glob: on one's own machine
      claude-opus-5: {input: 5, output: 25, tools: {web_search: 0.01}}   # by unit of a tool of the host
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.document_files import read_document
from toolchart.specs.models import AgentSpec
from toolchart.states.chart.yaml_document import Document, format_key_path
from toolchart.states.content import ContentPart, HostCallPart
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import Reply, Request, Usage

_MILLION = 1_000_000

_DECIMALS = 12
"""Decimals kept of a cost: far finer than the price of one token, far coarser than floating-point noise."""


class _PriceModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    comment: Any = None


class Price(_PriceModel):
    """What a model costs, per million tokens."""

    input: float = Field(ge=0, allow_inf_nan=False)
    """Prompt tokens."""
    output: float = Field(ge=0, allow_inf_nan=False)
    """Completion tokens, reasoning included."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Prompt tokens that the host had in its cache; without it they cost as `input` says."""
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Prompt tokens that the host wrote to its cache; without it they cost as `input` says."""
    cache_write_1h: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Those of them that the cache keeps for an hour; without it they cost as `cache_write` says."""

    batch: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """What a call in a batch job costs, as a part of these prices.

    Source of the default: OpenAI, Anthropic, Gemini, Mistral and Bedrock take half (their pages of prices and
    of batch APIs, 2026-11).
    """
    tools: dict[str, float] = Field(default_factory=dict)
    """What a unit of a tool costs that the host runs, by our word for the tool: `{web_search: 0.01}`. A unit
    is what the host counts, a search or a query (`HostCallPart.units`)."""
    tools_per_reply: dict[str, float] = Field(default_factory=dict)
    """The same for tools that cost once for each reply in which they were used, however often."""

    def compute_tool_cost(self, parts: Iterable[ContentPart]) -> float:
        """The cost of what the host ran itself for a reply."""
        units: dict[str, int] = {}
        for part in parts:
            if isinstance(part, HostCallPart) and part.units:
                units[part.tool] = units.get(part.tool, 0) + part.units
        cost = sum(self.tools.get(tool, 0) * count for tool, count in units.items())
        return cost + sum(self.tools_per_reply.get(tool, 0) for tool in units)

    def compute_cost(self, usage: Usage, *, is_batch: bool = False) -> float | None:
        """The cost of these tokens, in the table's currency; None if the host did not count them.

        Args:
            is_batch: whether they were used in a batch job.
        """
        if usage.input is None and usage.output is None:
            return None
        input_tokens, cached_tokens = usage.input or 0, min(usage.cached or 0, usage.input or 0)
        written_tokens = min(usage.cache_write or 0, input_tokens - cached_tokens)
        cached_price = self.input if self.cached is None else self.cached
        write_price = self.input if self.cache_write is None else self.cache_write
        long_tokens = min(usage.cache_write_1h or 0, written_tokens)
        long_price = write_price if self.cache_write_1h is None else self.cache_write_1h
        input_cost = (input_tokens - cached_tokens - written_tokens) * self.input
        input_cost += cached_tokens * cached_price + (written_tokens - long_tokens) * write_price
        input_cost += long_tokens * long_price
        factor = self.batch if is_batch else 1
        return round((input_cost + (usage.output or 0) * self.output) * factor / _MILLION, _DECIMALS)


class PriceTable(_PriceModel):
    """Prices by model."""

    currency: str = "USD"
    """For readers; `limits.max_cost` is in the same."""
    models: dict[str, Price]
    """Names, or globs where no name fits; of several globs the longest."""

    def find_price(self, *models: str | None) -> Price | None:
        """The price of the first of these models that the table has; names count before globs."""
        names = [model for model in models if model]
        for name in names:
            if name in self.models:
                return self.models[name]
        for name in names:
            globs = [glob for glob in self.models if fnmatchcase(name, glob)]
            if globs:
                return self.models[max(globs, key=len)]
        return None


def load_price_table(prices: str | Mapping[str, Any] | None, folder: Path | None) -> PriceTable | None:
    """The price table of a spec; None if it has none.

    Args:
        prices: the spec's `prices`: a file, or the table itself.
        folder: the folder of the spec, to which the file is relative.

    Raises:
        SpecError: no such file, or no price table; names file, line and key.
    """
    if prices is None:
        return None
    is_file = isinstance(prices, str)
    if isinstance(prices, str):
        document = read_document((folder or Path()) / prices, expected_keys="`models`")
    else:
        document = Document(data=dict(prices))
    try:
        return PriceTable.model_validate(document.data)
    except ValidationError as error:
        raise _build_table_error(error, document, is_inline=not is_file) from None


UNKNOWN_COST = ", so max_cost does not count this reply"
"""How the warning about a reply of unknown cost ends."""


def build_pricer(spec: AgentSpec, folder: Path | None) -> Callable[[Reply, Request], Reply] | None:
    """A function that adds the cost to a reply; None if the spec has neither prices nor `max_cost`.

    Args:
        folder: the folder of the spec.

    Raises:
        SpecError: the table cannot be read.
    """
    table, is_limited = load_price_table(spec.prices, folder), spec.limits.max_cost is not None
    if table is None and not is_limited:
        return None
    return lambda reply, request: add_cost(reply, request, table, is_limited=is_limited)


def _build_table_error(error: ValidationError, document: Document, *, is_inline: bool) -> SpecError:
    details = error.errors(include_url=False)
    # A misspelt key is reported before the key that is missing because of it.
    detail = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    key_path = detail["loc"]
    key = str(key_path[-1])
    hint = "per million tokens: {input: 0.4, output: 1.6, cached: 0.1}"
    if detail["type"] == "extra_forbidden":
        fields = Price.model_fields if len(key_path) > 1 else PriceTable.model_fields
        hint = suggest_name(key, set(fields) - {"comment"})
    return SpecError(
        f"price table: {detail['msg'][:1].lower()}{detail['msg'][1:]}",
        file=document.source,
        line=document.find_line(key_path),
        path=format_key_path(("prices", *key_path) if is_inline else key_path),
        hint=hint,
    )


def add_cost(reply: Reply, request: Request, table: PriceTable | None, *, is_limited: bool) -> Reply:
    """The reply with its cost, unless the host sent a cost or the table does not have the model.

    Args:
        is_limited: whether the spec has `max_cost`; then a warning says why a cost is unknown.
    """
    usage = reply.usage
    if usage is not None and usage.cost is not None:
        return reply
    price = table.find_price(reply.model, request.model) if table is not None else None
    is_batch = bool(request.options.get("batch"))
    cost = price.compute_cost(usage, is_batch=is_batch) if price is not None and usage is not None else None
    if cost is not None and price is not None and reply.parts:
        cost = round(cost + price.compute_tool_cost(reply.parts), _DECIMALS)
    if cost is not None and usage is not None:
        return replace(reply, usage=replace(usage, cost=cost))
    if not is_limited:
        return reply
    reason = _explain_unknown_cost(reply.model or request.model, table, price)
    return replace(reply, warnings=(*reply.warnings, f"{reason}{UNKNOWN_COST}"))


def _explain_unknown_cost(model: str, table: PriceTable | None, price: Price | None) -> str:
    if table is None:
        return "the host sends no cost and the spec has no `prices`"
    if price is None:
        return f"the price table does not have {model!r} ({suggest_name(model, table.models)})"
    return "the host did not count tokens"
