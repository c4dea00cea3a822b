"""Keep a conversation of any length: the model sees its newest part, and the log has all of it.

The chart `compacting` leaves out the oldest messages before a request would take more than four fifths of
`context_limit`. This limit is known for many models; here it is small, so that one sees the effect. A call is
never shown without its result. `messages` has everything, after a restart too. The flow `long_conversation`
lets a second model write a summary of what is left out.
"""

from toolchart import Agent
from toolchart.testing import ScriptedModel

days = range(1, 13)
model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    *(f"I have noted what you saw on day {day}, and shall keep it for you." for day in days)
)
diary = Agent(model, prompt="You keep a diary.", chart="compacting", context_limit=200)

with diary.open(log="diary.db") as book:
    for day in days:
        book.run(f"Day {day}: I walked along the river, and saw a heron at mile {day}.", conversation="ada")
    print("messages in each request:", [len(request.messages) for request in model.requests])
    system, oldest, *_ = model.requests[-1].messages
    print("the newest request begins:", system.content, oldest.content)

    messages = book.conversation("ada").messages
    print(f"the log has {len(messages)} messages, and begins: {messages[0].content}")
