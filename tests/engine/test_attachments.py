"""Pictures, files and sounds in a conversation: attached, returned by tools, recorded, replayed, exported."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_spec, reply_with_calls

from toolchart import tool
from toolchart.engine import Engine
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.verify import verify_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.content import FilePart, ImagePart, TextPart, make_part
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request
from toolchart.states.reading_limits import READING
from toolchart.tools.sources.attachments import load_attachments

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


@tool(isolation="inline")
def draw(title: str) -> list[Any]:
    """Draw a picture."""
    return [title, make_part(PICTURE, "image/png", "drawing.png")]


def test_an_attached_picture_reaches_the_model_and_the_log(tmp_path: Path) -> None:
    """S2.5: an attached file is a part of the user's message in the request, and again after the log is read;
    the record of the message holds it once, and replay derives the same request."""
    file = tmp_path / "plan.png"
    file.write_bytes(PICTURE)
    with make_engine(["A plan.", "Still a plan."], log=tmp_path / "log.db") as engine:
        result = engine.run("What is this?", conversation="c", attachments=[file])
        engine.run("And now?", conversation="c")
        loaded = load_conversation(engine.store, "c")
        assert loaded is not None
        message = loaded.snapshot.messages[0]
        assert verify_conversation(engine.store.read_lines("c"), "c").records == 5
        exported = export_messages(engine.store.read_lines("c"), "c")
    assert result.content == "A plan."
    assert message.content == "What is this?"
    assert message.parts == (TextPart(text="What is this?"), make_part(PICTURE, "image/png", "plan.png"))
    url = exported[1]["content"][1]["image_url"]["url"]
    assert base64.b64decode(url.partition(",")[2]) == PICTURE


def test_a_picture_of_a_tool_is_part_of_its_result(tmp_path: Path) -> None:
    """A tool returns a picture among texts: the result describes it, the model gets its bytes, and a reader
    of the log sees the same message."""
    with make_engine(
        [reply_with_calls(("draw", {"title": "Plan"})), "Done."], log=tmp_path / "log.db", functions=[draw]
    ) as engine:
        engine.run("Draw.", conversation="c")
        loaded = load_conversation(engine.store, "c")
        exported = export_messages(engine.store.read_lines("c"), "c")
        assert loaded is not None
        (message,) = [message for message in loaded.snapshot.messages if message.role == "tool"]
    assert json.loads(message.content or "")["result"] == ["Plan", "[image/png, 10,248 bytes, drawing.png]"]
    assert message.parts[1:] == (make_part(PICTURE, "image/png", "drawing.png"),)
    assert [part["type"] for part in exported[3]["content"]] == ["text", "image_url"]


def test_a_message_during_a_turn_keeps_its_parts(tmp_path: Path) -> None:
    """A picture that is sent while a turn runs waits in the inbox and stands in the next request."""
    requests: list[Request] = []

    class Model(ScriptedProvider):
        async def complete(self, request: Request) -> Reply:
            requests.append(request)
            if len(requests) == 1:
                await engine.conversation("c").asay("See this.", attachments=[PICTURE])
            return Reply(content="Yes.", finish_reason="stop")

    engine = Engine(make_spec(), log=tmp_path / "log.db", providers={"model": Model([])})

    async def talk() -> None:
        async with engine:
            await engine.arun("Hello.", conversation="c")
            await engine.arun("And?", conversation="c")

    asyncio.run(talk())
    users = [message for message in requests[1].messages if message.role == "user"]
    assert [message.content for message in users] == ["Hello.", "See this.", "And?"]
    assert users[1].parts == (TextPart(text="See this."), make_part(PICTURE, "image/png"))


# -- what is attached ----------------------------------------------------------------------------


async def test_the_kind_is_read_from_the_bytes(tmp_path: Path) -> None:
    """A name without a suffix does not matter; bytes that show their kind decide."""
    (tmp_path / "scan").write_bytes(b"%PDF-1.7 ...")
    (tmp_path / "notes.md").write_text("Hello")
    (tmp_path / "blob").write_bytes(b"\xff\x00\x12")
    parts = await load_attachments([tmp_path / "scan", str(tmp_path / "notes.md"), tmp_path / "blob"])
    kinds = [part.media_type for part in parts if isinstance(part, FilePart)]
    assert kinds == ["application/pdf", "text/markdown", "application/octet-stream"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "missing.png", "No such file"),
        (lambda folder: folder, "not a regular file|Is a directory"),
        (lambda folder: _make_pipe(folder / "pipe"), "not a regular file"),
        (lambda folder: _write(folder / "fake.png", b"no picture"), "no image/png"),
        (lambda folder: _write(folder / "empty.txt", b""), "empty"),
        (lambda folder: _write(folder / "large.bin", b"\0" * (READING.result_part_bytes + 1)), "at most"),
        (lambda folder: "http://127.0.0.1:9/a.png", "cannot be fetched"),
        (lambda folder: "http://169.254.169.254/latest/meta-data", "cannot be fetched"),
        (lambda folder: ImagePart(), "`data` or `url`"),
        (lambda folder: ImagePart(data="AAAA"), "media_type"),
        (lambda folder: ImagePart(data="?", media_type="image/png"), "base64"),
    ],
)
async def test_what_cannot_be_attached_is_named(tmp_path: Path, make: Any, reason: str) -> None:
    """A missing file, a folder, a pipe (which is not waited for), a wrong kind, too many bytes, a private
    address or an incomplete part: a located error, and nothing is sent or recorded."""
    async with make_engine(["unused"]) as engine:
        with pytest.raises(SpecError, match=reason):
            await engine.arun("Look.", conversation="c", attachments=[make(tmp_path)])
        assert not list(engine.store.read_lines("c"))


def _make_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
