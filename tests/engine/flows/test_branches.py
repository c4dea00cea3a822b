"""A branch is taken on one answer only: the two rows of a choice never both fire for one reply."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from toolchart.engine import Engine
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.tools.sources.effect_functions import effect

LEAVE = {"event": "failed cancelled", "target": "lost"}
CHART: dict[str, Any] = {
    "states": {
        "sorting": {
            "initial": True,
            "enter": "sort_letter",
            "transitions": [
                {"event": "replied", "target": "paying", "cond": "letter.kind == 'invoice'"},
                {"event": "replied", "target": "filing"},
                LEAVE,
            ],
        },
        "paying": {"enter": "pay", "transitions": [{"event": "replied", "target": "finished"}, LEAVE]},
        "filing": {"enter": "file_away", "transitions": [{"event": "replied", "target": "finished"}, LEAVE]},
        "finished": {"final": True, "enter": "report"},
        "lost": {"final": True, "enter": "answer_with_error"},
    }
}
EFFECTS: dict[str, Any] = {
    "sort_letter": {
        "call_model": {
            "as": "letter",
            "prompt": "Sort: {{user_message}}",
            "schema": {
                "type": "object",
                "required": ["kind"],
                "properties": {"kind": {"enum": ["invoice", "advert"]}},
            },
        }
    },
    "pay": {"call_model": {"as": "payment", "prompt": "Pay"}},
    "file_away": {"call_model": {"as": "filed", "prompt": "File"}},
    "report": {"answer": "paid {{payment.count}}, filed {{filed.count}}"},
}


def make_engine(
    replies: list[str],
    chart: dict[str, Any] = CHART,
    effects: dict[str, Any] = EFFECTS,
    functions: Sequence[Any] = (),
) -> Engine:
    """An engine whose model gives these replies in order."""
    spec = {
        "chart": chart,
        "effects": effects,
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "responses": [{"llm": "m"}],
    }
    return Engine(spec, log="memory", functions=functions, providers={"m": ScriptedProvider(replies)})


@pytest.mark.parametrize(
    ("kind", "branch", "answer"),
    [("invoice", "paying", "paid 1, filed "), ("advert", "filing", "paid , filed 1")],
)
def test_one_answer_takes_one_branch(kind: str, branch: str, answer: str) -> None:
    """Both rows match the reply where the first guard holds, and only the first one fires."""
    with make_engine([f'{{"kind": "{kind}"}}', "done"]) as engine:
        result = engine.run("a letter", conversation="c")
        states = [record.target for record in read_conversation(engine.store, "c")]
    assert result.content == answer
    assert states[1:] == ["sorting", branch, "finished"]


def test_two_answers_at_once_move_their_own_regions() -> None:
    """Two model calls run side by side; each reply takes the branch of its own region and no other."""
    rows = {
        name: [
            {"event": f"replied.{effect}", "target": f"{name}_good", "cond": f"{result}.is_good"},
            {"event": f"replied.{effect}", "target": f"{name}_bad"},
            {"event": f"failed.{effect}", "target": f"{name}_bad"},
        ]
        for name, effect, result in (("left", "look_left", "west"), ("right", "look_right", "east"))
    }
    regions = {
        name: {
            "states": {
                f"{name}_looking": {"initial": True, "enter": f"look_{name}", "transitions": rows[name]},
                f"{name}_good": {"final": True},
                f"{name}_bad": {"final": True},
            }
        }
        for name in ("left", "right")
    }
    chart = {
        "states": {
            "looking": {
                "initial": True,
                "parallel": True,
                "states": regions,
                "transitions": [
                    {"event": "done.state.looking", "target": "finished"},
                    {"event": "cancelled", "target": "lost"},
                ],
            },
            "finished": {"final": True, "enter": "report"},
            "lost": {"final": True, "enter": "answer_with_error"},
        }
    }
    schema = {"type": "object", "required": ["is_good"], "properties": {"is_good": {"type": "boolean"}}}
    effects = {
        "look_left": {"call_model": {"as": "west", "prompt": "Left?", "schema": schema}},
        "look_right": {"call_model": {"as": "east", "prompt": "Right?", "schema": schema}},
        "report": {"answer": "west {{west.is_good}}, east {{east.is_good}}"},
    }
    with make_engine(['{"is_good": true}', '{"is_good": false}'], chart, effects) as engine:
        result = engine.run("look", conversation="c")
        steps = list(replay_conversation(engine.store, "c"))
    fired = [(row.source, row.targets) for step in steps for row in step.step.fired]
    assert result.content == "west true, east false"
    assert [row for row in fired if row[0].endswith("_looking")] == [
        ("left_looking", ("left_good",)),
        ("right_looking", ("right_bad",)),
    ]


async def test_what_a_message_begins_runs_beside_what_runs_already() -> None:
    """A message that enters a state of one region starts its effect at once, though the effect of another
    region is performed in the turn's own task: here each waits for the other."""
    both_run = asyncio.Event()

    @effect
    async def listen() -> str:
        """Return when somebody has spoken."""
        await engine.conversation("c").asay("now")
        await both_run.wait()
        return "heard"

    @effect
    async def answer_back() -> str:
        """Speak."""
        both_run.set()
        return "said"

    end = {"final": True}
    regions = {
        "ear": {
            "states": {
                "listening": {
                    "initial": True,
                    "enter": "listen_on",
                    "transitions": [{"event": "returned.listen_on", "target": "heard"}],
                },
                "heard": end,
            }
        },
        "mouth": {
            "states": {
                "silent": {"initial": True, "transitions": [{"event": "user_said", "target": "speaking"}]},
                "speaking": {
                    "enter": "speak_up",
                    "transitions": [{"event": "returned.speak_up", "target": "said"}],
                },
                "said": end,
            }
        },
    }
    chart: dict[str, Any] = {
        "states": {
            "talking": {
                "initial": True,
                "parallel": True,
                "states": regions,
                "transitions": [{"event": "done.state.talking", "target": "finished"}, LEAVE],
            },
            "finished": {"final": True, "enter": "report"},
            "lost": {"final": True, "enter": "answer_with_error"},
        }
    }
    effects = {
        "listen_on": {"call_function": {"function": "listen", "as": "ear"}},
        "speak_up": {"call_function": {"function": "answer_back", "as": "mouth"}},
        "report": {"answer": "{{ear}} {{mouth}}"},
    }
    async with make_engine([], chart, effects, functions=[listen, answer_back]) as engine:
        result = await asyncio.wait_for(engine.arun("go", conversation="c"), timeout=60)
    assert result.content == "heard said"
