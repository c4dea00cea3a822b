"""A planner of journeys with Pydantic AI."""

import asyncio
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import ModelRequest, UserPromptPart

MODELS = {
    "chat": "openai-chat:gpt-5.5",
    "responses": "openai-responses:gpt-5.5",
    "messages": "anthropic:claude-opus-5",
}
MODEL = MODELS[sys.argv[1]]


class Advice(BaseModel):
    """What the planner says."""

    go: bool


async def look_up(place: str) -> str:
    """Say what a place is like."""
    return f"{place} is lovely."


async def ask_expert(context: RunContext[str], question: str) -> str:
    """Ask an expert."""
    run = f"{context.deps}/{question.split()[4]}"
    result = await expert.run(question, deps=run, model_settings={"extra_headers": {"X-Run": run}})
    return result.output


expert = Agent(MODEL, instructions="You know all places.", tools=[look_up], deps_type=str)
planner = Agent(MODEL, instructions="You plan journeys.", tools=[look_up, ask_expert], deps_type=str)


async def say(run, text, history=(), agent=planner):
    """One turn; its result."""
    settings = {"extra_headers": {"X-Run": run}}
    result = await agent.run(text, deps=run, model_settings=settings, message_history=list(history))
    print(result.output)
    return result


async def one():
    await say("one", "[look_up Paris] Shall I go to Paris?")


async def again():
    for number in (1, 2):
        await say(f"again {number}", "[look_up Paris] Shall I go to Paris?")


async def turns():
    history = []
    for text in ("[look_up Paris + look_up Rome] Where to?", "[look_up Oslo] And Oslo?", "Thank you."):
        history = (await say("turns", text, history)).all_messages()


async def alike():
    await asyncio.gather(
        *(say(f"alike {number}", "[look_up Nice] [look_up Bath] Which one?") for number in range(3))
    )


async def children():
    await say("children", "[ask_expert Paris + ask_expert Rome] [ask_expert Oslo] Where to?")


async def families():
    """Two with children beside each other, whose words are the same."""
    text = "[ask_expert Genoa + ask_expert Pavia] Where to?"
    await asyncio.gather(*(say(f"families {number}", text) for number in range(2)))


async def busy():
    await say("busy", "(busy 0) (busy 1) [look_up Paris] Is it full?")


async def streamed():
    await stream("streamed", "[look_up Paris] [look_up Rome] Where to?")


async def cut():
    for _ in range(3):
        try:
            await stream("cut", "(cut 0) (cut 1) [look_up Paris] Is it far?")
        except (AgentRunError, OSError) as error:
            print("cut asks again", isinstance(error, Exception))
        except Exception as error:
            print("cut asks again", type(error).__name__)


async def stream(run, text):
    """One turn, streamed."""
    settings = {"extra_headers": {"X-Run": run}}
    async with planner.run_stream(text, deps=run, model_settings=settings) as result:
        print(await result.get_output())


async def trimmed():
    """A processor of the history keeps the newest turn alone, once the turn has a call."""

    def trim(messages):
        begins = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, ModelRequest) and isinstance(message.parts[0], UserPromptPart)
        ]
        return messages[begins[-1] :] if begins[-1] < len(messages) - 1 else messages

    agent = Agent(
        MODEL,
        instructions="You plan journeys.",
        tools=[look_up],
        deps_type=str,
        capabilities=[ProcessHistory(trim)],
    )
    history = []
    for text in ("[look_up Lima] Go to Lima?", "[look_up Kyiv] [look_up Bonn] Or there?"):
        history = (await say("trimmed", text, history, agent)).all_messages()


async def prompted():
    """The prompt changes within a turn."""
    agent = Agent(MODEL, tools=[look_up], deps_type=str)

    @agent.instructions
    def instruct(context: RunContext[str]) -> str:
        return f"You plan journeys. This is step {context.run_step}."

    await say("prompted", "[look_up Metz] [look_up Brno] Go to Metz?", agent=agent)


async def typed():
    agent = Agent(
        MODEL, instructions="You plan journeys.", tools=[look_up], deps_type=str, output_type=Advice
    )
    history = (await say("typed", "[look_up Pisa] Go to Pisa?", agent=agent)).all_messages()
    await say("typed", "[look_up Faro] Or to Faro?", history, agent)


SCENARIOS = [one, again, turns, alike, children, families, busy, streamed, cut, trimmed, prompted, typed]


async def main():
    for scenario in SCENARIOS:
        if not sys.argv[2:] or scenario.__name__ in sys.argv[2:]:
            print("--", scenario.__name__, flush=True)
            await scenario()


if __name__ == "__main__":
    asyncio.run(main())
