"""Let a writer and a critic work on a text, until the critic is content or there are four drafts.

The shipped chart `reflection` says when the text goes back to the writer, so at most nine model calls make a
turn; `toolchart check` proves it. Here the prompts are of the program. `results` has the newest draft and the
newest verdict, the log has each of them. A critic that cannot be understood is asked once more; where it
fails, the newest draft is the answer.
"""

from toolchart import Engine
from toolchart.testing import ScriptedModel

VERDICT = {
    "type": "object",
    "required": ["score", "comments"],
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}, "comments": {"type": "string"}},
}
WRITE = (
    "Write one sentence about: {{user_message}}\nYour last draft: {{draft}}\nThe critic: {{verdict.comments}}"
)
JUDGE = "How good is this sentence for children? {{draft}}"
SPEC = {
    "chart": "reflection",
    "llms": {
        "writer": {"provider": "openai", "model": "gpt-5.1"},
        "critic": {"provider": "anthropic", "model": "claude-haiku-4-5"},
    },
    "effects": {
        "write_draft": {"call_model": {"llm": "writer", "as": "draft", "prompt": WRITE}},
        "judge_draft": {"call_model": {"llm": "critic", "as": "verdict", "prompt": JUDGE, "schema": VERDICT}},
    },
    "responses": [{"llm": "writer"}],
}
writer = ScriptedModel("Tides are water that moves.", "The moon pulls the sea, so it rises twice a day.")
critic = ScriptedModel('{"score": 4, "comments": "Say why."}', '{"score": 9, "comments": "Good."}')
models = {"writer": writer, "critic": critic}

with Engine(SPEC, log="texts.db", providers=models) as engine:  # yours: without `providers`
    turn = engine.run("tides", conversation="tides")
    print(turn.content)
    print("the newest verdict:", turn.results["verdict"])
    for step in engine.conversation("tides").steps:
        if step.event_type == "replied":
            print(f"{step.source} -> {step.target}: {step.guards}")
