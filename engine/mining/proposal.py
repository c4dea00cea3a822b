"""Proposes an agent spec from traces: hosts, prompts, tools, limits, and the rules that hold.

The spec is data first (`Proposal.spec`), and a text with comments that say where each thing comes from. Both
say the same. Tools have no code yet: each is a mock, so that the spec loads, is checked and is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolchart.engine.mining.rules import TestedRule
from toolchart.engine.mining.schemas import infer_parameters
from toolchart.engine.mining.spec_text import format_comments, format_entry, format_items
from toolchart.engine.mining.traces import Trace, TracedCall
from toolchart.specs.chat_messages import IMPORTED
from toolchart.states.calls import build_call_key
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.tools.schemas.checks import check_schema

CHART = "full"

NO_CODE = "This tool has no code yet: give its entry an implementation."
"""What the mock of a mined tool returns."""

FEW = 10
"""Below so many conversations the text says that they are few."""

_MARGIN = 1.5
"""Limits allow half as much again as was seen."""

_MOST_PROMPTS = 4
_MOST_LISTED = 5
_HOST_KEYS = ("provider", "api", "base_url", "model", "api_key", "tool_format")


class SeenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a turn had."""

    iterations: int = 0
    tool_calls: int = 0
    calls_per_reply: int = 0
    repeats: int = 0
    """Replies of a turn that asked for the same call."""
    failures: int = 0
    """Failed model calls in a row."""
    tokens: int = 0


class ProposedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the spec, and where it comes from."""

    entry: dict[str, Any]
    comments: tuple[str, ...]
    calls: int
    """Calls that were seen."""
    is_inferred: bool
    """Whether its schema was inferred from calls, because the log has none."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed agent."""

    spec: dict[str, Any]
    text: str
    tools: tuple[ProposedTool, ...]
    limits: SeenLimits
    prompts: int
    """Different system prompts that were seen."""


def propose_agent(
    traces: Sequence[Trace], rules: Sequence[TestedRule], *, searched: int, held_out: int
) -> Proposal:
    """The agent that these conversations suggest.

    Args:
        traces: in a fixed order; at least one with a turn.
        searched, held_out: conversations of the halves, for the text.
    """
    tools = _propose_tools(traces, rules)
    limits = measure_limits(traces)
    hosts, host_comments = _propose_hosts(traces)
    handlers, handler_comments, prompts = _propose_handlers(traces, hosts, bool(tools))
    limit_section = _propose_limits(limits)
    sections: list[tuple[str, Any, list[str]]] = [
        ("name", "mined", []),
        ("chart", CHART, ["Retries, approvals, budgets: `toolchart draw full` shows it."]),
        ("llms", hosts, host_comments),
        ("limits", limit_section, _describe_limits(limits)),
        ("responses", handlers, handler_comments),
    ]
    spec = {name: value for name, value, _ in sections}
    lines = _describe_origin(traces, searched, held_out)
    for name, value, comments in sections:
        lines += ["", *format_comments(comments)] if comments else [""] if name == "name" else []
        lines += (
            [f"{name}:", *format_items(value, 2)] if name == "responses" else format_entry(name, value, 0)
        )
    if tools:
        spec["tools"] = {"registry": [tool.entry for tool in tools]}
        lines += ["", "tools:", "  registry:"]
        for tool in tools:
            lines += [*format_comments(tool.comments, 4), *format_items([tool.entry], 4)]
    lines += _describe_rules_left_out(rules)
    return Proposal(spec=spec, text="\n".join(lines) + "\n", tools=tools, limits=limits, prompts=prompts)


def _describe_origin(traces: Sequence[Trace], searched: int, held_out: int) -> list[str]:
    count = len(traces)
    texts = [f"An agent mined from {_count(count, 'conversation')} by `toolchart mine`. Read it before use."]
    if held_out:
        texts.append(
            f"Rules were looked for in {searched} of them. The other {held_out} tested the rules. A rule "
            "says in how many conversations of each half it holds."
        )
    if count < FEW:
        texts.append(
            f"{_count(count, 'conversation')}: that is few. What was seen here may be chance, and what was "
            "not seen may be normal."
        )
    return format_comments(texts)


# -- hosts and prompts ---------------------------------------------------------------------------


def _propose_hosts(traces: Sequence[Trace]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The `llms` entries that turns asked, the most used first: under the names of the log where they fit."""
    used: Counter[tuple[str, str, str]] = Counter()
    entries: dict[tuple[str, str, str], dict[str, Any]] = {}
    for trace in traces:
        for turn in trace.turns:
            settings = turn.start.settings
            recorded = trace.hosts.get(settings.service, {})
            key = (settings.provider, settings.model, str(recorded.get("base_url") or ""))
            used[key] += 1
            entries.setdefault(key, recorded)
    hosts: dict[str, dict[str, Any]] = {}
    comments = []
    for key, turns in sorted(used.items(), key=lambda item: (-item[1], item[0])):
        provider, model, _ = key
        name = "model" if not hosts else f"model_{len(hosts) + 1}"
        kept = {name: entries[key][name] for name in _HOST_KEYS if _is_plain_setting(entries[key], name)}
        if provider == "scripted":
            hosts[name] = {"provider": "scripted", "model": model, "replies": ["This host is a script."]}
            what = "imported lists do not say which host answered" if model == IMPORTED else "a script"
            comments.append(f"{name}: {_count(turns, 'turn')}; {what}. Put your host in its place.")
        else:
            hosts[name] = {**kept, "provider": provider, "model": model}
            comments.append(f"{name}: {_count(turns, 'turn')}.")
    return hosts, comments


def _is_plain_setting(entry: Mapping[str, Any], name: str) -> bool:
    value = entry.get(name)
    if name == "api_key":  # only a reference to the environment: a log has no keys
        return isinstance(value, str) and value.startswith("${") and value.endswith("}")
    return isinstance(value, str) and bool(value)


def _propose_handlers(
    traces: Sequence[Trace], hosts: Mapping[str, Any], has_tools: bool
) -> tuple[list[dict[str, Any]], list[str], int]:
    """The handlers: one for each common prompt, of which the last is that of most conversations."""
    users: Counter[str] = Counter()
    for trace in traces:
        users.update({turn.start.system or "" for turn in trace.turns})
    ranked = sorted(users.items(), key=lambda item: (-item[1], item[0]))
    common = ranked[:1] + [(prompt, count) for prompt, count in ranked[1:_MOST_PROMPTS] if count > 1]
    base: dict[str, Any] = {"llm": next(iter(hosts))}
    tools = {"tools": {"enabled": True}} if has_tools else {}
    handlers = []
    comments = []
    for number, (prompt, count) in enumerate(common, 1):
        handler = {**base, **({"prompt": prompt} if prompt else {}), **tools}
        what = f"{_count(count, 'conversation')} of {len(traces)}"
        if number == 1:
            handlers.append({"name": "main", **handler})
            comments.append(f"main: {'the system prompt' if prompt else 'no system prompt'} of {what}.")
        else:
            name = f"prompt_{number}"
            handlers.insert(-1, {"name": name, "match": {"handler": name}, **handler})
            comments.append(
                f"{name}: another {'prompt' if prompt else 'handler, without a prompt'}, of {what}. "
                f"Say in `match` when it answers, or choose it by `--handler {name}`."
            )
    others = len(ranked) - len(common)
    if others:
        seldom = sum(count for _, count in ranked) - sum(count for _, count in common)
        comments.append(
            f"{_count(others, 'further prompt')} left out, of {_count(seldom, 'conversation')}. Where "
            "prompts differ by a name or a date only, write a {{variable}} there."
        )
    if any("{{" in prompt for prompt, _ in common):
        comments.append("A prompt has `{{`: what stands between the braces is filled in as a variable.")
    return handlers, comments, len(ranked)


# -- limits --------------------------------------------------------------------------------------


def measure_limits(traces: Sequence[Trace]) -> SeenLimits:
    """The most that a turn of these conversations had."""
    iterations = tool_calls = per_reply = repeats = failures = tokens = 0
    for trace in traces:
        for turn in trace.turns:
            iterations = max(iterations, len(turn.replies))
            tool_calls = max(tool_calls, sum(map(len, turn.replies)))
            per_reply = max([per_reply, *map(len, turn.replies)])
            asked = Counter[str]()
            for reply in turn.replies:
                asked.update({_build_key(call) for call in reply})
            repeats = max([repeats, *asked.values()])
            failures = max(failures, turn.failures)
            usage = turn.usage
            used = usage.total if usage.total is not None else (usage.input or 0) + (usage.output or 0)
            tokens = max(tokens, used)
    return SeenLimits(
        iterations=iterations,
        tool_calls=tool_calls,
        calls_per_reply=per_reply,
        repeats=repeats,
        failures=failures,
        tokens=tokens,
    )


def _build_key(call: TracedCall) -> str:
    return build_call_key(ToolCall(id=call.id, name=call.name, arguments=call.arguments or {}))


def _add_margin(seen: int) -> int:
    return max(seen + 1, round(seen * _MARGIN))


def _propose_limits(seen: SeenLimits) -> dict[str, int]:
    limits = {"max_iterations": _add_margin(max(seen.iterations, 1)), "max_repeats": max(seen.repeats, 2)}
    if seen.tool_calls:
        limits |= {
            "max_tool_calls": _add_margin(seen.tool_calls),
            "max_calls_per_reply": _add_margin(seen.calls_per_reply),
        }
    if seen.failures >= 3:
        limits["max_attempts"] = seen.failures + 1
    if seen.tokens:
        limits["max_tokens"] = _add_margin(seen.tokens)
    return limits


def _describe_limits(seen: SeenLimits) -> list[str]:
    tokens = f", {seen.tokens} tokens" if seen.tokens else ""
    return [
        f"The most that a turn had: {_count(seen.iterations, 'iteration')}, "
        f"{_count(seen.tool_calls, 'tool call')}, {_count(seen.calls_per_reply, 'call')} in a reply, the "
        f"same call in {_count(seen.repeats, 'reply', 'replies')}{tokens}. The limits allow half as much "
        "again; `max_repeats` is what was seen, or its default."
    ]


# -- tools ---------------------------------------------------------------------------------------


def _propose_tools(traces: Sequence[Trace], rules: Sequence[TestedRule]) -> tuple[ProposedTool, ...]:
    definitions: dict[str, Counter[bytes]] = {}
    calls: dict[str, list[TracedCall]] = {}
    users: Counter[str] = Counter()
    for trace in traces:
        for name, definition in trace.tools.items():
            definitions.setdefault(name, Counter())[msgspec.json.encode(definition, order="sorted")] += 1
        names = set()
        for call in trace.calls:
            calls.setdefault(call.name, []).append(call)
            names.add(call.name)
        users.update(names)
    known = [
        name
        for name in sorted({*definitions, *calls})
        if name and (name in definitions or any(call.outcome == "succeeded" for call in calls[name]))
    ]
    return tuple(
        _propose_tool(
            name,
            definitions.get(name, Counter()),
            calls.get(name, []),
            f"{users[name]} of {_count(len(traces), 'conversation')}",
            [each for each in rules if each.rule.tool == name],
        )
        for name in known
    )


def _propose_tool(
    name: str,
    definitions: Counter[bytes],
    calls: Sequence[TracedCall],
    users: str,
    rules: Sequence[TestedRule],
) -> ProposedTool:
    ranked = sorted(definitions.items(), key=lambda item: (-item[1], item[0]))
    definition = msgspec.json.decode(ranked[0][0], type=ToolDefinition) if ranked else None
    comments = [_describe_calls(calls, users)]
    if len(ranked) > 1:
        comments.append(f"{len(ranked)} definitions were seen; this is the one of most conversations.")
    parameters, is_inferred = _choose_parameters(name, definition, calls, comments)
    entry: dict[str, Any] = {
        "name": name,
        "description": definition.description if definition is not None else f"{name} (seen in calls)",
        "parameters": parameters,
    }
    asked = sum(call.ruling == "needs_approval" for call in calls)
    if asked and asked == len(calls):
        entry["requires_approval"] = True
        comments.append("A person decided about each of its calls.")
    elif asked:
        comments.append(f"A person decided about {asked} of its calls: write a rule under `approval`.")
    _enforce_rules(entry, rules, comments)
    entry["implementation"] = {"type": "mock", "mock_response": NO_CODE}
    return ProposedTool(entry=entry, comments=tuple(comments), calls=len(calls), is_inferred=is_inferred)


def _describe_calls(calls: Sequence[TracedCall], users: str) -> str:
    if not calls:
        return "Offered, and never called. A mock: put its code in `implementation`."
    outcomes = Counter(call.outcome for call in calls)
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return (
        f"{_count(len(calls), 'call')} in {users}: {words}. A mock: put its code in `implementation` "
        "({type: python, handler: module:function}, {type: http, ...}), and say its `risk` and `trust`."
    )


def _choose_parameters(
    name: str, definition: ToolDefinition | None, calls: Sequence[TracedCall], comments: list[str]
) -> tuple[dict[str, Any], bool]:
    """The schema that the log has, else one inferred from the calls; and whether it was inferred."""
    if definition is not None and definition.parameters.get("properties"):
        try:
            check_schema(definition.parameters, name)
            return dict(definition.parameters), False
        except SpecError as problem:
            comments.append(f"The schema of the log cannot be used ({problem.message}).")
    seen = [call.arguments for call in calls if call.arguments is not None]
    if not any(seen) and definition is not None:
        return dict(definition.parameters), False
    comments.append(f"The schema is inferred from {_count(len(seen), 'call')}: nothing else says it.")
    return infer_parameters(seen), True


def _enforce_rules(entry: dict[str, Any], rules: Sequence[TestedRule], comments: list[str]) -> None:
    """Add the rules that are kept to a tool, and say how well each holds."""
    for each in rules:
        if each.status != "kept":
            continue
        rule = each.rule
        comments.append(
            f"Rule: {rule.describe()}: in {each.support} of {each.support} conversations, and in "
            f"{each.held_out_support} of {each.held_out_support} held out."
        )
        if rule.kind == "precedence":
            entry.setdefault("needs", []).append(rule.other)
            entry["needs_in"] = "conversation"
        elif rule.kind == "absence":
            entry.setdefault("not_after", []).append(rule.other)
        else:
            entry["max_calls"] = rule.count


def _describe_rules_left_out(rules: Sequence[TestedRule]) -> list[str]:
    """Comments about the rules that the first half suggests and the held-out half does not confirm."""
    contradicted = [each for each in rules if each.status == "contradicted"]
    untested = [each for each in rules if each.status == "untested"]
    lines: list[str] = []
    if contradicted:
        lines += ["", *format_comments(["Not enforced, because held-out conversations break them:"])]
        lines += format_comments(_describe_broken(each) for each in contradicted)
    if untested:
        lines += ["", *format_comments(["Not enforced, because too few held-out conversations test them:"])]
        lines += format_comments(
            f"- {each.rule.describe()}: in {each.support}, and in {each.held_out_support} held out"
            for each in untested
        )
    return lines


def _describe_broken(each: TestedRule) -> str:
    names = list(each.counterexamples)
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    tested = each.held_out_support + len(names)
    return (
        f"- {each.rule.describe()}: in {each.support} of {each.support}, and in {each.held_out_support} of "
        f"{tested} held out; not in {', '.join(names[:_MOST_LISTED])}{more}"
    )


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
