"""Pictures, sounds, files, sources and calls of the host in replies: whole and streamed, on each wire."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_exchanges import get_adapter

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.bedrock import wire as wire_bedrock
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_chat
from toolchart.providers.shared.requests import Origin, find_foreign_data
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
)
from toolchart.states.messages import Message, PartDelta, Reply, TextDelta

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()

Frames = list[Any]


def read_stream(name: str, frames: Frames) -> tuple[list[Any], Reply]:
    """The deltas and the reply of streamed frames."""
    adapter = get_adapter(name)
    accumulator = adapter.accumulator()
    deltas = [delta for frame in frames for delta in accumulator.add_frame(frame)]
    return deltas, adapter.decode_answer(accumulator.build_body(True))


def join_deltas(deltas: list[Any]) -> list[ContentPart]:
    """The parts that a display has when the stream ends: pieces of a sound joined, others by the newest."""
    parts: dict[int, ContentPart] = {}
    for delta in deltas:
        if not isinstance(delta, PartDelta):
            continue
        earlier = parts.get(delta.index)
        if isinstance(delta.part, AudioPart) and isinstance(earlier, AudioPart):
            data = earlier.read_bytes() + delta.part.read_bytes()
            parts[delta.index] = AudioPart(data=base64.b64encode(data).decode())
        else:
            parts[delta.index] = delta.part
    return [parts[index] for index in sorted(parts)]


def list_others(reply: Reply) -> list[ContentPart]:
    return [part for part in reply.parts if not isinstance(part, TextPart)]


# -- one content on six wires ----------------------------------------------------------------------
# A content is a list of pieces: `(text, cut)` is a text that a stream cuts at `cut`, with or without sources.

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
PICTURES = st.binary(min_size=1, max_size=9).map(lambda data: ("picture", base64.b64encode(data).decode()))
SAID = st.tuples(st.just("text"), TEXTS, st.integers(0, 12), st.lists(TEXTS, max_size=2))
SEARCHES = st.tuples(st.just("search"), TEXTS, st.lists(TEXTS, max_size=2))
CONTENTS = st.lists(st.one_of(SAID, PICTURES, SEARCHES), max_size=6)


def make_chat(content: list[Any]) -> tuple[Any, Frames]:
    """Pictures of compatible hosts, annotations, and what Groq ran."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    frames: Frames = []
    lists: dict[str, list[Any]] = {"images": [], "annotations": [], "executed_tools": []}
    for kind, value, *others in content:
        deltas: list[dict[str, Any]] = []
        if kind == "text":
            message["content"] += value
            deltas += [{"content": value[: others[0]]}, {"content": value[others[0] :]}]
            for title in others[1]:
                note = {"type": "url_citation", "url_citation": {"url": f"https://{title}", "title": title}}
                lists["annotations"].append(note)
        elif kind == "picture":
            url = f"data:image/png;base64,{value}"
            lists["images"].append({"type": "image_url", "image_url": {"url": url}})
        else:
            results = {"results": [{"title": title, "url": f"https://{title}"} for title in others[0]]}
            tool = {"index": len(lists["executed_tools"]), "type": "search", "arguments": "{}"}
            deltas.append({"executed_tools": [tool]})
            lists["executed_tools"].append({**tool, "search_results": results, "output": value})
        frames += [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    for key in ("executed_tools", "images", "annotations"):
        if lists[key]:
            message[key] = lists[key]
            frames += [{"choices": [{"index": 0, "delta": {key: [entry]}}]} for entry in lists[key]]
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return {"choices": [{"message": message, "finish_reason": "stop"}]}, frames


def make_response(content: list[Any]) -> tuple[Any, Frames]:
    """Messages, drawn pictures and searches as items of a response."""
    output: list[Any] = []
    frames: Frames = []
    for kind, value, *others in content:
        place = {"output_index": len(output)}
        if kind == "text":
            notes = [
                {"type": "url_citation", "url": f"https://{t}", "title": t, "start_index": 0, "end_index": 1}
                for t in others[1]
            ]
            text = {"type": "output_text", "text": value, "annotations": notes}
            output.append({"type": "message", "role": "assistant", "content": [text]})
            for piece in (value[: others[0]], value[others[0] :]):
                frames.append(
                    {"type": "response.output_text.delta", "delta": piece, "content_index": 0, **place}
                )
            for number, note in enumerate(notes):
                kind = "response.output_text.annotation.added"
                index = {"annotation_index": number, "content_index": 0}
                frames.append({"type": kind, "annotation": note, **index, **place})
        elif kind == "picture":
            item = {"type": "image_generation_call", "id": f"ig{len(output)}", "result": value}
            frames.append({"type": "response.output_item.added", "item": {**item, "result": None}, **place})
            kind = "response.image_generation_call.partial_image"
            frames.append({"type": kind, "partial_image_b64": "AAAA", **place})
            output.append(item)
        else:
            sources = [{"type": "url", "url": f"https://{title}"} for title in others[0]]
            action = {"type": "search", "query": value, "sources": sources}
            item = {"type": "web_search_call", "id": f"ws{len(output)}", "status": "completed"}
            frames.append({"type": "response.output_item.added", "item": item, **place})
            output.append({**item, "action": action})
        frames.append({"type": "response.output_item.done", "item": output[-1], **place})
    response = {"status": "completed", "output": output}
    frames.append({"type": "response.completed", "response": {**response, "output": []}})
    return response, frames


def make_message(content: list[Any]) -> tuple[Any, Frames]:
    """Texts with sources, and searches, as blocks of Anthropic. It sends no pictures."""
    blocks: list[Any] = []
    frames: Frames = [{"type": "message_start", "message": {"type": "message", "role": "assistant"}}]
    for kind, value, *others in content:
        if kind == "text":
            sources = [{"type": "web_search_result_location", "url": title} for title in others[1]]
            block = {"type": "text", "text": value, **({"citations": sources} if sources else {})}
            deltas = [{"type": "text_delta", "text": value[: others[0]]}]
            deltas += [{"type": "citations_delta", "citation": source} for source in sources]
            deltas.append({"type": "text_delta", "text": value[others[0] :]})
            frames += _frame_block(len(blocks), {"type": "text", "text": ""}, deltas)
            blocks.append(block)
        elif kind == "search":
            use = {"type": "server_tool_use", "id": f"srvtoolu_{len(blocks)}", "name": "web_search"}
            found = [{"type": "web_search_result", "url": title, "title": title} for title in others[0]]
            result = {"type": "web_search_tool_result", "tool_use_id": use["id"], "content": found}
            text = '{"query": "boats"}'
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:5], text[5:])]
            frames += _frame_block(len(blocks), {**use, "input": {}}, pieces)
            frames += _frame_block(len(blocks) + 1, result, [])
            blocks += [{**use, "input": {"query": "boats"}}, result]
    frames += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    return {"content": blocks, "stop_reason": "end_turn"}, frames


def _frame_block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Frames:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def make_candidate(content: list[Any]) -> tuple[Any, Frames]:
    """Texts, pictures and code as parts of Gemini; pages behind the texts in bytes of UTF-8."""
    parts: list[Any] = []
    pieces: list[Any] = []
    chunks: list[Any] = []
    supports: list[Any] = []
    size = 0
    for kind, value, *others in content:
        if kind == "text":
            pieces += [{"text": value[: others[0]]}, {"text": value[others[0] :]}]
            segment = {"startIndex": size, "endIndex": size + len(value.encode()), "text": value}
            size += len(value.encode())
            # Whole, texts in a row are one part.
            if parts and "text" in parts[-1]:
                parts[-1] = {"text": parts[-1]["text"] + value}
            else:
                parts.append({"text": value})
            for title in others[1]:
                supports.append({"segment": segment, "groundingChunkIndices": [len(chunks)]})
                chunks.append({"web": {"uri": f"https://{title}", "title": title}})
        elif kind == "picture":
            parts.append({"inlineData": {"mimeType": "image/png", "data": value}})
            pieces.append(parts[-1])
        else:
            code = {"executableCode": {"language": "PYTHON", "code": value}}
            result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": value}}
            parts += [code, result]
            pieces += [code, result]
    grounding = {"groundingChunks": chunks, "groundingSupports": supports, "webSearchQueries": ["boats"]}
    last = {"finishReason": "STOP", **({"groundingMetadata": grounding} if chunks else {})}
    frames: Frames = [{"candidates": [{"content": {"parts": [piece]}}]} for piece in pieces]
    frames.append({"candidates": [{"content": {"parts": []}, **last}]})
    return {"candidates": [{"content": {"parts": parts}, **last}]}, frames


def make_converse(content: list[Any]) -> tuple[Any, Frames]:
    """Texts with sources, pictures, and searches of Nova, as blocks of Converse."""
    blocks: list[Any] = []
    frames: Frames = []
    for kind, value, *others in content:
        if kind == "text":
            deltas: list[Any] = [{"text": value[: others[0]]}, {"text": value[others[0] :]}]
            sources = [{"title": title, "location": {"web": {"url": title}}} for title in others[1]]
            cited = {"citationsContent": {"content": [{"text": value}], "citations": sources}}
            frames += _frame_converse(len(blocks), {}, [*deltas, *({"citation": s} for s in sources)])
            blocks.append(cited if sources else {"text": value})
        elif kind == "picture":
            image = {"format": "png", "source": {"bytes": value}}
            delta = {"image": {"source": image["source"]}}
            frames += _frame_converse(len(blocks), {"image": {"format": "png"}}, [delta])
            blocks.append({"image": image})
        else:
            use = {"toolUseId": f"t{len(blocks)}", "name": "nova_grounding", "type": "server_tool_use"}
            result = {"toolUseId": use["toolUseId"], "type": "nova_grounding_result", "status": "success"}
            pieces = [{"toolUse": {"input": '{"query":'}}, {"toolUse": {"input": ' "boats"}'}}]
            frames += _frame_converse(len(blocks), {"toolUse": use}, pieces)
            texts = [{"text": title} for title in others[0]]
            frames += _frame_converse(len(blocks) + 1, {"toolResult": result}, [{"toolResult": texts}])
            blocks += [
                {"toolUse": {**use, "input": {"query": "boats"}}},
                {"toolResult": {**result, "content": texts}},
            ]
    frames.append({"messageStop": {"stopReason": "end_turn"}})
    return {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "end_turn"}, frames


def _frame_converse(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Frames:
    place = {"contentBlockIndex": index}
    first = [{"contentBlockStart": {**place, "start": start}}] if start else []
    pieces = [{"contentBlockDelta": {**place, "delta": delta}} for delta in deltas]
    return [*first, *pieces, {"contentBlockStop": place}]


def make_ollama(content: list[Any]) -> tuple[Any, Frames]:
    """Texts and pictures; Ollama knows nothing else."""
    text = "".join(value for kind, value, *_ in content if kind == "text")
    images = [value for kind, value, *_ in content if kind == "picture"]
    frames: Frames = []
    for kind, value, *_ in content:
        message = {"content": value} if kind == "text" else {"content": "", "images": [value]}
        frames += [{"message": message, "done": False}] if kind != "search" else []
    end = {"done": True, "done_reason": "stop"}
    frames.append({"message": {"role": "assistant", "content": ""}, **end})
    return {"message": {"role": "assistant", "content": text, "images": images}, **end}, frames


WIRES: dict[str, Callable[[list[Any]], tuple[Any, Frames]]] = {
    "chat": make_chat,
    "responses": make_response,
    "messages": make_message,
    "gemini": make_candidate,
    "converse": make_converse,
    "ollama": make_ollama,
}
DECODERS: dict[str, Callable[[Any], Reply]] = {
    "chat": wire_chat.decode_reply,
    "responses": wire_responses.decode_reply,
    "messages": wire_anthropic.decode_reply,
    "gemini": wire_gemini.decode_reply,
    "converse": wire_bedrock.decode_reply,
    "ollama": wire_ollama.decode_reply,
}


@pytest.mark.parametrize("wire", WIRES)
@given(content=CONTENTS)
def test_a_streamed_reply_has_the_parts_of_a_whole_one(wire: str, content: list[Any]) -> None:
    """Text and parts are equal however the reply comes, and the deltas give the same parts and text."""
    body, frames = WIRES[wire](content)
    whole = DECODERS[wire](body)
    deltas, streamed = read_stream(wire, frames)
    assert (streamed.content, streamed.parts) == (whole.content, whole.parts)
    shown = join_deltas(deltas)
    others = list_others(whole)
    assert sorted(map(repr, shown)) == sorted(map(repr, others))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == (whole.content or "")


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire not in ("chat", "ollama")])
@given(content=CONTENTS)
def test_a_source_names_the_text_that_rests_on_it(wire: str, content: list[Any]) -> None:
    """Where a source has a place, that is the text of its piece, in characters of the whole answer."""
    whole = DECODERS[wire](WIRES[wire](content)[0])
    cited = [piece[1] for piece in content if piece[0] == "text" for _ in piece[3]]
    sources = [part for part in whole.parts if isinstance(part, CitationPart)]
    assert len(sources) == len(cited)
    for source, text in zip(sources, cited, strict=True):
        found = (whole.content or "")[source.start : source.end]
        assert found == (text[:1] if wire == "responses" else text)


def test_a_spoken_answer_is_one_sound() -> None:
    """Each piece of a streamed sound is Base64 of its own; joined they are the bytes, with the words."""
    pieces = [b"RIFF", b"\0", b"more of it"]
    frames: Frames = [
        {"choices": [{"index": 0, "delta": {"audio": {"id": "a1", "transcript": "Hel"}}}]},
        *(
            {"choices": [{"index": 0, "delta": {"audio": {"data": base64.b64encode(piece).decode()}}}]}
            for piece in pieces
        ),
        {"choices": [{"index": 0, "delta": {"audio": {"transcript": "lo.", "expires_at": 9}}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    deltas, reply = read_stream("chat", frames)
    (sound,) = list_others(reply)
    assert isinstance(sound, AudioPart)
    assert sound.read_bytes() == b"".join(pieces)
    assert (sound.media_type, sound.file_id, reply.content) == ("audio/wav", "a1", "Hello.")
    (shown,) = join_deltas(deltas)
    assert isinstance(shown, AudioPart)
    assert shown.read_bytes() == b"".join(pieces)


def test_sources_beside_the_choices_are_parts() -> None:
    """Perplexity and xAI list what they read beside the choices, with each chunk of a stream."""
    choice = {"message": {"role": "assistant", "content": "So [1]."}, "finish_reason": "stop"}
    results = [{"title": "A", "url": "https://a.test", "date": "2026-01-01"}]
    searched = wire_chat.decode_reply({"choices": [choice], "search_results": results})
    assert list_others(searched) == [CitationPart(url="https://a.test", title="A")]
    chunk = {"choices": [{"index": 0, "delta": {"content": "So [1]."}}], "citations": ["https://a.test"]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "citations": ["https://a.test"]}
    _, listed = read_stream("chat", [chunk, end])
    assert list_others(listed) == [CitationPart(url="https://a.test")]


def test_pictures_of_thoughts_are_none_of_the_answer() -> None:
    """Gemini sends sketches among its thoughts; the answer has the last picture only."""
    sketch = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thought": True}
    picture = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    body = {"candidates": [{"content": {"parts": [sketch, picture]}, "finishReason": "STOP"}]}
    assert wire_gemini.decode_reply(body).parts == (ImagePart(data=PIXEL, media_type="image/png"),)


def test_files_of_the_code_of_a_host_are_parts() -> None:
    """A file that code made is known by the host's id of it, on both wires that have such."""
    inner = {"type": "bash_code_execution_result", "stdout": "done", "stderr": "", "return_code": 0}
    made = [{"type": "bash_code_execution_output", "file_id": "file_1"}]
    result = {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "s",
        "content": {**inner, "content": made},
    }
    use = {"type": "server_tool_use", "id": "s", "name": "bash_code_execution", "input": {"command": "ls"}}
    reply = wire_anthropic.decode_reply({"content": [use, result], "stop_reason": "end_turn"})
    assert reply.parts == (
        HostCallPart(tool="code_execution", id="s", input={"code": "ls"}, output="done"),
        FilePart(file_id="file_1"),
    )
    note = {"type": "container_file_citation", "container_id": "c", "file_id": "file_2", "filename": "a.csv"}
    text = {"type": "output_text", "text": "Here.", "annotations": [note]}
    run = {"type": "code_interpreter_call", "id": "ci", "code": "x", "container_id": "c", "outputs": None}
    items = [run, {"type": "message", "content": [text]}]
    reply = wire_responses.decode_reply({"output": items, "status": "completed"})
    assert reply.parts == (
        HostCallPart(tool="code_execution", id="ci", input={"code": "x"}, container="c", units=1),
        TextPart(text="Here."),
        FilePart(file_id="file_2", name="a.csv"),
    )


def test_what_a_reply_showed_and_cannot_go_back_is_a_warning() -> None:
    """A picture of another host goes out as words, and the next reply says so; own items go back whole."""
    parts = (TextPart(text="Here:"), ImagePart(data=PIXEL, media_type="image/png"))
    message = Message(role="assistant", content="Here:", parts=parts)
    origin = Origin(provider="openai", host="h", model="m")
    (warning,) = find_foreign_data([message], origin, "message")
    assert "[image/png, 24 bytes]" in warning
    assert find_foreign_data([message], origin, "content", sends_media=True) == []
    data = {"provider": "openai", "output": [], "host": "h", "model": "m"}
    own = Message(role="assistant", content="Here:", parts=parts, provider_data=data)
    assert find_foreign_data([own], origin, "output") == []
