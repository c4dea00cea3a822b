"""Lets one agent ask another, whose act waits for a person; a second process approves, and goes on."""

import sys
from pathlib import Path

from pydantic_ai import Agent, CallDeferred, Conversation, ConversationTypeAdapter, DeferredToolRequests

STATE = Path("c1.json")

billing = Agent(
    "openai:gpt-5.1", instructions="You do what concerns bills.", output_type=[str, DeferredToolRequests]
)


@billing.tool_plain(requires_approval=True)
def credit(customer: str, cents: int) -> str:
    """Give a customer money."""
    return f"{customer} has {cents} cents more"


front = Agent("openai:gpt-5.1", instructions="You help customers.", output_type=[str, DeferredToolRequests])


@front.tool_plain(name="billing")
async def ask_billing(message: str) -> str:
    """Knows bills, and gives credit."""
    result = await billing.run(message)
    if isinstance(result.output, DeferredToolRequests):
        child = ConversationTypeAdapter.dump_python(result.conversation, mode="json")
        raise CallDeferred(metadata={"child": child})
    return result.output


def find_requests(conversation: Conversation) -> DeferredToolRequests:
    """What a conversation waits for."""
    return conversation.deferred_tool_requests or DeferredToolRequests()


def load_child(requests: DeferredToolRequests, call_id: str) -> Conversation:
    """The conversation behind a call that waits."""
    return ConversationTypeAdapter.validate_python(requests.metadata[call_id]["child"])


def ask() -> None:
    """Begin the run. It ends where it waits for a person."""
    result = front.run_sync("I paid 500 cents too much. I am Ada.")
    STATE.write_bytes(ConversationTypeAdapter.dump_json(result.conversation))
    requests = find_requests(result.conversation)
    for call in requests.calls:
        for waiting in find_requests(load_child(requests, call.tool_call_id)).approvals:
            print(f"{waiting.tool_name} {waiting.args_as_dict()} waits")


def approve() -> None:
    """Approve what waits, in another process, and go on."""
    conversation = ConversationTypeAdapter.validate_json(STATE.read_bytes())
    requests = find_requests(conversation)
    answers = {}
    for call in requests.calls:
        child = load_child(requests, call.tool_call_id)
        decisions = find_requests(child).build_results(approve_all=True)
        answers[call.tool_call_id] = billing.run_sync(
            conversation=child, deferred_tool_results=decisions
        ).output
    result = front.run_sync(
        conversation=conversation, deferred_tool_results=requests.build_results(calls=answers)
    )
    print(result.output)


if __name__ == "__main__":
    {"ask": ask, "approve": approve}[sys.argv[1]]()
