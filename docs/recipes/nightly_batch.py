"""Run an agent over many inputs at night; after a kill the same program goes on, and runs nothing twice.

Each input has a conversation, named after its key. `run_once` reads the answer that a conversation has, goes
on with a turn that a kill has cut off, and begins the others. In the first night here the process dies in
Cleo's turn, after the mail and before the answer. The second night sends no mail twice, and asks the model
only for what is missing. A failed turn is tried again at the next start.
"""

import os
import subprocess
import sys
from pathlib import Path

from toolchart import Agent, Reply, Request
from toolchart.testing import ScriptedModel, call_tool


def remind(customer: str) -> str:
    """Send a customer a reminder."""
    with Path("mails.txt").open("a") as mails:
        mails.write(f"Dear {customer}, please pay.\n")
    return "sent"


def die(request: Request) -> Reply:
    """Stop the process, as a power cut does."""
    sys.stdout.flush()
    os._exit(1)


ada, bob, cleo, dan = [call_tool("remind", customer=name) for name in ("Ada", "Bob", "Cleo", "Dan")]
night = sys.argv[1:] or ["second"]
model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    *((ada, "Done.", bob, "Done.", cleo, die) if night == ["first"] else ("Done.", dan, "Done."))
)
clerk = Agent(model, tools=[remind], prompt="You write to customers.")


def run_night() -> None:
    with clerk.open(log="reminders.db") as desk:
        for name in ("Ada", "Bob", "Cleo", "Dan"):
            turn = desk.run_once(f"Remind {name}.", conversation=f"january:{name}")
            print(f"{name}: {turn.content} Model calls in this night: {len(model.requests)}.")


if __name__ == "__main__":
    if night == ["second"]:
        first = subprocess.run([sys.executable, __file__, "first"])
        print("The first night ended with exit code", first.returncode)
    run_night()
    print(Path("mails.txt").read_text(), end="")
