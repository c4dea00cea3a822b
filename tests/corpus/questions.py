"""Function-calling questions of the corpus, in the shape of the Berkeley leaderboard (BFCL)."""

from __future__ import annotations

from station import JsonObject


def _make_user_message(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def _make_definition(name: str, text: str, required: list[str], **properties: JsonObject) -> JsonObject:
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": text, "parameters": parameters}


FERRY = _make_definition(
    "ferry.find",
    "Find a ferry between two quays.",
    ["start", "end"],
    start={"type": "string", "description": "Quay of departure."},
    end={"type": "string", "description": "Quay of arrival."},
    seats={"type": "integer", "description": "Seats to keep.", "default": 1},
)
PAINT = _make_definition(
    "mix_paint",
    "Mix paint for a hull.",
    ["litres", "shade"],
    litres={"type": "float", "description": "Amount."},
    shade={"type": "tuple", "items": {"type": "integer"}, "description": "Red, green, blue."},
    label={"type": "any", "description": "Text or number on the tin."},
)
BERTH = _make_definition(
    "berth.reserve",
    "Reserve a berth for a boat.",
    ["boat", "supply"],
    boat={"type": "string"},
    nights={"type": "integer"},
    supply={
        "type": "dict",
        "properties": {
            "power": {"type": "boolean"},
            "fuel": {"type": "string", "enum": ["diesel", "petrol", "none"]},
        },
        "required": ["power"],
    },
    flags={"type": "array", "items": {"type": "string"}, "enum": ["yellow", "blue"]},
)
ROPE = _make_definition(
    "rope_length",
    "Length of rope that an anchor needs.",
    ["depth"],
    depth={"type": "double", "description": "Depth in metres."},
    unit={"type": "string", "enum": ["m", "fathom"], "default": "m"},
)

SINGLE_TURN: dict[str, list[tuple[str, list[JsonObject], list[JsonObject] | None]]] = {
    "simple": [
        (
            "Which ferry goes from Marlow to Skerry Rock?",
            [FERRY],
            [{"ferry.find": {"start": ["Marlow"], "end": ["Skerry Rock", "Skerry"], "seats": [1, ""]}}],
        ),
        (
            "Mix two and a half litres in the shade 10, 60, 90 and write 7 on the tin.",
            [PAINT],
            [{"mix_paint": {"litres": [2.5], "shade": [[10, 60, 90]], "label": [7, "7"]}}],
        ),
        (
            "The Petrel stays three nights, with power and diesel, under a yellow flag.",
            [BERTH],
            [
                {
                    "berth.reserve": {
                        "boat": ["Petrel", "The Petrel"],
                        "nights": [3],
                        "supply": [{"power": [True], "fuel": ["diesel"]}],
                        "flags": [["yellow"], ""],
                    }
                }
            ],
        ),
    ],
    "multiple": [
        (
            "How much rope for an anchor in 8 metres of water?",
            [FERRY, ROPE, PAINT],
            [{"rope_length": {"depth": [8.0], "unit": ["m", ""]}}],
        ),
        (
            "Two seats from Skerry Rock back to Marlow.",
            [ROPE, FERRY],
            [{"ferry.find": {"start": ["Skerry Rock"], "end": ["Marlow"], "seats": [2]}}],
        ),
    ],
    "parallel": [
        (
            "Rope for 5 metres, and rope for 12 fathoms.",
            [ROPE],
            [
                {"rope_length": {"depth": [5], "unit": ["m", ""]}},
                {"rope_length": {"depth": [12], "unit": ["fathom"]}},
            ],
        ),
        (
            "Ferries from Marlow to Skerry Rock and to Gull Isle.",
            [FERRY],
            [
                {"ferry.find": {"start": ["Marlow"], "end": ["Skerry Rock"], "seats": [1, ""]}},
                {"ferry.find": {"start": ["Marlow"], "end": ["Gull Isle"], "seats": [1, ""]}},
            ],
        ),
    ],
    "parallel_multiple": [
        (
            "Rope for 6 metres, and a berth with power for the Tern.",
            [ROPE, BERTH],
            [
                {"rope_length": {"depth": [6], "unit": ["m", ""]}},
                {
                    "berth.reserve": {
                        "boat": ["Tern"],
                        "nights": [1, ""],
                        "supply": [{"power": [True], "fuel": ["none", ""]}],
                        "flags": [[], ""],
                    }
                },
            ],
        )
    ],
    "irrelevance": [("Who painted the old lighthouse door?", [ROPE], None)],
    "live_relevance": [("I have to be on Gull Isle by noon.", [FERRY], None)],
}
"""By category: the question, the offered functions, and the accepted calls."""


def build_question_files() -> dict[str, list[JsonObject]]:
    """The rows of each file in `bfcl`."""
    files: dict[str, list[JsonObject]] = {}
    for category, rows in SINGLE_TURN.items():
        name = f"BFCL_own_{category}.jsonl"
        ids = [f"{category}_{901 + number}" for number in range(len(rows))]
        files[f"bfcl/{name}"] = [
            {"id": row_id, "question": [[_make_user_message(text)]], "function": functions}
            for row_id, (text, functions, _) in zip(ids, rows, strict=True)
        ]
        answers = [
            {"id": row_id, "ground_truth": calls}
            for row_id, (_, _, calls) in zip(ids, rows, strict=True)
            if calls is not None
        ]
        if answers:
            files[f"bfcl/possible_answer/{name}"] = answers
    return files
