"""A loop of its own on the SDK of Google."""

import sys
from concurrent.futures import ThreadPoolExecutor

import httpx2
from google import genai
from google.genai import errors, types
from raw_loop import ADVICE, SCENARIOS, Agent, describe_schema, main


class GeminiAgent(Agent):
    """Asks Gemini."""

    retried = (errors.APIError, httpx2.HTTPError)

    shared = None
    """A client of several agents."""

    def begin(self):
        self.client = self.shared or genai.Client(vertexai=False)

    def ask(self):
        functions = [
            types.FunctionDeclaration(
                name=name, description=words, parameters_json_schema=describe_schema(parameter)
            )
            for name, (parameter, words) in self.tools.items()
        ]
        config = types.GenerateContentConfig(
            system_instruction=self.prompt,
            http_options=types.HttpOptions(headers=self.headers),
            tools=[types.Tool(function_declarations=functions)] if functions else None,
        )
        if self.is_typed:
            config.response_mime_type, config.response_json_schema = "application/json", ADVICE
        request = {"model": "gemini-3-pro", "contents": self.messages, "config": config}
        if self.is_streamed:
            chunks = list(self.client.models.generate_content_stream(**request))
            if not chunks or not chunks[-1].candidates[0].finish_reason:
                raise EOFError
        else:
            chunks = [self.client.models.generate_content(**request)]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        text = "".join(part.text or "" for part in parts)
        calls = [
            (part.function_call.id, part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call
        ]
        return [types.Content(role="model", parts=parts)], text, calls

    def make_user(self, text):
        return types.Content(role="user", parts=[types.Part(text=text)])

    def make_results(self, results):
        parts = [
            types.Part(
                function_response=types.FunctionResponse(id=call_id, name=name, response={"result": value})
            )
            for call_id, name, value in results
        ]
        return [types.Content(role="user", parts=parts)]


def shared(agent):
    """Three beside each other, with the same words, over the same connections, and no ids of calls."""
    agent.shared = genai.Client(vertexai=False)
    with ThreadPoolExecutor() as pool:
        for text in pool.map(
            lambda number: agent(f"shared {number}").say("[look_up Kent] [look_up Hull] Which one?"), range(3)
        ):
            print(text)


if __name__ == "__main__":
    main(GeminiAgent, sys.argv[1:], [*SCENARIOS, shared])
