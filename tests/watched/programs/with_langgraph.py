"""A planner of journeys with LangGraph, its ready agent and langchain-openai."""

import sys
from concurrent.futures import ThreadPoolExecutor

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, before_model, dynamic_prompt
from langchain.tools import tool
from langchain_core.messages import HumanMessage, RemoveMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from pydantic import BaseModel

PROMPT = "You plan journeys."


class Advice(BaseModel):
    """What the planner says."""

    go: bool


def make_model(run, **options):
    """The model for a run."""
    return ChatOpenAI(model="gpt-5.5", default_headers={"X-Run": run}, **options)


@tool
def look_up(place: str) -> str:
    """Say what a place is like."""
    return f"{place} is lovely."


def make_planner(run, *, has_expert=True, streams=False, **options):
    """A planner with an expert."""

    @tool
    def ask_expert(question: str) -> str:
        """Ask an expert."""
        expert = make_planner(f"{run}/{question.split()[4]}", has_expert=False)
        return ask(expert, question)

    tools = [look_up, ask_expert] if has_expert else [look_up]
    options = {"system_prompt": PROMPT, **options}
    return create_agent(make_model(run, streaming=streams), tools, **options)


def ask(agent, text, thread=""):
    """One turn; the answer."""
    config = {"configurable": {"thread_id": thread}} if thread else None
    state = agent.invoke({"messages": [{"role": "user", "content": text}]}, config)
    return state.get("structured_response") or state["messages"][-1].content


def one():
    print(ask(make_planner("one"), "[look_up Paris] Shall I go to Paris?"))


def again():
    for number in (1, 2):
        print(ask(make_planner(f"again {number}"), "[look_up Paris] Shall I go to Paris?"))


def turns():
    agent = make_planner("turns", checkpointer=InMemorySaver())
    for text in ("[look_up Paris + look_up Rome] Where to?", "[look_up Oslo] And Oslo?", "Thank you."):
        print(ask(agent, text, "turns"))


def alike():
    with ThreadPoolExecutor() as pool:
        for text in pool.map(
            lambda number: ask(make_planner(f"alike {number}"), "[look_up Nice] [look_up Bath] Which one?"),
            range(3),
        ):
            print(text)


def children():
    text = "[ask_expert Paris + ask_expert Rome] [ask_expert Oslo] Where to?"
    print(ask(make_planner("children"), text))


def busy():
    print(ask(make_planner("busy"), "(busy 0) (busy 1) [look_up Paris] Is it full?"))


def streamed():
    print(ask(make_planner("streamed", streams=True), "[look_up Paris] [look_up Rome] Where to?"))


def cut():
    for _ in range(3):
        try:
            print(ask(make_planner("cut", streams=True), "(cut 0) (cut 1) [look_up Paris] Is it far?"))
        except Exception as error:
            print("cut asks again", type(error).__name__)


def trimmed():
    """A hook before the model keeps the newest turn alone, once the turn has a call."""

    @before_model
    def trim(state, runtime):
        messages = state["messages"]
        begin = max(index for index, each in enumerate(messages) if isinstance(each, HumanMessage))
        if begin and begin < len(messages) - 1:
            return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *messages[begin:]]}
        return None

    agent = make_planner("trimmed", middleware=[trim], checkpointer=InMemorySaver())
    for text in ("[look_up Lima] Go to Lima?", "[look_up Kyiv] [look_up Bonn] Or there?"):
        print(ask(agent, text, "trimmed"))


def summed_up():
    """A hook has the beginning summed up, and keeps the newest messages."""
    helper = make_model("summed up: helper")
    hook = SummarizationMiddleware(helper, trigger=("messages", 7), keep=("messages", 5))
    agent = make_planner("summed up", middleware=[hook], checkpointer=InMemorySaver())
    for text in ("[look_up Cork] Go to Cork?", "[look_up Nuuk] Or to Nuuk?", "[look_up Ayr] Or to Ayr?"):
        print(ask(agent, text, "summed up"))


def prompted():
    """The prompt changes within a turn."""

    @dynamic_prompt
    def prompt(request):
        return f"You plan journeys. You have {len(request.messages)} messages."

    agent = make_planner("prompted", middleware=[prompt], system_prompt=None)
    print(ask(agent, "[look_up Metz] [look_up Brno] Go to Metz?"))


def typed():
    print(ask(make_planner("typed", response_format=Advice), "[look_up Pisa] Go to Pisa?"))


SCENARIOS = [one, again, turns, alike, children, busy, streamed, cut, trimmed, summed_up, prompted, typed]

if __name__ == "__main__":
    for scenario in SCENARIOS:
        if not sys.argv[1:] or scenario.__name__ in sys.argv[1:]:
            print("--", scenario.__name__, flush=True)
            scenario()
