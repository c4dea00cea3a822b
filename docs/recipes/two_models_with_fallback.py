"""Let a second model answer where the host of the first one is down or refuses.

The shipped chart `fallback` asks the second model with the same messages and tools. The log has the failed
call with its reason, and who was asked then. After two fallbacks in a turn the second model goes on alone.
Where both fail, the turn ends in error, and `failure` says why.
"""

from toolchart import Engine
from toolchart.testing import ScriptedModel

SPEC = {
    "chart": "fallback",
    "llms": {
        # Nothing listens at port 9. Yours: without `base_url` and `api_key`.
        "first": {
            "provider": "openai",
            "model": "gpt-5-mini",
            "base_url": "http://127.0.0.1:9/v1",
            "api_key": "none",
        },
        "second": {"provider": "anthropic", "model": "claude-haiku-4-5"},
    },
    "responses": [{"llm": "first", "prompt": "Be brief."}],
}
model = ScriptedModel("Seventeen.")

with Engine(SPEC, log="sums.db", providers={"second": model}) as engine:  # yours: without `providers`
    turn = engine.run("What is 8 + 9?", conversation="sum")
    print(turn.content)
    for step in engine.conversation("sum").steps:
        if step.event_type == "failed":
            (ask,) = step.asks
            print(f"{step.event['host']} failed ({step.event['kind']}), so {ask.data['host']} is asked")
