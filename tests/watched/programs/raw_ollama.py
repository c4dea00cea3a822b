"""A loop of its own on the SDK of Ollama."""

import sys

import httpx
import ollama
from raw_loop import ADVICE, Agent, describe_schema, main


class OllamaAgent(Agent):
    """Asks Ollama."""

    retried = (ollama.ResponseError, httpx.HTTPError)

    def begin(self):
        self.client = ollama.Client(headers=self.headers)

    def ask(self):
        request = {
            "model": "qwen3",
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
            "format": ADVICE if self.is_typed else None,
        }
        if self.is_streamed:
            chunks = list(self.client.chat(**request, stream=True))
            if not chunks or not chunks[-1].done:
                raise EOFError
        else:
            chunks = [self.client.chat(**request)]
        text = "".join(chunk.message.content or "" for chunk in chunks)
        calls = [call for chunk in chunks for call in chunk.message.tool_calls or ()]
        message = ollama.Message(role="assistant", content=text, tool_calls=calls or None)
        return [message], text, [("", call.function.name, call.function.arguments) for call in calls]

    def make_results(self, results):
        return [{"role": "tool", "tool_name": name, "content": value} for _, name, value in results]


if __name__ == "__main__":
    main(OllamaAgent, sys.argv[1:])
