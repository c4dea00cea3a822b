"""A loop of its own on the SDK of OpenAI: Responses, with all messages or from the newest response on."""

import json
import sys

import openai
from raw_loop import ADVICE, SCENARIOS, Agent, describe_schema, main


class ResponsesAgent(Agent):
    """Asks by Responses, each time with all that was said."""

    retried = (openai.APIError,)
    is_stateful = False

    def begin(self):
        self.client = openai.OpenAI(default_headers=self.headers)
        self.previous, self.known = None, 0

    def ask(self):
        request = {
            "model": "gpt-5.5",
            "instructions": self.prompt,
            "input": self.messages[self.known :],
            "tools": [
                {
                    "type": "function",
                    "name": name,
                    "description": words,
                    "parameters": describe_schema(parameter),
                    "strict": False,
                }
                for name, (parameter, words) in self.tools.items()
            ],
        }
        if self.previous:
            request["previous_response_id"] = self.previous
        if self.is_typed:
            form = {"type": "json_schema", "name": "advice", "schema": ADVICE, "strict": True}
            request["text"] = {"format": form}
        if self.is_streamed:
            events = list(self.client.responses.create(**request, stream=True))
            if events[-1].type != "response.completed":
                raise EOFError
            response = events[-1].response
        else:
            response = self.client.responses.create(**request)
        items = [item.model_dump(exclude_none=True) for item in response.output]
        if self.is_stateful:
            self.previous, self.known = response.id, len(self.messages) + len(items)
        calls = [
            (item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in items
            if item["type"] == "function_call"
        ]
        return items, response.output_text, calls

    def make_results(self, results):
        return [
            {"type": "function_call_output", "call_id": call_id, "output": value}
            for call_id, _, value in results
        ]


class StatefulAgent(ResponsesAgent):
    """Sends what is new, and names the newest response."""

    is_stateful = True


def back(agent):
    """It goes back to an earlier response."""
    planner = agent("back")
    print(planner.say("[look_up Riga] Go to Riga?"))
    kept = planner.previous, planner.known, list(planner.messages)
    print(planner.say("By train?"))
    planner.previous, planner.known, planner.messages = kept
    print(planner.say("By ship?"))


if __name__ == "__main__":
    if sys.argv[1] == "stateful":
        names = ("trimmed", "summed_up", "back")  # what was said is the host's
        kept = [scenario for scenario in SCENARIOS if scenario.__name__ not in names]
        main(StatefulAgent, sys.argv[2:], [*kept, back])
    else:
        main(ResponsesAgent, sys.argv[2:])
