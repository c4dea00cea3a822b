"""The chart of a watched conversation: what can be seen of a loop that another program runs.

It decides nothing: the program decides when to ask, which calls to run and when to end. So the chart allows
all of it, has no limit, and nothing is proved of it. A call that failed leaves the turn open, because the
program may ask once more; whether it did is in the records. Calls that were refused or held for a person are
so in the records: that was decided by the agent whose rules are enforced, not by this chart.
"""

from __future__ import annotations

from functools import cache

from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import parse_chart

_CHART = """
# What is seen of a loop that another program runs. It decides nothing and has no limit.
name: watched
states:
  prompting:
    initial: true
    enter: call_model
    transitions:
      - {event: replied, target: awaiting_tools, cond: "finish_reason == 'tool_calls'"}
      - {event: replied, target: prompting, cond: "finish_reason == 'paused'"}
      - {event: replied, target: finished}
      - {event: failed, target: prompting}       # the program may ask once more
      - {event: cancelled, target: given_up}
      - {event: user_said}

  awaiting_tools:
    enter: review_calls
    transitions:
      - {event: reviewed, target: executing, cond: "undecided_calls == 0"}
      - {event: reviewed, target: awaiting_approval}
      - {event: cancelled, target: given_up}
      - {event: user_said}

  awaiting_approval:                               # calls are held until a person decides
    enter: ask_approval
    transitions:
      - {event: decided, cond: "undecided_calls > 0"}
      - {event: decided, target: executing}
      - {event: cancelled, target: given_up}
      - {event: user_said}

  executing:
    enter: run_tools
    transitions:
      - {event: tool_finished, cond: "pending_calls > 0"}
      - {event: tool_finished, target: prompting}
      - {event: cancelled, target: given_up}
      - {event: user_said}

  finished: {final: true, enter: answer}
  given_up: {final: true, enter: answer_with_error}
"""


@cache
def load_watched_chart() -> Chart:
    """The chart."""
    return parse_chart(_CHART, source="the chart of watched conversations")
