"""Test an agent without a model, a key or a network.

Inside the `with` block of `override` a scripted model answers in place of the agent's own. Its `requests`
have what the model would be sent. A reply may be a failure too, so a test can say what happens when the host
is busy; `TurnableClock` lets nobody wait for the next attempt. `pytest` runs these tests; here the program
does.
"""

import sys

import pytest

from toolchart import Agent
from toolchart.testing import ScriptedModel, TurnableClock, call_tool


def measure(city: str) -> int:
    """Measure the temperature of a city, in degrees."""
    return {"Brno": 7}[city]


weather = Agent("openai:gpt-5-mini", prompt="You know the weather.", tools=[measure])  # yours: your agent


def test_the_model_reads_what_the_tool_returned() -> None:
    model = ScriptedModel(call_tool("measure", city="Brno"), "It is 7 degrees.")
    with weather.override(model=model):
        turn = weather.run("How warm is it in Brno?", log="memory")
    assert turn.output == "It is 7 degrees."
    assert [(call.params, call.value) for call in turn.tool_calls] == [({"city": "Brno"}, 7)]
    assert '"result":7' in (model.requests[-1].messages[-1].content or "")


def test_an_unknown_city_is_an_error_that_the_model_reads() -> None:
    model = ScriptedModel(call_tool("measure", city="Atlantis"), "I do not know that city.")
    with weather.override(model=model):
        turn = weather.run("How warm is it in Atlantis?", log="memory")
    assert turn.tool_calls[0].error == "KeyError: 'Atlantis'"
    assert turn.ok


def test_a_busy_host_is_asked_again() -> None:
    busy = {"fail": {"kind": "overloaded", "status": 529, "retryable": True}}
    with weather.override(model=ScriptedModel(busy, "Rain.")):
        turn = weather.run("And tomorrow?", log="memory", clock=TurnableClock(skips=True))
    assert turn.output == "Rain."


if __name__ == "__main__":
    options = ["-qq", "--disable-warnings", "-o", "addopts=", "-p", "no:cacheprovider"]
    code = pytest.main([__file__, *options])  # yours: `pytest` on the command line
    print("All tests pass." if code == 0 else "A test fails.")
    sys.exit(code)
