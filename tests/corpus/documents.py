"""Transcripts and configurations of the corpus, and the files of its questions."""

from __future__ import annotations

import json
from typing import Any

import questions
from station import ANSWER, ARGUMENTS, GREETING, NAMES, QUESTION, RESULTS, SYSTEM, WELCOME, JsonObject

# -- transcripts ---------------------------------------------------------------------------------


def _make_system_message() -> JsonObject:
    return {"role": "system", "content": SYSTEM}


def _make_user_message(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def _make_answer(text: str, **more: Any) -> JsonObject:
    return {"role": "assistant", "content": text, **more}


def _make_call(call_id: str, name: str, arguments: str) -> JsonObject:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _make_calls(*calls: JsonObject, content: str | None = None, **more: Any) -> JsonObject:
    return {"role": "assistant", "content": content, "tool_calls": [*calls], **more}


def _make_result(call_id: str, content: str, **more: Any) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def _build_good_transcripts() -> list[list[JsonObject]]:
    tide = _make_call("t1", "tide_height", json.dumps(ARGUMENTS[0]))
    lamp = _make_call("t2", "lamp_state", '{ "lamp" : "north" }')
    results = [json.dumps(result, ensure_ascii=False) for result in RESULTS]
    again = _make_call("t1", "tide_height", '{"hour": 10, "harbour": "Marlow Point"}')
    return [
        [_make_user_message(GREETING), _make_answer(WELCOME)],
        [
            _make_system_message(),
            _make_user_message(GREETING),
            _make_answer(WELCOME),
            _make_user_message("And at night?"),
            _make_answer("Only gulls."),
        ],
        [
            _make_system_message(),
            _make_user_message(QUESTION),
            _make_calls(tide),
            _make_result("t1", results[0], name=NAMES[0]),
            _make_calls(lamp, content="The tide is known; now the lamp."),
            _make_result("t2", results[1], name=NAMES[1]),
            _make_answer(ANSWER),
        ],
        [
            _make_system_message(),
            _make_user_message(QUESTION),
            _make_calls(tide, lamp),
            _make_result("t1", results[0]),
            _make_result("t2", results[1]),
            _make_answer(ANSWER),
        ],
        [  # keys of the host, and an id that is used twice
            _make_user_message(QUESTION),
            _make_calls(tide, refusal=None, annotations=[]),
            _make_result("t1", results[0], name=NAMES[0]),
            _make_answer("3.4 m.", refusal=None, annotations=[]),
            _make_user_message("And at ten?"),
            _make_calls(again, refusal=None, annotations=[]),
            _make_result("t1", "Error: the gauge is wet", name=NAMES[0]),
            _make_answer("The gauge does not answer.", refusal=None, annotations=[]),
        ],
        [
            _make_system_message(),
            _make_user_message("Look at the lamp, please."),
            _make_calls(lamp),
            _make_result("t2", ""),
        ],
        [_make_user_message("Look at both."), _make_calls(tide, lamp)],
        [_make_user_message(""), _make_answer("You sent an empty page.")],
    ]


def _build_refused_transcripts() -> list[JsonObject]:
    tide = _make_call("r1", "tide_height", "{'hour': 9}")
    lost_id = {"type": "function", "function": {"name": "tide_height", "arguments": "{}"}}
    lamp = _make_call("r2", "lamp_state", '{"lamp": "south"}')
    return [
        {"problem": "not JSON", "traj": [_make_user_message(QUESTION), _make_calls(tide)]},
        {"problem": "needs `id`", "traj": [_make_user_message(QUESTION), _make_calls(lost_id)]},
        {
            "problem": "which does not exist",
            "traj": [_make_user_message(QUESTION), _make_calls(lamp), _make_result("r3", "lit")],
        },
        {"problem": "at least one", "traj": []},
    ]


# -- configurations ------------------------------------------------------------------------------

HOSTS: JsonObject = {
    "quay": {"provider": "ollama", "base_url": "http://localhost:11434"},
    "cloud": {"provider": "openai", "base_url": "https://api.openai.com/v1", "api_key": "${OPENAI_API_KEY}"},
}

DESK: JsonObject = {
    "llms": HOSTS,
    "rag_services": {
        "almanac": {
            "provider": "chromadb-wrapper",
            "url": "http://localhost:5101",
            "match_threshold": 0.3,
            "embedding": {"llm": "cloud", "model": "harbour-embed"},
        }
    },
    "embedding": {"llm": "quay", "model": "harbour-embed-small"},
    "intent": {
        "provider": {"llm": "quay", "model": "harbour:1b"},
        "detection": {"berths": "They ask for a berth, its price or its supply."},
    },
    "responses": [
        {
            "match": {"rag_results": "any", "service": "almanac", "collection_contains": "tides"},
            "prompt": "You read the almanac of Marlow Point aloud.\n\nPages:\n{{rag_context}}",
            "llm": "quay",
            "model": "harbour:4b",
            "max_tokens": 300,
        },
        {
            "match": {"intent": "berths", "rag_results": "partial"},
            "prompt": "You assign berths. What is known: {{rag_context}}",
            "llm": "cloud",
            "model": "harbour-4",
            "max_tokens": 400,
        },
        {
            "prompt": "You are the keeper. Say politely that this is not about the harbour.",
            "llm": "quay",
            "model": "harbour:1b",
            "max_tokens": 80,
        },
    ],
}

TOOL_DESK: JsonObject = {
    "comment": "A desk that may calculate and tell the time.",
    "llms": HOSTS,
    "tools": {
        "enabled": True,
        "max_iterations": 4,
        "registry": [{"name": "calculator"}, {"name": "get_current_datetime"}],
    },
    "responses": [
        {
            "comment": "Both tools are allowed.",
            "prompt": SYSTEM,
            "llm": "cloud",
            "model": "harbour-4",
            "max_tokens": 500,
            "tools": {
                "enabled": True,
                "allowed_tools": ["calculator", "get_current_datetime"],
                "max_iterations": 2,
            },
        }
    ],
}


def build_documents() -> dict[str, str]:
    """The text of every file that is not a cassette."""
    good = [
        {"task_id": number, "traj": messages} for number, messages in enumerate(_build_good_transcripts())
    ]
    values = {
        "transcripts/own__accepted.json": good,
        "transcripts/own__refused.json": _build_refused_transcripts(),
        "configs/own__desk.json": DESK,
        "configs/own__tools.json": TOOL_DESK,
    }
    texts = {path: json.dumps(value, ensure_ascii=False, indent=1) + "\n" for path, value in values.items()}
    for path, rows in questions.build_question_files().items():
        texts[path] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return texts
