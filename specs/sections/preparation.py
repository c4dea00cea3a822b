"""Makes the agent that finds the context of a turn: a small chart of declared effects, each in the log.

    finding_topic -> searching -> finding_intent -> finished

The topic is asked for where the conversation has earlier messages, and in the first turn too where the agent
has a section `topic`; the intent only where the search found no match. The first search is for the user's
message, later ones for the topic. A failure of one of them goes on with the next: the turn is not lost.
"""

from __future__ import annotations

import re
from typing import Any

from toolchart.specs.models import AgentSpec, Handler
from toolchart.specs.sections.context import describe_place
from toolchart.specs.turn_plan import require_handlers

SEARCH_FUNCTION = "search_collections"
"""The function that the chart calls for the search."""

_TOPIC_PROMPT = """\
Earlier messages of a conversation:
{{recent_messages}}

The newest message of the user:
{{user_message}}

Does the newest message go on with the topic of the conversation, or begin a new one? Answer with JSON:
{"topic_status": "continuation" or "new_topic", "topic_summary": the topic in a few words}"""

_PLACEHOLDERS = {
    "currentTopic": "current_topic",
    "conversationContext": "recent_messages",
    "userMessage": "user_message",
}
"""The variables of a topic prompt as existing files spell them, and as the chart does."""

DEFAULT_TOPIC_PROMPT = _TOPIC_PROMPT.replace("recent_messages", "conversationContext").replace(
    "user_message", "userMessage"
)
"""The question for the topic where the spec has none, with the placeholders of existing files."""


def translate_topic_prompt(prompt: str) -> str:
    """A topic prompt of an existing file with the variables of the chart.

    >>> translate_topic_prompt("{{ currentTopic }}: {{userMessage}}")
    '{{current_topic}}: {{user_message}}'
    """
    return re.sub(
        r"\{\{\s*(\w+)\s*\}\}", lambda match: "{{" + _PLACEHOLDERS.get(match[1], match[1]) + "}}", prompt
    )


INTENT_PROMPT = """\
Topic: {{topic.topic_summary}}
Message: {{user_message}}

Which of these is the message about?
{{search.options}}

Answer with one of these names alone."""

_TOPIC_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["topic_status", "topic_summary"],
    "properties": {
        "topic_status": {"enum": ["continuation", "new_topic"]},
        "topic_summary": {"type": "string"},
    },
}


def build_preparation_spec(spec: AgentSpec, *, asks_topic: bool, is_first: bool = False) -> AgentSpec:
    """The agent that finds the context of one turn, on the hosts of the spec.

    Args:
        asks_topic: whether a model finds the topic; else it is the user's message.
        is_first: whether the conversation has no earlier messages.

    Raises:
        SpecError: the agent has no handlers.
    """
    require_handlers(spec)
    fallback = spec.responses[-1]
    place = {"llm": fallback.llm, **({"model": fallback.model} if fallback.model else {})}
    intent_place = describe_place(spec.intent.provider if spec.intent else None, place)
    topic_place = describe_place(spec.topic.provider if spec.topic else None, intent_place)
    chart = {"name": "turn_context", "states": _build_states(asks_topic, bool(spec.intent))}
    topic = "{{topic.topic_summary}}" if asks_topic else "{{user_message}}"
    arguments = {
        "topic": topic if asks_topic and not is_first else "",
        "message": "{{user_message}}",
        "collections": "{{collections}}",
    }
    effects: dict[str, Any] = {
        "search_services": {
            "call_function": {"function": SEARCH_FUNCTION, "as": "search", "arguments": arguments}
        },
        "report": {"answer": "{{search.rag_results}}"},
    }
    if asks_topic:
        written = spec.topic.prompt if spec.topic else None
        prompt = translate_topic_prompt(written) if written else _TOPIC_PROMPT
        call = _build_call(topic_place, "topic", prompt, 200)
        effects["find_topic"] = {"call_model": {**call, "schema": _TOPIC_SCHEMA}}
    if spec.intent:
        prompt = INTENT_PROMPT.replace("{{topic.topic_summary}}", topic)
        effects["find_intent"] = {"call_model": _build_call(intent_place, "intent", prompt, 50)}
    return _replace_parts(spec, chart, effects, Handler.model_validate(place))


def _build_call(place: dict[str, Any], result: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    options = {"max_tokens": max_tokens, "temperature": 0.1}
    return {**place, "as": result, "prompt": prompt, "options": options}


def _build_states(asks_topic: bool, has_intent: bool) -> dict[str, Any]:
    def go(event: str, target: str, **keys: str) -> dict[str, str]:
        return {"event": event, "target": target, **keys}

    cancelled = go("cancelled", "error")
    search_rows = [
        go("returned", "finished", cond="search.rag_results == 'match'"),
        go("returned", "finding_intent" if has_intent else "finished"),
        go("failed", "finding_intent" if has_intent else "finished"),
        cancelled,
    ]
    topic_rows = [go("replied", "searching"), go("failed", "searching"), cancelled]
    intent_rows = [go("replied", "finished"), go("failed", "finished"), cancelled]
    states: dict[str, Any] = {}
    if asks_topic:
        states["finding_topic"] = {"initial": True, "enter": "find_topic", "transitions": topic_rows}
    states["searching"] = {"enter": "search_services", "transitions": search_rows}
    if has_intent:
        states["finding_intent"] = {"enter": "find_intent", "transitions": intent_rows}
    states["finished"] = {"final": True, "enter": "report"}
    states["error"] = {"final": True, "enter": "answer_with_error"}
    states[next(iter(states))]["initial"] = True
    return states


def _replace_parts(
    spec: AgentSpec, chart: dict[str, Any], effects: dict[str, Any], handler: Handler
) -> AgentSpec:
    """The spec with this chart and these effects, without the parts that only its turns need."""
    prepared = spec.model_copy(
        update={
            "chart": chart,
            "effects": effects,
            "responses": [handler],
            **dict.fromkeys(("tools", "intent", "topic", "approval", "output")),
            "rag_services": {},
        }
    )
    kept_keys = ("name", "llms", "prices", "redact")
    document = {key: value for key, value in spec.to_public_dict().items() if key in kept_keys}
    responses = [handler.model_dump(exclude_none=True, exclude_defaults=True)]
    prepared._chart_lines = {}
    prepared._public_document = {**document, "chart": chart, "effects": effects, "responses": responses}
    return prepared
