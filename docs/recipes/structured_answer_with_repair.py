"""Get an answer as a value of your class; an answer that breaks the class is asked for again.

The model is sent the JSON Schema of the class. Each answer is checked, by the validators of the class too.
The default chart tells the model what is wrong, and asks again. The log has each answer and why it was
refused. After three attempts the turn ends in error: `ok` is false, and `failure` says why.
"""

from datetime import date

from pydantic import BaseModel, field_validator

from toolchart import Agent
from toolchart.testing import ScriptedModel


class Invoice(BaseModel):
    customer: str
    cents: int
    due: date

    @field_validator("cents")
    @classmethod
    def check_cents(cls, cents: int) -> int:
        if cents <= 0:
            raise ValueError("an invoice asks for money")
        return cents


model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    '{"customer": "Ada", "cents": 0, "due": "2027-03-31"}',
    '{"customer": "Ada", "cents": 1250, "due": "2027-03-31"}',
    *["I would rather not."] * 3,
)
reader = Agent(model, output_type=Invoice, prompt="Read the letter.")
letter = "Dear Ada, please pay 12.50 EUR by 31 March 2027."

with reader.open(log="invoices.db") as desk:
    turn = desk.run(letter, conversation="first")
    print(f"{turn.output.customer} owes {turn.output.cents} cents until {turn.output.due}.")
    for step in desk.conversation("first").steps:
        if step.event_type == "failed":
            print("refused:", step.event["message"])

    turn = desk.run(letter, conversation="second")
    print(turn.ok, turn.failure)
