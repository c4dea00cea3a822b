"""Content parts on every wire: encoded as the SDKs' own types have them, decoded from replies, or refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.registry import create_body_builder
from toolchart.specs.models import LLMConfig
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
    join_texts,
)
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Request, ToolCall

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
SOUND = base64.b64encode(b"RIFF\0\0\0\0WAVE" + b"\0" * 16).decode()
PAPER = base64.b64encode(b"%PDF-1.7\n").decode()
NOTES = base64.b64encode("Grüße".encode()).decode()

TEXT = TextPart(text="What is this?")
IMAGE = ImagePart(data=PIXEL, media_type="image/png")
LINKED_IMAGE = ImagePart(url="https://example.org/a.png")
AUDIO = AudioPart(data=SOUND, media_type="audio/wav")
PDF = FilePart(data=PAPER, media_type="application/pdf", name="plan.pdf")
LINKED_PDF = FilePart(url="https://example.org/plan.pdf")
TEXT_FILE = FilePart(data=NOTES, media_type="text/plain", name="notes.txt")

ENCODERS = {
    "chat": wire_openai.encode_request,
    "responses": wire_responses.encode_request,
    "gemini": wire_gemini.encode_request,
    "messages": wire_anthropic.encode_request,
    "ollama": wire_ollama.encode_request,
}

TAKEN: dict[str, list[ContentPart]] = {
    "chat": [TEXT, IMAGE, LINKED_IMAGE, AUDIO, PDF, TEXT_FILE],
    "responses": [TEXT, IMAGE, LINKED_IMAGE, PDF, LINKED_PDF, TEXT_FILE],
    "gemini": [TEXT, IMAGE, LINKED_IMAGE, AUDIO, PDF, LINKED_PDF, TEXT_FILE],
    "messages": [TEXT, IMAGE, LINKED_IMAGE, PDF, LINKED_PDF, TEXT_FILE],
    "ollama": [TEXT, IMAGE, TEXT_FILE],
}
"""The parts that each wire format takes."""


def make_request(*messages: Message) -> Request:
    return Request(model="m", messages=messages)


def make_user_message(*parts: ContentPart) -> Message:
    return Message(role="user", content=join_texts(parts), parts=parts)


def encode(wire: str, *messages: Message) -> dict[str, Any]:
    return ENCODERS[wire](make_request(*messages))


def validate_content(wire: str, body: dict[str, Any]) -> None:
    """Check the first user message against the SDK's own type of it; extra keys are refused."""
    if wire == "gemini":
        from google.genai import types

        for part in body["contents"][0]["parts"]:
            types.Part.model_validate(part)  # the SDK's models forbid unknown keys
        return
    if wire == "ollama":
        import ollama

        (message,) = body["messages"]
        assert set(message) <= set(ollama.Message.model_fields)
        images = [ollama.Image(value=image) for image in message.get("images", [])]
        sent = ollama.Message(role="user", content=message["content"], images=images).model_dump()
        assert sent["images"] == message.get("images", [])
        return
    message = body["input" if wire == "responses" else "messages"][0]
    for part in message["content"]:
        _get_adapter(wire).validate_python(part)


def _get_adapter(wire: str) -> TypeAdapter[Any]:
    from anthropic.types import ContentBlockParam
    from openai.types.chat import ChatCompletionContentPartParam
    from openai.types.responses import ResponseInputContentParam

    kinds: dict[str, Any] = {
        "chat": ChatCompletionContentPartParam,
        "responses": ResponseInputContentParam,
        "messages": ContentBlockParam,
    }
    return TypeAdapter(kinds[wire])


@pytest.mark.parametrize("wire", ENCODERS)
def test_each_part_has_the_form_of_the_sdk(wire: str) -> None:
    """Each part that a wire takes is valid by the SDK's own type of it, and keeps its bytes or address."""
    for part in TAKEN[wire]:
        body = encode(wire, make_user_message(part))
        validate_content(wire, body)
        kept = "Grüße" if part is TEXT_FILE and wire != "gemini" else None
        kept = kept or getattr(part, "data", "") or getattr(part, "url", "") or getattr(part, "text", "")
        assert kept in str(body), (wire, part)


@pytest.mark.parametrize("wire", ENCODERS)
def test_a_part_that_a_wire_does_not_take_is_refused_before_anything_is_sent(wire: str) -> None:
    """No part is left out in silence: the error names the part and says what to do."""
    others = [part for part in (IMAGE, LINKED_IMAGE, AUDIO, PDF, LINKED_PDF) if part not in TAKEN[wire]]
    for part in others:
        with pytest.raises(ProviderError) as caught:
            encode(wire, make_user_message(TEXT, part))
        assert caught.value.kind == "bad_request"
        assert caught.value.message.count(":") >= 1
        assert (part.media_type or part.url) in caught.value.message
    assert others or wire == "gemini"


@pytest.mark.parametrize("wire", ENCODERS)
def test_the_order_of_parts_is_kept(wire: str) -> None:
    """A text after a picture stays after it where the wire has an order; Ollama keeps pictures apart."""
    body = str(encode(wire, make_user_message(TEXT, IMAGE, TextPart(text="And then?"))))
    places = [body.index(text) for text in ("What is this?", PIXEL, "And then?")]
    assert places == sorted(places) or wire == "ollama"


CALL = ToolCall(id="c1", name="draw", arguments={})
RESULT = Message(
    role="tool",
    content='{"success":true,"result":"[image/png]"}',
    tool_call_id="c1",
    name="draw",
    parts=(TextPart(text='{"success":true,"result":"[image/png]"}'), IMAGE),
)


@pytest.mark.parametrize("wire", ENCODERS)
def test_a_picture_of_a_tool_reaches_the_model(wire: str) -> None:
    """A result with a picture: inside the result where the wire can, else in the next message of the user,
    after all results of the reply."""
    other = ToolCall(id="c2", name="draw", arguments={})
    body = encode(
        wire,
        Message(role="user", content="Draw."),
        Message(role="assistant", tool_calls=(CALL, other)),
        RESULT,
        Message(role="tool", content='{"success":true,"result":1}', tool_call_id="c2", name="draw"),
        Message(role="user", content="Thanks."),
    )
    assert str(body).count(PIXEL) == 1
    if wire == "chat":
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "user", "user"]
        assert "c1" in body["messages"][4]["content"][0]["text"]
    if wire == "responses":
        outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
        assert [part["type"] for part in outputs[0]] == ["input_text", "input_image"]
    if wire == "messages":
        (block,) = [b for b in body["messages"][2]["content"] if b.get("tool_use_id") == "c1"]
        assert [part["type"] for part in block["content"]] == ["text", "image"]


@pytest.mark.parametrize("wire", ENCODERS)
def test_a_picture_of_another_model_is_described(wire: str) -> None:
    """A picture that an earlier reply drew is sent back where the wire can say it, else in words."""
    message = Message(role="assistant", content="Here:", parts=(TextPart(text="Here:"), IMAGE))
    body = str(encode(wire, Message(role="user", content="Draw."), message))
    assert (PIXEL in body) if wire == "gemini" else ("[image/png, 24 bytes]" in body)
    assert "Here:" in body


def test_sources_are_never_sent() -> None:
    """A citation of a reply is for the reader; no wire sends it back."""
    parts = (TextPart(text="So it is."), CitationPart(url="https://example.org/source", title="Source"))
    message = Message(role="assistant", content="So it is.", parts=parts)
    for wire in ENCODERS:
        body = str(encode(wire, Message(role="user", content="Is it?"), message))
        assert "example.org" not in body
        assert "So it is." in body


# -- replies -------------------------------------------------------------------------------------


def test_gemini_replies_with_pictures_and_sources() -> None:
    """Pictures stand among the texts in their order, pages after them; they come back as the same bytes."""
    body = {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Here: "},
                        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
                        {"text": "done"},
                    ]
                },
                "finishReason": "STOP",
                "groundingMetadata": {"groundingChunks": [{"web": {"uri": "https://a.org", "title": "A"}}]},
            }
        ]
    }
    reply = wire_gemini.decode_reply(body)
    assert reply.content == "Here: done"
    assert reply.parts == (
        TextPart(text="Here: "),
        IMAGE,
        TextPart(text="done"),
        CitationPart(url="https://a.org", title="A"),
    )


def test_chat_replies_with_pictures_sound_and_sources() -> None:
    """Pictures of compatible hosts, a spoken answer with its transcript, and the sources of a search."""
    message = {
        "role": "assistant",
        "content": None,
        "images": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}],
        "audio": {"id": "audio_1", "data": SOUND, "transcript": "Hello.", "expires_at": 1},
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.org", "title": "A"}}],
    }
    reply = wire_openai.decode_reply({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert reply.content == "Hello."
    assert reply.parts == (
        TextPart(text="Hello."),
        IMAGE,
        AudioPart(data=SOUND, media_type="audio/wav", file_id="audio_1"),
        CitationPart(url="https://a.org", title="A"),
    )


def test_responses_with_pictures_and_sources() -> None:
    """A picture that the host drew, and the sources of a text after it."""
    source = {"type": "url_citation", "url": "https://a.org", "title": "A", "start_index": 0, "end_index": 1}
    text = {"type": "output_text", "text": "Here.", "annotations": [source]}
    output = [
        {"type": "image_generation_call", "id": "i", "result": PIXEL, "output_format": "png"},
        {"type": "message", "role": "assistant", "content": [text]},
    ]
    reply = wire_responses.decode_reply({"output": output, "status": "completed"})
    assert reply.content == "Here."
    assert reply.parts == (
        HostCallPart(tool="image_generation", id="i", units=1),
        IMAGE,
        TextPart(text="Here."),
        CitationPart(url="https://a.org", title="A", start=0, end=1),
    )


def test_anthropic_replies_with_sources() -> None:
    """Each source stands after the text that rests on it."""
    source = {"type": "web_search_result_location", "url": "https://a.org", "title": "A", "cited_text": "so"}
    content = [{"type": "text", "text": "It is", "citations": [source]}, {"type": "text", "text": " so."}]
    reply = wire_anthropic.decode_reply({"content": content, "stop_reason": "end_turn"})
    assert reply.parts == (
        TextPart(text="It is"),
        CitationPart(url="https://a.org", title="A", text="so", start=0, end=5),
        TextPart(text=" so."),
    )


def test_a_reply_of_nothing_but_text_has_no_parts() -> None:
    """Texts alone are the content, and are kept once."""
    body = {"candidates": [{"content": {"parts": [{"text": "a"}, {"text": "b"}]}, "finishReason": "STOP"}]}
    assert wire_gemini.decode_reply(body).parts == ()
    text = {"role": "assistant", "content": "a"}
    assert wire_openai.decode_reply({"choices": [{"message": text, "finish_reason": "stop"}]}).parts == ()


@pytest.mark.parametrize("cites_documents", [False, True])
def test_text_files_are_documents_that_anthropic_can_cite(cites_documents: bool) -> None:
    """A text file goes to Anthropic as a document with its name and text, and `citations: true` of the entry
    asks for citations of every document, as the SDK's type has them; in a tool's result too."""
    config = LLMConfig.model_validate({"provider": "anthropic", "citations": cites_documents})
    builder = create_body_builder(config, resolve=str)
    result = Message(role="tool", tool_call_id="c1", name="draw", content="read", parts=(TEXT_FILE,))
    called = Message(role="assistant", tool_calls=(CALL,))
    request = make_request(make_user_message(TEXT_FILE, PDF), called, result)
    body = builder.build_body(request, stream=False)
    validate_content("messages", body)
    user, _, tool = body["messages"]
    documents = [*user["content"], tool["content"][0]["content"][0]]
    assert [document["source"]["type"] for document in documents] == ["text", "base64", "text"]
    assert documents[0]["title"] == "notes.txt"
    assert documents[0]["source"]["data"] == TEXT_FILE.read_bytes().decode()
    cited = [document.get("citations") for document in documents]
    assert cited == [{"enabled": True} if cites_documents else None] * 3
