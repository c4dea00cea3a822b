"""Let a call of a tool wait for a person's decision, in a chat over HTTP.

A turn with such a call rests. The decision may come days later, after a restart or in another process: here
every request finds a server that has just started, and the log has what waits. The log also says who decided.
A second decision is refused, so the call runs once. Starlette comes with the extra `serve`; to serve the
chat, install `uvicorn` and run `uvicorn approval_in_a_web_chat:app`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolchart import Agent, IllegalEvent, NotFound, Turn, tool
from toolchart.testing import ScriptedModel, call_tool

STAFF = {"bob"}


@tool(requires_approval=True)
def refund(order: str) -> str:
    """Give the money for an order back."""
    return f"{order} is refunded"


model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    call_tool("refund", order="A7"), "You have your money back."
)
support = Agent(model, tools=[refund], prompt="You help customers of a shop.")


@asynccontextmanager
async def open_agent(app: Starlette) -> AsyncIterator[None]:
    async with support.open(log="chat.db") as app.state.desk:
        yield


async def say(request: Request) -> JSONResponse:
    """A message of the user who owns the chat."""
    chat = request.app.state.desk.conversation(request.path_params["chat"], owner=find_user(request))
    return show(await chat.asend((await request.json())["message"]))


async def decide(request: Request) -> JSONResponse:
    """A decision of the staff about a call."""
    if (user := find_user(request)) not in STAFF:
        return JSONResponse({"error": "only the staff decides"}, 403)
    chat = request.app.state.desk.conversation(request.path_params["chat"])
    approved = (await request.json())["approved"]
    return show(await chat.aapprove(request.path_params["call"], approved=approved, by=user))


def find_user(request: Request) -> str:
    return request.headers["user"]  # yours: the user of the session


def show(turn: Turn[str]) -> JSONResponse:
    """What a page shows of a turn."""
    waiting = [{"call": call.id, "tool": call.tool, "params": call.params} for call in turn.pending_approvals]
    return JSONResponse({"text": turn.content, "waits": waiting})


def refuse(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": type(error).__name__}, 404 if isinstance(error, NotFound) else 409)


routes = [
    Route("/chats/{chat}", say, methods=["POST"]),
    Route("/chats/{chat}/calls/{call}", decide, methods=["POST"]),
]
app = Starlette(
    routes=routes, lifespan=open_agent, exception_handlers={NotFound: refuse, IllegalEvent: refuse}
)


async def post(user: str, path: str, **body: Any) -> Any:
    """Send a request to a server that starts for it and stops."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://chat") as web,
    ):
        response = await web.post(path, json=body, headers={"user": user})
    print(user, response.status_code, response.text)
    return response.json()


async def main() -> None:
    answer = await post("ada", "/chats/1", message="Refund A7, please.")
    call = f"/chats/1/calls/{answer['waits'][0]['call']}"
    await post("ada", call, approved=True)
    await post("bob", call, approved=True)
    await post("bob", call, approved=True)
    await post("eve", "/chats/1", message="Which order was it?")


if __name__ == "__main__":
    asyncio.run(main())
