"""`attach`: pictures, files and sounds beside the prompt of a declared model call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.content import FilePart, ImagePart
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request
from toolchart.tools.data_flow import describe_data_flow

PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


def make_spec(attach: list[Any]) -> dict[str, Any]:
    """An agent whose one model call has a prompt with attachments."""
    return {
        "chart": {
            "name": "looking",
            "states": {
                "looking": {
                    "initial": True,
                    "enter": "look",
                    "transitions": [
                        {"event": "replied", "target": "done"},
                        {"event": "failed cancelled", "target": "error"},
                    ],
                },
                "done": {"final": True, "enter": "say"},
                "error": {"final": True, "enter": "answer_with_error"},
            },
        },
        "effects": {
            "look": {"call_model": {"as": "view", "prompt": "Compare: {{user_message}}", "attach": attach}},
            "say": {"answer": "{{view}}"},
        },
        "llms": {"m": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "m"}],
    }


def write_spec(folder: Path, attach: list[Any]) -> Path:
    """The file of that agent, beside the files that it attaches."""
    (folder / "plan.png").write_bytes(PIXEL)
    (folder / "notes.txt").write_text("Deep water.", "utf-8")
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump(make_spec(attach)), "utf-8")
    return file


def test_files_and_what_the_user_attached_stand_beside_the_prompt(tmp_path: Path) -> None:
    """Issue 15, build 1: the request has the prompt, the files beside the spec and the user's own picture, in
    order; the log replays, also where the files are gone."""
    file = write_spec(tmp_path, ["plan.png", "user_message", "notes.txt"])
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        seen.append(request)
        return Reply(content="alike", finish_reason="stop")

    own = ImagePart(data="AAAA", media_type="image/png", name="own.png")
    log = str(tmp_path / "log.db")
    with Engine(file, log=log, providers={"m": ScriptedProvider([answer])}) as engine:
        result = engine.run("this", conversation="c", attachments=[own])
        assert (result.content, result.warnings) == ("alike", ())
    (message,) = seen[0].messages
    assert message.content == "Compare: this"
    text, plan, user_part, notes = message.parts
    assert (text.text, user_part) == ("Compare: this", own)  # type: ignore[union-attr]
    assert isinstance(plan, ImagePart)
    assert plan.read_bytes() == PIXEL
    assert isinstance(notes, FilePart)
    assert (notes.name, notes.media_type) == ("notes.txt", "text/plain")
    (tmp_path / "plan.png").unlink()
    with Engine(make_spec([]), log=log) as engine:
        assert list(replay_conversation(engine.store, "c"))


@pytest.mark.parametrize(
    ("attach", "words"),
    [(["missing.png"], "missing.png"), ([{"type": "picture"}], "no part"), ("plan.png", "attach")],
)
def test_a_wrong_attachment_is_refused_at_load(tmp_path: Path, attach: Any, words: str) -> None:
    """A file that is not there, and a mapping that is no part, are errors with their place."""
    with pytest.raises(SpecError, match=words) as raised:
        load_agent_chart(load_spec(write_spec(tmp_path, attach)))
    assert "effects.look.call_model" in str(raised.value.path)


def test_a_spec_without_a_file_reads_no_file(tmp_path: Path) -> None:
    """S9: a spec that came from elsewhere, such as a log, cannot name a file of this machine."""
    (tmp_path / "secret").write_text("x", "utf-8")
    with pytest.raises(SpecError, match="without a file"):
        load_agent_chart(load_spec(make_spec([str(tmp_path / "secret")])))


def test_what_the_user_attached_counts_as_words_of_the_user(tmp_path: Path) -> None:
    """`check` follows pictures of strangers as it follows their words."""
    spec = load_spec(write_spec(tmp_path, ["user_message"]))
    chart = load_agent_chart(spec)
    assert describe_data_flow(spec, chart)
    assert "{{user_message}}" in chart.vocabulary.find_effect("look").templates
    assert json.dumps(chart.effects["look"]["call_model"]["attach"]) == '["user_message"]'
