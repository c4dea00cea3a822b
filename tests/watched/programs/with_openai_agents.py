"""A planner of journeys with the OpenAI Agents SDK."""

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_api,
)
from agents.run import ModelInputData
from pydantic import BaseModel

if sys.argv[1] == "chat":
    set_default_openai_api("chat_completions")


class Advice(BaseModel):
    """What the planner says."""

    go: bool


@function_tool
async def look_up(place: str) -> str:
    """Say what a place is like."""
    return f"{place} is lovely."


def make_expert(run, topic):
    """An expert for one place, as a tool."""
    expert = Agent(name="expert", model="gpt-5.5", instructions="You know all places.", tools=[look_up])
    config = RunConfig(model_settings=ModelSettings(extra_headers={"X-Run": f"{run}/{topic}"}))
    return expert.as_tool(f"ask_{topic}", f"Knows {topic}.", run_config=config)


def make_planner(run, **options):
    """A planner."""
    options = {"tools": [look_up], "instructions": "You plan journeys.", **options}
    return Agent(name="planner", model="gpt-5.5", **options)


def configure(run, **options):
    """What a run needs."""
    return RunConfig(model_settings=ModelSettings(extra_headers={"X-Run": run}), **options)


async def say(run, text, agent=None, config=None, **options):
    """One turn; its result."""
    agent, config = agent or make_planner(run), config or configure(run)
    result = await Runner.run(agent, text, run_config=config, **options)
    print(result.final_output)
    return result


async def one():
    await say("one", "[look_up Paris] Shall I go to Paris?")


async def again():
    for number in (1, 2):
        await say(f"again {number}", "[look_up Paris] Shall I go to Paris?")


async def turns():
    session = SQLiteSession("turns")
    for text in ("[look_up Paris + look_up Rome] Where to?", "[look_up Oslo] And Oslo?", "Thank you."):
        await say("turns", text, session=session)


async def alike():
    await asyncio.gather(
        *(say(f"alike {number}", "[look_up Nice] [look_up Bath] Which one?") for number in range(3))
    )


async def children():
    agent = make_planner(
        "children", tools=[make_expert("children", topic) for topic in ("Paris", "Rome", "Oslo")]
    )
    await say("children", "[ask_Paris Paris + ask_Rome Rome] [ask_Oslo Oslo] Where to?", agent)


async def handoff():
    """Another agent takes over, with its own prompt and tools."""
    seller = Agent(name="seller", model="gpt-5.5", instructions="You sell tickets.", tools=[look_up])
    agent = make_planner("handoff", handoffs=[seller])
    session = SQLiteSession("handoff")
    text = "[look_up Linz] [transfer_to_seller now] [look_up Ulm] A ticket, please."
    result = await say("handoff", text, agent, session=session)
    await say("handoff", "[look_up Jena] One more.", result.last_agent, session=session)


async def busy():
    await say("busy", "(busy 0) (busy 1) [look_up Paris] Is it full?")


async def streamed():
    await stream("streamed", "[look_up Paris] [look_up Rome] Where to?")


async def stream(run, text):
    """One turn, streamed."""
    result = Runner.run_streamed(make_planner(run), text, run_config=configure(run))
    async for _ in result.stream_events():
        pass
    print(result.final_output)


async def cut():
    for _ in range(3):
        try:
            await stream("cut", "(cut 0) (cut 1) [look_up Paris] Is it far?")
        except Exception as error:
            print("cut asks again", type(error).__name__)


async def trimmed():
    """A filter of the input keeps the newest turn alone, once the turn has a call."""

    def trim(data):
        items = data.model_data.input
        begin = max(index for index, item in enumerate(items) if item.get("role") == "user")
        kept = items[begin:] if begin < len(items) - 1 else items
        return ModelInputData(input=kept, instructions=data.model_data.instructions)

    config, session = configure("trimmed", call_model_input_filter=trim), SQLiteSession("trimmed")
    for text in ("[look_up Lima] Go to Lima?", "[look_up Kyiv] [look_up Bonn] Or there?"):
        await say("trimmed", text, config=config, session=session)


async def prompted():
    """The prompt changes within a turn."""
    count = 0

    def instruct(context, agent):
        nonlocal count
        count += 1
        return f"You plan journeys. This is step {count}."

    agent = make_planner("prompted", instructions=instruct)
    await say("prompted", "[look_up Metz] [look_up Brno] Go to Metz?", agent)


async def typed():
    await say("typed", "[look_up Pisa] Go to Pisa?", make_planner("typed", output_type=Advice))


async def stateful():
    """It goes on from its newest response."""
    result = await say(
        "stateful", "[look_up Gent] [look_up Mons] Go to Gent?", auto_previous_response_id=True
    )
    await say("stateful", "[look_up Lier] Or to Lier?", previous_response_id=result.last_response_id)


SCENARIOS = [one, again, turns, alike, children, handoff, busy, streamed, cut, trimmed, prompted, typed]


async def main():
    scenarios = SCENARIOS if sys.argv[1] == "chat" else [*SCENARIOS, stateful]
    for scenario in scenarios:
        if not sys.argv[2:] or scenario.__name__ in sys.argv[2:]:
            print("--", scenario.__name__, flush=True)
            await scenario()


if __name__ == "__main__":
    asyncio.run(main())
