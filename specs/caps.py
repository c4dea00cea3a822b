"""A host's cap on tools: which ones a model is offered where it may not be offered all."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from toolchart.specs.models import LLMConfig, ToolsConfig
from toolchart.states.naming import nearest


def cap_tools(
    names: Sequence[str], most: int | None, essential: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools that a host with a cap is offered, the essential ones first, and the others.

    Both in the order of `names`. Without a cap all are offered.

    Args:
        essential: names or globs.

    >>> cap_tools(["a", "b", "c"], 2, ["c"])
    (('a', 'c'), ('b',))
    """
    if most is None or len(names) <= most:
        return tuple(names), ()
    first = [name for name in names if _named(name, essential)]
    chosen = {*[*first, *(name for name in names if name not in first)][:most]}
    kept = tuple(name for name in names if name in chosen)
    return kept, tuple(name for name in names if name not in chosen)


def capped(
    names: Sequence[str], host: LLMConfig, section: ToolsConfig | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools that this host is offered under its own cap or the tools section's, and warnings.

    The smaller cap holds; what is essential to either is essential.
    """
    caps = [host.max_tools, section.max_tools if section else None]
    most = min((cap for cap in caps if cap is not None), default=None)
    essential = [*host.essential_tools, *(section.essential_tools if section else ())]
    kept, left = cap_tools(names, most, essential)
    if not left:
        return kept, ()
    warnings = [f"{most} tools at most (max_tools): {', '.join(left)} not offered"]
    warnings += [
        f"essential_tools names {one!r}, which is not among the tools ({nearest(one, names)})"
        for one in essential
        if not any(_named(name, [one]) for name in names)
    ]
    return kept, tuple(warnings)


def _named(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
