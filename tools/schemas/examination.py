"""The examination of one call's arguments: are they valid, can they be repaired, and what is wrong with them.

Schemas come from OpenAPI documents and MCP servers too, and values from models. A schema with alternatives
inside alternatives, or one that refers to itself, can take a time that grows exponentially with the value. So
the cost is estimated first: what is certainly cheap is examined here, everything else in a bounded worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from toolchart.tools.schemas.checks import (
    ArgumentCheck,
    SchemaCheck,
    allows_any_of_its_types,
    close_schema,
    find_local_reference,
)

MAX_COST = 20_000
"""Schema nodes times value nodes that are examined in this process."""
SMALL_SCHEMA = 500
"""Nodes of a schema that is small: its lists of names and values are short."""
PROCESSOR_S = 0.5
"""Seconds of processor time for one examination in a worker."""

_FLAT_TYPES = frozenset({str, int, float, bool, type(None)})
"""Types of JSON values that hold no others."""

_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not", "if"})


class Examination(NamedTuple):
    """What was found about the arguments of one call."""

    arguments: dict[str, Any]
    """Repaired where they had to be."""
    notes: tuple[str, ...]
    """What was repaired."""
    problem: str | None
    """Why they are not valid; None where they are."""
    is_repaired: bool = False
    """Whether they broke the schema. Leaving out a null that stands for an absent value is no repair: a host
    that keeps calls to strict schemas makes the model write it."""


class ArgumentExaminer:
    """Examines arguments against the schema of one tool.

    A parameter that the tool does not have is wrong, also where the schema does not say so. Without it the
    tool would run with fewer conditions than the model gave: `delete_rows(where=...)` would delete all rows.

    Args:
        is_trusted: the schema is known to be valid, so that it need not be checked.

    Raises:
        SpecError: the schema itself is not valid.
    """

    def __init__(self, schema: Mapping[str, Any], tool: str, *, is_trusted: bool = False) -> None:
        self._check = ArgumentCheck(close_schema(schema), tool, is_trusted=is_trusted)
        self._weight = measure_weight(schema) if self._check.is_compiled else None
        """Most schema nodes that one node of a value is compared with; None without a bound."""
        self.fits: SchemaCheck | None = None
        """Whether arguments are valid; None where that may take long. Most schemas have it, and most calls
        fit: then there is nothing to examine. It may raise."""
        if self._weight == 1:
            self.fits = self._check.is_valid_at_once

    def is_cheap(self, arguments: dict[str, Any]) -> bool:
        """Whether they are examined here, and not in a worker."""
        return self._weight is not None and self._weight * count_nodes(arguments) <= MAX_COST

    def examine(self, arguments: dict[str, Any]) -> Examination:
        """Validate the arguments, and repair them once where needed. Never raises."""
        if self.is_cheap(arguments):
            try:
                return _examine_with(self._check, arguments)
            except RecursionError:  # a schema that is nothing but a reference to itself
                return Examination(arguments, (), "the tool's schema cannot be used")
        from toolchart.workers.pool import STARVED_S, BoundExceeded, Work, WorkFailed, run_bounded

        work = Work(
            module=__name__,
            function="examine_in_worker",
            arguments={"schema": self._check.schema, "arguments": arguments},
            preload=(__name__,),
            processor_s=PROCESSOR_S,
        )
        try:
            return Examination(**run_bounded(work, timeout_s=STARVED_S))
        except (BoundExceeded, WorkFailed, OSError, RecursionError):
            return Examination(arguments, (), "they cannot be checked against the schema in time")


def prepare() -> None:
    """Load the validator in the host, before it forks the first worker."""
    examine_in_worker({"type": "object", "uniqueItems": True}, {})


def examine_in_worker(schema: Mapping[str, Any], arguments: dict[str, Any]) -> Examination:
    """Examine without regard to the cost; for a bounded worker."""
    return _examine_with(ArgumentCheck(schema, "", is_trusted=True), arguments)


def _examine_with(check: ArgumentCheck, arguments: dict[str, Any]) -> Examination:
    if check.is_valid(arguments):
        return Examination(arguments, (), None)
    from toolchart.tools.schemas.repair import ABSENT, repair_arguments

    repaired_arguments, repairs = repair_arguments(arguments, check.schema)
    if not check.is_valid(repaired_arguments):
        problem = check.describe_problem(arguments) or check.describe_problem(repaired_arguments)
        return Examination(arguments, (), problem or "they do not match the schema")
    is_repaired = any(repair.rule != ABSENT for repair in repairs)
    return Examination(repaired_arguments, tuple(map(str, repairs)), None, is_repaired)


# -- cost ----------------------------------------------------------------------------------------


def count_nodes(value: Any) -> int:
    """The number of values inside a value, itself included; counts no further than `MAX_COST`."""
    if type(value) is dict and _FLAT_TYPES.issuperset(map(type, value.values())):
        return len(value) + 1  # most arguments
    count, pending = 0, [value]
    while pending and count <= MAX_COST:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return count


def measure_weight(schema: Any) -> int | None:
    """Most schema nodes that one node of a value is compared with.

    1 for a small schema without alternatives, whatever refers to what; else the size of the schema, with its
    references written out where there are alternatives; None where it has alternatives and refers to itself.
    """
    if not _has_combinator(schema):
        size = count_nodes(schema)
        return 1 if size <= SMALL_SCHEMA else size
    try:
        return _measure_node(schema, schema, {})
    except RecursionError:
        return None


def _has_combinator(schema: Any) -> bool:
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            if not _COMBINATORS.isdisjoint(node) and not _has_few_plain_options(node):
                return True
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return False


def _has_few_plain_options(node: Mapping[str, Any]) -> bool:
    """Whether its only alternatives are a few types, as in an optional parameter: no part stands inside."""
    options = node.get("anyOf")
    if not isinstance(options, list) or len(options) > 4 or len(_COMBINATORS & node.keys()) > 1:
        return False
    return all(map(allows_any_of_its_types, options))


def _measure_node(node: Any, root: Any, sizes: dict[str, int | None]) -> int | None:
    """The size of a node with its references written out; None where it contains itself.

    Args:
        sizes: by reference, the sizes that are known; a reference that is being measured has 0.
    """
    parts = list(node.values()) if isinstance(node, Mapping) else node if isinstance(node, list) else []
    total = 1
    for part in parts:
        size = _measure_node(part, root, sizes) if isinstance(part, (Mapping, list)) else 1
        if size is None:
            return None
        total += size
    target = node.get("$ref") if isinstance(node, Mapping) else None
    if isinstance(target, str):
        if target not in sizes:
            sizes[target] = 0
            sizes[target] = _measure_node(find_local_reference(root, target), root, sizes)
        if not sizes[target]:
            return None
        total += sizes[target] or 0
    return min(total, MAX_COST + 1)
