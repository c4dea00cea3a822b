"""What replies cost, by a price table of the user's own.

A table is data: prices per million tokens by model, in one currency, in a YAML or JSON file beside the
spec or inline. It is read when an agent starts and never fetched. No library's table is used: prices
change under a pinned version and differ by contract, so the same log would tell another sum after an
upgrade; a table of one's own is a few lines, and is versioned with the spec that it belongs to.

    currency: USD
    models:
      gpt-4.1-mini: {input: 0.40, cached: 0.10, output: 1.60}
      "qwen3*": {input: 0, output: 0}          # a glob: on one's own machine
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.models import AgentSpec
from toolchart.specs.yaml_document import Document, read_document
from toolchart.states.chart.source_positions import dotted
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request, Usage
from toolchart.states.suggestions import nearest

_MILLION = 1_000_000

_DIGITS = 12
"""Decimals kept of a cost: far below a price of one token, far above the noise of binary fractions."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    comment: Any = None


class Price(_Part):
    """What a model costs, per million tokens."""

    input: float = Field(ge=0, allow_inf_nan=False)
    """Prompt tokens."""
    output: float = Field(ge=0, allow_inf_nan=False)
    """Completion tokens, reasoning included."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Prompt tokens that the host had in its cache; without it they cost as `input` says."""

    def cost(self, usage: Usage) -> float | None:
        """Money for these tokens; None where the host did not count them."""
        if usage.input is None and usage.output is None:
            return None
        given, cached = usage.input or 0, min(usage.cached or 0, usage.input or 0)
        for_cached = self.input if self.cached is None else self.cached
        total = (given - cached) * self.input + cached * for_cached
        return round((total + (usage.output or 0) * self.output) / _MILLION, _DIGITS)


class PriceTable(_Part):
    """Prices by model."""

    currency: str = "USD"
    """For readers; `limits.max_cost` is in the same."""
    models: dict[str, Price]
    """Names, or globs where no name fits; of several globs the longest."""

    def price(self, *models: str | None) -> Price | None:
        """The price of the first of these names that the table knows, by name before by glob."""
        names = [model for model in models if model]
        for name in names:
            if name in self.models:
                return self.models[name]
        for name in names:
            globs = [glob for glob in self.models if fnmatchcase(name, glob)]
            if globs:
                return self.models[max(globs, key=len)]
        return None


def price_table(given: str | Mapping[str, Any] | None, beside: Path | None) -> PriceTable | None:
    """The table of a spec's `prices`: a file, relative to the spec, or the table itself.

    Raises:
        SpecError: no such file, or no price table; names file, line and key.
    """
    if given is None:
        return None
    if isinstance(given, str):
        document = read_document((beside or Path()) / given, holds="`models`")
    else:
        document = Document(data=dict(given))
    try:
        return PriceTable.model_validate(document.data)
    except ValidationError as error:
        raise _told(error, document, inline=not isinstance(given, str)) from None


def pricer(spec: AgentSpec, beside: Path | None) -> Callable[[Reply, Request], Reply] | None:
    """Fills in what replies cost, as a spec's `prices` say; None where nobody asks for it.

    Raises:
        SpecError: the table cannot be read.
    """
    table, needed = price_table(spec.prices, beside), spec.limits.max_cost is not None
    if table is None and not needed:
        return None
    return lambda reply, request: priced(reply, request, table, needed=needed)


def _told(error: ValidationError, document: Document, *, inline: bool) -> SpecError:
    details = error.errors(include_url=False)
    # A misspelt key is told before the key that is missing because of it.
    detail = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
    place = detail["loc"]
    hint = "per million tokens: {input: 0.4, output: 1.6, cached: 0.1}"
    if detail["type"] == "extra_forbidden":
        known = Price.model_fields if len(place) > 1 else PriceTable.model_fields
        hint = nearest(str(place[-1]), set(known) - {"comment"})
    return SpecError(
        f"price table: {detail['msg'][:1].lower()}{detail['msg'][1:]}",
        file=document.source,
        line=document.line(place),
        path=dotted(("prices", *place) if inline else place),
        hint=hint,
    )


def priced(reply: Reply, request: Request, table: PriceTable | None, *, needed: bool) -> Reply:
    """The reply with its cost, where the host says none and the table knows the model.

    Args:
        needed: a limit of money is set, so a cost that nobody knows is worth a warning.
    """
    usage = reply.usage
    if usage is not None and usage.cost is not None:
        return reply
    price = table.price(reply.model, request.model) if table is not None else None
    cost = price.cost(usage) if price is not None and usage is not None else None
    if cost is not None and usage is not None:
        return replace(reply, usage=replace(usage, cost=cost))
    if not needed:
        return reply
    why = _unknown(reply.model or request.model, table, price)
    return replace(
        reply, warnings=(*reply.warnings, f"{why}, so max_cost does not count this reply")
    )


def _unknown(model: str, table: PriceTable | None, price: Price | None) -> str:
    if table is None:
        return "the host says no cost and the spec has no `prices`"
    if price is None:
        return f"the price table does not know {model!r} ({nearest(model, table.models)})"
    return "the host did not count tokens"
