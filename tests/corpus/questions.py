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

WORLD_FUNCTIONS: dict[str, list[JsonObject]] = {
    "math_api": [
        _make_definition(
            "fathoms_to_metres",
            "Convert fathoms to metres.",
            ["fathoms"],
            fathoms={"type": "float"},
            digits={"type": "integer", "default": 1},
        ),
        _make_definition(
            "sum_loads",
            "Add loads in kilograms.",
            ["loads"],
            loads={"type": "tuple", "items": {"type": "float"}},
        ),
    ],
    "ticket_api": [
        _make_definition(
            "open_repair",
            "Open a repair ticket.",
            ["boat", "part"],
            boat={"type": "string"},
            part={"type": "string"},
        ),
        _make_definition("close_repair", "Close a repair ticket.", ["ticket"], ticket={"type": "integer"}),
        _make_definition("list_repairs", "List open tickets.", [], boat={"type": "string", "default": None}),
    ],
}

MULTI_TURN: dict[str, list[tuple[JsonObject, list[list[str]]]]] = {
    "multi_turn_base": [
        (
            {
                "question": [
                    [
                        _make_user_message(
                            "The Petrel's rudder is broken: open a ticket, and list her tickets."
                        )
                    ],
                    [_make_user_message("How many metres are 4 fathoms?")],
                    [_make_user_message("Thank you, nothing more.")],
                    [_make_user_message("Now close ticket 12, and add loads of 40 and 2.5 kilograms.")],
                ],
                "involved_classes": ["TicketAPI", "MathAPI"],
            },
            [
                ["open_repair(boat='Petrel', part='rudder')", "list_repairs('Petrel')"],
                ["fathoms_to_metres(fathoms=4.0)"],
                [],
                ["close_repair(ticket=12)", "sum_loads(loads=[40.0, 2.5])"],
            ],
        )
    ],
    "multi_turn_miss_func": [
        (
            {
                "question": [
                    [_make_user_message("Open a ticket for the mast of the Tern.")],
                    [_make_user_message("Close ticket 3.")],
                    [],
                ],
                "involved_classes": ["TicketAPI"],
                "excluded_function": ["list_repairs"],
                "missed_function": {"2": ["close_repair"]},
            },
            [["open_repair(boat='Tern', part='mast')"], [], ["close_repair(ticket=3)"]],
        )
    ],
}
"""By category: the question, and the accepted calls of each turn."""


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
    for category, turn_rows in MULTI_TURN.items():
        name = f"BFCL_own_{category}.jsonl"
        files[f"bfcl/{name}"] = [{"id": f"{category}_901", **question} for question, _ in turn_rows]
        files[f"bfcl/possible_answer/{name}"] = [
            {"id": f"{category}_901", "ground_truth": calls} for _, calls in turn_rows
        ]
    for world, functions in WORLD_FUNCTIONS.items():
        files[f"bfcl/multi_turn_func_doc/{world}.jsonl"] = functions
    return files
