"""Random agents for the analysis of data flow: results, functions, sub-agents and tools, trusted or not."""

from __future__ import annotations

import random
from typing import Any

from toolchart.specs.charts import load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.effects import EffectDescriptor
from toolchart.states.proofs.dataflow.agents import FlowAgent, FlowHandler, FlowTool, Hop, UndeclaredSource

FORM = {
    "type": "object",
    "required": ["topic", "text"],
    "properties": {"topic": {"enum": ["a", "b"]}, "text": {"type": "string"}},
}
TEMPLATES = (
    "Hello",
    "{{user_message}}",
    "{{r0}}",
    "{{r0.topic}}",
    "{{r1.text}}",
    "{{r1}}",
    "{{r2.content}}",
    "{{r0.error}}",
    "{{r4}}",
    "{{r3}}",
    "{{rag_context}}",
    "{{topic}}",
)
CHILDREN = ("tool_loop", "action_selector")


def make_data_flow(seed: int) -> dict[str, Any]:
    """A chart of three to five effects in a row, some of which lead back."""
    rng = random.Random(seed)
    effects: dict[str, Any] = {}
    states: dict[str, Any] = {}
    count = rng.randint(3, 5)
    for index in range(count):
        following = f"s{index + 1}" if index + 1 < count else "finished"
        back = f"s{rng.randrange(index + 1)}"
        _add_step(rng, f"s{index}", f"e{index}", following, back, effects, states)
    states["finished"] = {"final": True, "enter": rng.choice(["answer", "answer_with_error", "report"])}
    effects["report"] = {"answer": rng.choice(TEMPLATES)}
    return {"name": "flow", "states": states, "effects": effects}


def _add_step(
    rng: random.Random, state: str, effect: str, following: str, back: str, effects: Any, states: Any
) -> None:
    """One state with its effect, and for a call in the conversation the states that run its tools."""
    kind = rng.choice(
        ["talk", "talk", "form", "text", "function", "function", "agent", "handoff", "ask", "await"]
    )
    event = "replied"
    match kind:
        case "talk":
            parameters: dict[str, Any] = {"history": rng.choice(["all", "none", 1])}
            if rng.random() < 0.7:
                parameters["prompt"] = rng.choice(TEMPLATES)
            effects[effect] = {"call_model": parameters}
        case "form":
            call = {"prompt": rng.choice(TEMPLATES), "as": "r0", "schema": FORM}
            effects[effect] = {"call_model": call}
        case "text":
            view = {"history": "all"} if rng.random() < 0.3 else {}
            effects[effect] = {"call_model": {"prompt": rng.choice(TEMPLATES), "as": "r1", **view}}
        case "function":
            call = {"function": f"work_{effect}", "arguments": {"value": rng.choice(TEMPLATES)}}
            call |= {"as": "r2"} if rng.random() < 0.5 else {}
            call |= rng.choice([{}, {"risk": "low"}, {"risk": "low"}, {"trust": "untrusted", "risk": "low"}])
            effects[effect], event = {"call_function": call}, "returned"
        case "agent" | "handoff":
            run = {"chart": rng.choice(CHILDREN), "message": rng.choice(TEMPLATES)}
            run |= {"history": "all"} if rng.random() < 0.3 else {}
            run |= {"as": "r4"} if kind == "agent" else {}
            effects[effect], event = {"run_agent": run}, "agent_finished"
        case "ask":
            effects[effect], event = {"ask_person": {"question": "{{r1}}?", "as": "r3"}}, "answered"
        case "await":
            effects[effect], event = {"await_user": "{{r1}}"}, "user_said"
    rows = [{"event": event, "target": back, "cond": "replies < 4"}] if rng.random() < 0.3 else []
    if kind == "talk":
        rows.insert(0, {"event": "replied", "target": f"{state}_review", "cond": "tool_calls > 0"})
        _add_tools(state, following, states)
    rows.append({"event": event, "target": following})
    failures = {"talk": "failed", "form": "failed", "text": "failed", "function": "failed"}.get(kind)
    if kind in ("agent", "handoff"):
        failures = "agent_failed"
    if failures:
        rows.append({"event": failures, "target": rng.choice([following, "finished"])})
    states[state] = {"enter": effect, "transitions": rows}


def _add_tools(state: str, following: str, states: Any) -> None:
    run = f"{state}_run"
    states[f"{state}_review"] = {
        "enter": "review_calls",
        "transitions": [
            {"event": "reviewed decided", "target": run, "cond": "undecided_calls == 0"},
            {"event": "reviewed decided"},
        ],
    }
    states[run] = {
        "enter": "run_tools",
        "transitions": [
            {"event": "tool_finished", "cond": "pending_calls > 0"},
            {"event": "tool_finished", "target": following},
        ],
    }


def make_flow_agent(chart: Chart, seed: int) -> FlowAgent:
    """An agent with this chart: up to three tools: one untrusted, one of high risk, and one of which
    nothing says who writes what it returns."""
    rng = random.Random(seed)
    tools = (
        FlowTool(name="read", place="", is_untrusted=True, is_high_risk=False),
        FlowTool(name="act", place="", is_untrusted=False, is_high_risk=True, asks=rng.random() < 0.2),
        FlowTool(
            name="add",
            place="",
            is_untrusted=False,
            is_high_risk=False,
            undeclared_sources=(UndeclaredSource(name="the tool 'add'", place=""),),
        ),
    )
    handler = FlowHandler(
        tools=tuple(tool for tool in tools if rng.random() < 0.8),
        prompt_variables=("user_message",) if rng.random() < 0.1 else (),
        documents=(Hop("documents", ""),) if rng.random() < 0.4 else None,
        finds_topic=rng.random() < 0.4,
    )
    user = Hop("the user's message", "") if rng.random() < 0.4 else None

    def build_agent(chart: Chart) -> FlowAgent:
        return FlowAgent(
            chart=chart,
            handlers=(handler,),
            find_place=lambda effect, state: "",
            find_child=find_child,
            user=user,
        )

    def find_child(row: EffectDescriptor) -> FlowAgent:
        return build_agent(load_chart(row.parameters.chart))

    return build_agent(chart)


def make_random_agent(seed: int) -> FlowAgent:
    """A random agent.

    Raises:
        SpecError: its chart breaks a rule.
    """
    return make_flow_agent(make_chart(make_data_flow(seed)), seed)
