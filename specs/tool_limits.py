"""A host's cap on tools: which ones a model is offered where it may not be offered all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from toolchart.specs.models import LLMConfig, ToolsConfig
from toolchart.states.suggestions import nearest


def cap_tools(
    tools: Mapping[str, str], most: int | None, essential: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools that a host with a cap is offered, the essential ones first, and the others.

    Both in the order of `tools`. Without a cap all are offered.

    Args:
        tools: name of each tool, and the spec's own name of it.
        essential: names of either kind, or globs.

    >>> cap_tools({"a": "a", "b": "b", "c_d": "c.d"}, 2, ["c.d"])
    (('a', 'c_d'), ('b',))
    """
    if most is None or len(tools) <= most:
        return tuple(tools), ()
    first = [name for name, own in tools.items() if answers_to(name, own, essential)]
    chosen = {*[*first, *(name for name in tools if name not in first)][:most]}
    kept = tuple(name for name in tools if name in chosen)
    return kept, tuple(name for name in tools if name not in chosen)


def capped(
    tools: Mapping[str, str], host: LLMConfig, section: ToolsConfig | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools that this host is offered under its own cap or the tools section's, and warnings.

    The smaller cap holds; what is essential to either is essential.
    """
    caps = [host.max_tools, section.max_tools if section else None]
    most = min((cap for cap in caps if cap is not None), default=None)
    essential = [*host.essential_tools, *(section.essential_tools if section else ())]
    kept, left = cap_tools(tools, most, essential)
    if not left:
        return kept, ()
    warnings = [f"{most} tools at most (max_tools): {', '.join(left)} not offered"]
    warnings += [
        f"essential_tools names {one!r}, which is not among the tools ({nearest(one, tools)})"
        for one in essential
        if not any(answers_to(name, own, [one]) for name, own in tools.items())
    ]
    return kept, tuple(warnings)


def answers_to(name: str, own: str, globs: Sequence[str]) -> bool:
    """Whether a list names a tool, by the name that models know or by the spec's own."""
    return any(fnmatchcase(one, glob) for glob in globs for one in {name, own})
