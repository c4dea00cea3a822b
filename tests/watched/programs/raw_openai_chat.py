"""A loop of its own on the SDK of OpenAI: chat completions."""

import json
import sys

import openai
from raw_loop import ADVICE, Agent, describe_schema, main


class ChatAgent(Agent):
    """Asks by chat completions."""

    retried = (openai.APIError,)

    def begin(self):
        self.client = openai.OpenAI(default_headers=self.headers)

    def ask(self):
        request = {
            "model": "gpt-5.5",
            "messages": [{"role": "system", "content": self.prompt}, *self.messages],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": name,
                        "description": words,
                        "parameters": describe_schema(parameter),
                    },
                }
                for name, (parameter, words) in self.tools.items()
            ],
        }
        if not self.tools:
            del request["tools"]
        if self.is_typed:
            form = {"name": "advice", "schema": ADVICE, "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        if self.is_streamed:
            text, calls = self.read_stream(self.client.chat.completions.create(**request, stream=True))
        else:
            message = self.client.chat.completions.create(**request).choices[0].message
            text = message.content
            calls = [call.model_dump() for call in message.tool_calls or ()]
        message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        return (
            [message],
            text,
            [
                (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in calls
            ],
        )

    def read_stream(self, stream):
        """The text and the calls."""
        text, calls, is_over = "", {}, False
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                is_over = is_over or bool(choice.finish_reason)
                for part in choice.delta.tool_calls or ():
                    empty = {"type": "function", "function": {"name": "", "arguments": ""}}
                    call = calls.setdefault(part.index, {"id": part.id, **empty})
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
        if not is_over:
            raise EOFError
        return text or None, list(calls.values())

    def make_results(self, results):
        return [{"role": "tool", "tool_call_id": call_id, "content": value} for call_id, _, value in results]


if __name__ == "__main__":
    main(ChatAgent, sys.argv[1:])
