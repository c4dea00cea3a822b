"""A loop of its own on the SDK of OpenAI: chat completions."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import openai

PROMPT = {"role": "system", "content": "You plan journeys."}


def describe_tool(name, parameter, description):
    """A tool with one text for its parameter."""
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [
    describe_tool("look_up", "place", "Says what a place is like."),
    describe_tool("ask_expert", "question", "Asks an expert."),
]


class Agent:
    """One conversation."""

    def __init__(self, run, tools=TOOLS, **options):
        self.run = run
        self.client = openai.OpenAI(default_headers={"X-Run": run})
        self.messages = [PROMPT]
        self.tools, self.options = tools, options

    def ask(self):
        """One call of the model; its message."""
        request = {"model": "gpt-5.5", "messages": self.messages, "tools": self.tools, **self.options}
        if not self.options.get("stream"):
            return self.client.chat.completions.create(**request).choices[0].message.model_dump(
                exclude_none=True
            )
        text, calls = "", {}
        is_over = False
        for chunk in self.client.chat.completions.create(**request):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                is_over = is_over or bool(choice.finish_reason)
                for part in choice.delta.tool_calls or ():
                    call = calls.setdefault(
                        part.index,
                        {"id": part.id, "type": "function", "function": {"name": "", "arguments": ""}},
                    )
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
        if not is_over:
            raise EOFError
        message = {"role": "assistant", "content": text or None}
        return {**message, "tool_calls": list(calls.values())} if calls else message

    def say(self, text, after_call=lambda agent: None):
        """One turn; the answer."""
        self.messages.append({"role": "user", "content": text})
        while True:
            try:
                message = self.ask()
            except (EOFError, openai.APIError, OSError) as error:
                print(self.run, "again after", "an end" if isinstance(error, EOFError) else "an error")
                continue
            self.messages.append(message)
            calls = message.get("tool_calls") or []
            if not calls:
                return message["content"]
            with ThreadPoolExecutor() as pool:
                self.messages += pool.map(self.run_call, calls)
            after_call(self)

    def run_call(self, call):
        """The message with what a call gives."""
        (text,) = json.loads(call["function"]["arguments"]).values()
        if call["function"]["name"] == "ask_expert":
            value = Agent(f"{self.run}/{text.split()[4]}", TOOLS[:1]).say(text)
        else:
            value = f"{text} is lovely."
        return {"role": "tool", "tool_call_id": call["id"], "content": value}


def one():
    print(Agent("one").say("[look_up Paris] Shall I go to Paris?"))


def again():
    """The same once more."""
    for number in (1, 2):
        print(Agent(f"again {number}").say("[look_up Paris] Shall I go to Paris?"))


def turns():
    agent = Agent("turns")
    for text in ("[look_up Paris + look_up Rome] Where to?", "[look_up Oslo] And Oslo?", "Thank you."):
        print(agent.say(text))


def streamed():
    agent = Agent("streamed", stream=True)
    for text in ("[look_up Paris] [look_up Rome] Where to?", "Thank you."):
        print(agent.say(text))


def alike():
    """Three beside each other, with the same words."""
    with ThreadPoolExecutor() as pool:
        for text in pool.map(
            lambda number: Agent(f"alike {number}").say("[look_up Nice] [look_up Bath] Which one?"), range(3)
        ):
            print(text)


def children():
    print(Agent("children").say("[ask_expert Paris + ask_expert Rome] [ask_expert Oslo] Where to?"))


def busy():
    print(Agent("busy").say("(busy 0) (busy 1) [look_up Paris] Is it full?"))


def cut():
    print(Agent("cut", stream=True).say("(cut 0) (cut 1) [look_up Paris] Is it far?"))


def trimmed():
    """It keeps the messages of the newest turn alone."""
    agent = Agent("trimmed")

    def trim(agent):
        begin = max(index for index, each in enumerate(agent.messages) if each["role"] == "user")
        agent.messages = [PROMPT, *agent.messages[begin:]]

    for text in ("[look_up Lima] Go to Lima?", "[look_up Kyiv] [look_up Bonn] [look_up Graz] Or there?"):
        print(agent.say(text, trim))


def summed_up():
    """It has its history summed up, and goes on with that."""
    agent = Agent("summed up")
    print(agent.say("[look_up Cork] Go to Cork?"))
    texts = " ".join(str(message.get("content")) for message in agent.messages[2:])
    helper = Agent("summed up: helper", [])
    summary = helper.say(f"Sum this up: {texts}")
    agent.messages = [PROMPT, {"role": "user", "content": f"So far: {summary}"}, *agent.messages[-3:]]
    print(agent.say("[look_up Nuuk] Or to Nuuk?"))


def back():
    """It goes back, and asks something else."""
    agent = Agent("back")
    print(agent.say("[look_up Riga] Go to Riga?"))
    kept = list(agent.messages)
    print(agent.say("By train?"))
    agent.messages = kept
    print(agent.say("By ship?"))


def prompted():
    """Its prompt changes within a turn."""
    agent = Agent("prompted")

    def change(agent):
        agent.messages[0] = {"role": "system", "content": "You plan journeys, shortly."}

    print(agent.say("[look_up Metz] Go to Metz?", change))


def typed():
    schema = {"type": "object", "properties": {"go": {"type": "boolean"}}, "required": ["go"]}
    form = {"type": "json_schema", "json_schema": {"name": "advice", "schema": schema, "strict": True}}
    print(Agent("typed", response_format=form).say("[look_up Pisa] Go to Pisa?"))


SCENARIOS = [one, again, turns, streamed, alike, children, busy, cut, trimmed, summed_up, back, prompted, typed]

if __name__ == "__main__":
    for scenario in SCENARIOS:
        if len(sys.argv) < 2 or scenario.__name__ in sys.argv[1:]:
            print("--", scenario.__name__, flush=True)
            scenario()
