"""A loop of its own on the SDK of Anthropic."""

import sys

import anthropic
import httpx2
from raw_loop import ADVICE, Agent, describe_schema, main


class MessagesAgent(Agent):
    """Asks by messages."""

    retried = (anthropic.APIError, httpx2.HTTPError)

    def begin(self):
        self.client = anthropic.Anthropic(default_headers=self.headers)

    def ask(self):
        request = {
            "model": "claude-opus-5",
            "max_tokens": 1000,
            "system": self.prompt,
            "messages": self.messages,
            "tools": [
                {"name": name, "description": words, "input_schema": describe_schema(parameter)}
                for name, (parameter, words) in self.tools.items()
            ],
        }
        if self.is_typed:
            request["output_config"] = {"format": {"type": "json_schema", "schema": ADVICE}}
        if self.is_streamed:
            with self.client.messages.stream(**request) as stream:
                message = stream.get_final_message()
            if message.stop_reason is None:
                raise EOFError
        else:
            message = self.client.messages.create(**request)
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
        return [{"role": "assistant", "content": blocks}], text, calls

    def make_results(self, results):
        blocks = [
            {"type": "tool_result", "tool_use_id": call_id, "content": value} for call_id, _, value in results
        ]
        return [{"role": "user", "content": blocks}]


if __name__ == "__main__":
    main(MessagesAgent, sys.argv[1:])
