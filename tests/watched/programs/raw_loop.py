"""An agent in a loop of its own, and what it is used for. Each SDK says how it is asked (`raw_*.py`)."""

import sys
from concurrent.futures import ThreadPoolExecutor

PROMPT = "You plan journeys."
TOOLS = {"look_up": ("place", "Says what a place is like."), "ask_expert": ("question", "Asks an expert.")}


def describe_schema(parameter):
    """The schema of a tool with one text for its parameter."""
    return {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}


ADVICE = {"type": "object", "properties": {"go": {"type": "boolean"}}, "required": ["go"]}
"""The schema of a typed answer."""


class Agent:
    """One conversation."""

    retried = ()
    """The errors after which it asks again."""

    def __init__(self, run, *, tools=tuple(TOOLS), is_streamed=False, is_typed=False):
        self.run, self.tools = run, {name: TOOLS[name] for name in tools}
        self.is_streamed, self.is_typed = is_streamed, is_typed
        self.prompt, self.messages = PROMPT, []
        self.headers = {"X-Run": run}
        self.patience = 4
        self.begin()

    def begin(self):
        """Make the client."""
        raise NotImplementedError

    def ask(self):
        """One call of the model: its messages, the text, and the calls (id, name, arguments).

        Raises:
            EOFError: the stream broke off.
        """
        raise NotImplementedError

    def make_user(self, text):
        """A message of the user."""
        return {"role": "user", "content": text}

    def make_results(self, results):
        """The messages with what calls gave: (id, name, value) of each."""
        raise NotImplementedError

    def say(self, text, after_calls=lambda agent: None):
        """One turn; the answer."""
        self.messages.append(self.make_user(text))
        while True:
            try:
                messages, answer, calls = self.ask()
            except (EOFError, *self.retried):
                self.patience -= 1
                if not self.patience:
                    raise
                print(self.run, "asks again")
                continue
            self.messages += messages
            if not calls:
                return answer
            with ThreadPoolExecutor() as pool:
                self.messages += self.make_results(list(pool.map(self.run_call, calls)))
            after_calls(self)

    def run_call(self, call):
        """Id and name of a call, and what it gives."""
        call_id, name, arguments = call
        (text,) = arguments.values()
        if name == "ask_expert":
            return call_id, name, type(self)(f"{self.run}/{text.split()[4]}", tools=["look_up"]).say(text)
        return call_id, name, f"{text} is lovely."


def one(agent):
    print(agent("one").say("[look_up Paris] Shall I go to Paris?"))


def again(agent):
    """The same once more."""
    for number in (1, 2):
        print(agent(f"again {number}").say("[look_up Paris] Shall I go to Paris?"))


def turns(agent):
    planner = agent("turns")
    for text in ("[look_up Paris + look_up Rome] Where to?", "[look_up Oslo] And Oslo?", "Thank you."):
        print(planner.say(text))


def streamed(agent):
    planner = agent("streamed", is_streamed=True)
    for text in ("[look_up Paris] [look_up Rome] Where to?", "Thank you."):
        print(planner.say(text))


def alike(agent):
    """Three beside each other, with the same words."""
    with ThreadPoolExecutor() as pool:
        for text in pool.map(
            lambda number: agent(f"alike {number}").say("[look_up Nice] [look_up Bath] Which one?"), range(3)
        ):
            print(text)


def children(agent):
    print(agent("children").say("[ask_expert Paris + ask_expert Rome] [ask_expert Oslo] Where to?"))


def busy(agent):
    print(agent("busy").say("(busy 0) (busy 1) [look_up Paris] Is it full?"))


def cut(agent):
    print(agent("cut", is_streamed=True).say("(cut 0) (cut 1) [look_up Paris] Is it far?"))


def trimmed(agent):
    """It keeps the messages of the newest turn alone."""
    planner = agent("trimmed")
    print(planner.say("[look_up Lima] Go to Lima?"))
    count = len(planner.messages)

    def trim(planner):
        if planner.messages[0] is first:
            del planner.messages[:count]

    first = planner.messages[0]
    print(planner.say("[look_up Kyiv] [look_up Bonn] [look_up Graz] Or there?", trim))


def summed_up(agent):
    """It has its history summed up, and goes on with that and its newest messages."""
    planner = agent("summed up")
    print(planner.say("[look_up Cork] Go to Cork?"))
    summary = agent("summed up: helper", tools=[]).say("Sum this up: Cork is lovely, and Cork was asked for.")
    planner.messages = [planner.make_user(f"So far: {summary}"), *planner.messages[-3:]]
    print(planner.say("[look_up Nuuk] Or to Nuuk?"))


def back(agent):
    """It goes back, and asks something else."""
    planner = agent("back")
    print(planner.say("[look_up Riga] Go to Riga?"))
    kept = list(planner.messages)
    print(planner.say("By train?"))
    planner.messages = kept
    print(planner.say("By ship?"))


def prompted(agent):
    """Its prompt changes within a turn."""
    planner = agent("prompted")

    def change(planner):
        planner.prompt = "You plan journeys, shortly."

    print(planner.say("[look_up Metz] Go to Metz?", change))


def typed(agent):
    print(agent("typed", is_typed=True).say("[look_up Pisa] Go to Pisa?"))


SCENARIOS = [
    one,
    again,
    turns,
    streamed,
    alike,
    children,
    busy,
    cut,
    trimmed,
    summed_up,
    back,
    prompted,
    typed,
]


def main(agent, names, scenarios=SCENARIOS):
    """Use an agent for what was named; for all where nothing was."""
    for scenario in scenarios:
        if not names or scenario.__name__ in names:
            print("--", scenario.__name__, flush=True)
            scenario(agent)


if __name__ == "__main__":
    sys.exit("this is no program of its own")
