"""Text calls without a marker, or broken ones, are calls or refused calls, and never an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from resource_limits import ends_in_time

from toolchart import Engine, tool
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.providers.text_calls.formats import TEXT_FORMATS, CallText, choose_boundary
from toolchart.providers.text_calls.provider import TextCallProvider
from toolchart.providers.text_calls.scanner import TextCallScanner, find_text_call_warnings
from toolchart.states.messages import (
    CallStarted,
    Message,
    Reply,
    Request,
    TextDelta,
    ToolCall,
    ToolDefinition,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = (
    ToolDefinition(name="weather", description="Weather.", parameters=SCHEMA),
    ToolDefinition(name="now", description="The time.", parameters={"type": "object"}),
)
REQUEST = Request(model="m", messages=[Message(role="user", content="Go.")], tools=TOOLS)


class PieceProvider(ScriptedProvider):
    """Streams its replies in pieces of some characters."""

    def __init__(self, reply: Reply, length: int) -> None:
        super().__init__([reply])
        self._reply, self._length = reply, length

    async def stream(self, request: Request) -> AsyncGenerator[Any, None]:
        """The deltas and the reply."""
        text = self._reply.content or ""
        for start in range(0, len(text), self._length):
            yield TextDelta(text=text[start : start + self._length])
        yield self._reply


def read(tool_format: str, text: str, *, request: Request = REQUEST, **reply: Any) -> Reply:
    """The reply that a text is read as, whole and in pieces; the deltas are its content and its calls."""
    sent = Reply(content=text, **{"finish_reason": "stop", **reply})
    whole = asyncio.run(TextCallProvider(ScriptedProvider([sent]), tool_format).complete(request))
    for length in (1, 2, 7, max(1, len(text))):

        async def collect(length: int = length) -> list[Any]:
            provider = TextCallProvider(PieceProvider(sent, length), tool_format)
            return [item async for item in provider.stream(request)]

        *deltas, streamed = asyncio.run(collect())
        assert streamed == whole.__class__(**{**_fields(whole), "wire_digest": streamed.wire_digest})
        shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        assert shown == (whole.content or ""), length
        names = [delta.name for delta in deltas if isinstance(delta, CallStarted)]
        assert names == [call.name for call in whole.tool_calls[len(sent.tool_calls) :]], length
    return whole


def _fields(reply: Reply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in reply.__struct_fields__}


WHOLE = '{"name": "weather", "arguments": {"city": "Brno"}}'
TAGS = "<function=weather>\n<parameter=city>\nBrno\n</parameter>\n</function>"
BEGINS, BEGIN, SEP = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
END, ENDS = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
BRNO: dict[str, Any] = {"city": "Brno"}

JSON_FORMS = [
    f"<tool_call>\n{WHOLE}",
    f"{WHOLE}\n</tool_call>",
    f"<tool_call>\n{WHOLE}\n</tool_ca",
    f"<TOOL_CALL>{WHOLE}</Tool_Call>",
    f"  <tool_call>\n\n  {WHOLE}  \n</tool_call>  \n",
    f"<tool_call>\n```json\n{WHOLE}\n```\n</tool_call>",
    f"```xml\n<tool_call>\n{WHOLE}\n</tool_call>\n```",
    f"`<tool_call>{WHOLE}</tool_call>`",
    f"<tool_call><tool_call>{WHOLE}</tool_call></tool_call>",
    f"<tool_call>{WHOLE}</tool_call><|im_end|>",
    '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Brno\\"}"}</tool_call>',
    '<tool_call>{"type": "function", "function": {"name": "weather", "parameters": {"city": "Brno"}}}',
    f"```json\n{WHOLE}\n```",
    f"<think>Brno.</think>\n{WHOLE}\n</tool_call>",
    f"<think>Say <tool_call>{WHOLE}</tool_call>?</think>\n<tool_call>\n{WHOLE}",
]
TAG_FORMS = [
    TAGS,
    f"{TAGS}\n</tool_call>",
    f"<tool_call>\n{TAGS}",
    f"<tool_call>\n{TAGS.removesuffix('</function>')}</tool_call>",
    f"{TAGS.replace('function', 'FUNCTION')}\n</tool_call>",
    f"```\n{TAGS}\n```",
    '<function=weather>{"city": "Brno"}</function>',
    f"<think>Hm.</think>{TAGS}\n</tool_call>",
]
MISTRAL_FORMS = [
    '[TOOL_CALLS]weather[ARGS]{"city": "Brno"}</s>',
    'weather[ARGS]{"city": "Brno"}',
    'weather{"city": "Brno"}',
    '[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Brno"}',
    f"[{WHOLE}]",
    f"[tool_calls] [{WHOLE}]",
]
LLAMA_FORMS = [
    '<|python_tag|>{"name": "weather", "parameters": {"city": "Brno"}}<|eom_id|>',
    '{"name": "weather", "parameters": {"city": "Brno"}}<|eot_id|>',
    '{"type": "function", "name": "weather", "parameters": {"city": "Brno"}}',
]
DEEPSEEK_FORMS = [
    f'{BEGIN}weather{SEP}{{"city": "Brno"}}{END}{ENDS}',
    f'{BEGINS}{BEGIN}weather{SEP}{{"city": "Brno"}}',
    f'{BEGINS}weather{SEP}{{"city": "Brno"}}{ENDS}',
    f'weather{SEP}{{"city": "Brno"}}{END}{ENDS}',
    f'function{SEP}weather\n```json\n{{"city": "Brno"}}\n```{END}',
    '<|tool_calls_begin|><|tool_call_begin|>weather<|tool_sep|>{"city": "Brno"}',
]
PYTHONIC_FORMS = [
    '[weather(city="Brno")',
    'weather(city="Brno")]',
    'weather(city="Brno")',
    '<|python_start|>[weather(city="Brno")]',
    '<|python_start|>[weather(city="Brno")]<|python_end|>',
    '```python\n[weather(city="Brno")]\n```',
]
FORMS = {
    "hermes": JSON_FORMS + TAG_FORMS,
    "qwen3_coder": JSON_FORMS + TAG_FORMS,
    "mistral": MISTRAL_FORMS,
    "llama3": LLAMA_FORMS,
    "deepseek": DEEPSEEK_FORMS,
    "pythonic": PYTHONIC_FORMS,
}
LONE = ("weather[ARGS]", f"weather{SEP}", f"function{SEP}", "```", "`", "{", "[", "weather", "<think>")
"""What is a call only at the beginning of a message or of a line."""


def test_every_format_has_its_forms() -> None:
    """The table of forms has each format, so that a new row without forms is told."""
    assert list(FORMS) == list(TEXT_FORMATS)
    assert all(FORMS.values())


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FORMS.items() for text in texts])
def test_a_whole_call_is_read_whatever_marker_is_missing(name: str, text: str) -> None:
    """S5.2: a call that is whole in its own form is read: alone, behind a sentence, twice; also in `auto`."""
    for tool_format in (name, "auto"):
        reply = read(tool_format, text)
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [("weather", BRNO)]
        assert (reply.content, reply.finish_reason) == (None, "tool_calls")
        assert all(call.is_from_text for call in reply.tool_calls)
        if (text.startswith(LONE) and not text.endswith(("</tool_call>", END, ENDS))) or "```" in text:
            continue
        reply = read(tool_format, f"I look it up.\n\n{text}")
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [("weather", BRNO)]
        assert (reply.content, reply.finish_reason) == ("I look it up.", "tool_calls")
        if name not in ("llama3", "pythonic") and not text.startswith(LONE) and not text.endswith("_ca"):
            twice = read(tool_format, f"{text}\n{text.replace('Brno', 'Ostrava')}")
            assert [call.arguments for call in twice.tool_calls] == [BRNO, {"city": "Ostrava"}], tool_format
            assert twice.content is None


BROKEN: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("hermes", "<tool_call>\n" + WHOLE[:-3], [("weather", "not valid JSON")]),
    ("hermes", "<tool_call>\n" + WHOLE[:-1] + "\n</tool_call>", [("weather", "not valid JSON")]),
    ("hermes", '<tool_call>{"name": "weather", "arguments": {city: 1}}</tool_call>', [("weather", "JSON")]),
    ("hermes", '<tool_call>{"name": "weather", "arguments": "{city"}</tool_call>', [("weather", "JSON")]),
    ("hermes", '<tool_call>{"name": "weather", "city": "Brno"}</tool_call>', [("weather", "'city'")]),
    ("hermes", '<tool_call>{"name": "weather", "arguments": ["a"]}</tool_call>', [("weather", "array")]),
    ("hermes", '<tool_call>{"name": "weather", "arguments": {"a": 1, "a": 2}}', [("weather", "twice")]),
    ("hermes", '<tool_call>weather(city="Brno")</tool_call>', [("weather", "no call")]),
    ("hermes", '{"name": "weather", "arguments": {"city"}}\n</tool_call>', [("weather", "JSON")]),
    ("hermes", '<tool_call>{"name": "stranger", "arguments": {', [("stranger", "JSON")]),
    (
        "hermes",
        '<tool_call>\n{"name": "weather", "arguments": {"city":\n<tool_call>\n{"name": "now"}\n</tool_call>',
        [("weather", "JSON"), ("now", "")],
    ),
    ("qwen3_coder", TAGS.replace("</parameter>\n", ""), [("weather", "'city' has no end")]),
    ("qwen3_coder", TAGS.removesuffix("</function>"), [("weather", "no end")]),
    (
        "qwen3_coder",
        "<function=weather><parameter=city>a\n<parameter=n>1</parameter></function></tool_call>",
        [("weather", "'city' has no end, or comes twice")],
    ),
    ("qwen3_coder", f"{TAGS.replace('</parameter>', 'x')}\n<tool_call>", [("weather", "no end")]),
    ("mistral", '[TOOL_CALLS]weather[ARGS]{"city": "Br', [("weather", "JSON")]),
    ("mistral", 'weather[ARGS]{"city": "Br', [("weather", "JSON")]),
    ("mistral", 'weather{"city": "Br', [("weather", "JSON")]),
    ("llama3", '<|python_tag|>{"name": "weather", "parameters": {"city": "Br', [("weather", "JSON")]),
    ("llama3", '{"name": "weather", "parameters": {"city": "Br', [("weather", "JSON")]),
    ("deepseek", f'{BEGINS}{BEGIN}weather{SEP}{{"city": "Br', [("weather", "JSON")]),
    ("deepseek", f'{BEGIN}function{SEP}weather\n```json\n{{"city": "Br', [("weather", "JSON")]),
    ("pythonic", '[weather(city="Br', [("weather", "literals")]),
    ("pythonic", "[weather(city=find_city())]", [("weather", "literals")]),
    ("pythonic", '<|python_start|>[weather("Brno")]<|python_end|>', [("weather", "literals")]),
]


@pytest.mark.parametrize(("name", "text", "problems"), BROKEN)
def test_a_broken_call_is_refused_and_no_answer(
    name: str, text: str, problems: list[tuple[str, str]]
) -> None:
    """A call that is not whole is never repaired: it is a call with a problem, and no part of the content."""
    for tool_format in (name, "auto"):
        reply = read(tool_format, text)
        assert [call.name for call in reply.tool_calls] == [name for name, _ in problems]
        for call, (_, problem) in zip(reply.tool_calls, problems, strict=True):
            assert problem in (call.problem or "")
            assert (call.arguments is None) is bool(problem)
        assert (reply.content, reply.finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>"),
        ("hermes", '<tool_call>\n{"nam'),
        ("hermes", "<tool_call>soon</tool_call>"),
        ("hermes", "\n</tool_call>"),
        ("mistral", "[TOOL_CALLS]"),
        ("llama3", "<|python_tag|>{"),
        ("deepseek", BEGINS),
    ],
)
def test_a_call_without_a_name_is_a_malformed_call(name: str, text: str) -> None:
    """Where not even the name can be read, the reply is a malformed call, and a warning says why."""
    for tool_format in (name, "auto"):
        for lead in ("", "I look it up.\n"):
            reply = read(tool_format, lead + text)
            assert (reply.content or "", reply.tool_calls) == (lead.strip(), ())
            assert (reply.finish_reason, len(reply.warnings)) == ("malformed_call", 1)


PROSE = [
    "The tag <tool_call> begins a call, and </tool_call> ends it.",
    "Use <tool_call>.",
    f"Write `<tool_call>{WHOLE}</tool_call>` and wait.",
    f"Write it so:\n\n```xml\n<tool_call>\n{WHOLE}\n</tool_call>\n```\n\nThen wait.",
    f"Write it so:\n~~~\n{TAGS}\n~~~",
    f"```\n{TAGS}\n```\nThis is a call.",
    "`<tool_call>` begins a call.",
    'A call is <tool_call>{"name": "f", "arguments": {}}</tool_call> in Hermes.',
    "In Qwen, <function=name><parameter=key>value</parameter></function> is a call.",
    "Mistral writes [TOOL_CALLS] in front, Llama <|python_tag|>, and then the call.",
    "weather is what I tell.",
    "weather(city) tells the weather of a city.",
    "[weather](https://example.com) has it.",
    '{"name": "Anna", "parameters": {"x": 1}}',
    '{"answer": 4}',
    '[1, 2, "[weather()]"]',
    "a < b, b > c, [x], {y}, <b>c</b> and `d`",
    "Dear <name>,\n\n- `{`\n- <function\n\n```\nif a < b:\n    pass\n```\n",
    "&lt;tool_call&gt;{}&lt;/tool_call&gt;",
    "  It begins with blanks, and ends with them.  \n",
    "This ends in <tool_cal",
]


@pytest.mark.parametrize("text", PROSE)
def test_an_answer_about_calls_stays_an_answer(text: str) -> None:
    """Markers that are quoted or mentioned, and JSON and brackets that are no call, stay the answer."""
    for tool_format in ("auto", *TEXT_FORMATS):
        reply = read(tool_format, text)
        assert (reply.content, reply.tool_calls, reply.finish_reason) == (text, (), "stop")


def test_prose_is_shown_while_it_comes() -> None:
    """Text waits only where it may begin a call, and no longer than until that is decided."""
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    scanner = TextCallScanner([row for row in TEXT_FORMATS.values() if row.is_detected], schemas)
    for text in (
        "The we",
        "ather:\n",
        "```json\n",
        "<tool_call>",
        "\n```\n",
        '{"a',
        '": 1}',
        " <tag",
        "> ",
        "`<t",
        "`",
    ):
        scanner.add_text(text)
        assert len(scanner._tail) < 12, text
        assert not scanner._is_held
    scanner.add_text("\n<tool_call>{")
    assert scanner._is_held


@pytest.mark.parametrize("missing", ["", "opener", "closer"])
def test_a_boundary_is_enough_on_one_side(missing: str) -> None:
    """S5.1: one marker with the boundary of the request makes a call; with none, or another, it is text."""
    boundary = choose_boundary(REQUEST)
    opener, closer = f"[TOOL_CALL:{boundary}]", f"[/TOOL_CALL:{boundary}]"
    text = ("" if missing == "opener" else opener) + WHOLE + ("" if missing == "closer" else closer)
    reply = read("bracket", text)
    assert [(call.name, call.arguments, call.is_from_text) for call in reply.tool_calls] == [
        ("weather", BRNO, False)
    ]
    for foreign in (text.replace(boundary, "0000"), WHOLE, f"{WHOLE}</tool_call>"):
        reply = read("bracket", foreign)
        assert (reply.content, reply.tool_calls) == (foreign, ())
    (call,) = read("bracket", f"{opener}{WHOLE[:-2]}").tool_calls
    assert "not valid JSON" in (call.problem or "")


@pytest.mark.parametrize("finish_reason", ["length", "content_filter"])
@pytest.mark.parametrize(
    "text", ["I look.\n<tool_call>\n{", f"<tool_call>{WHOLE}</tool_call> and", TAGS[:40]]
)
def test_a_cut_reply_keeps_its_text_and_reason(finish_reason: Any, text: str) -> None:
    """A reply that was cut has no calls, and ends as it did."""
    reply = read("auto", text, finish_reason=finish_reason)
    assert (reply.content, reply.tool_calls, reply.finish_reason) == (text, (), finish_reason)


def test_text_beside_native_calls_is_told() -> None:
    """S3.4: markup that repeats native calls is left out; another call stays text, and a warning says so."""
    native = (ToolCall(id="1", name="weather", arguments=BRNO),)
    for text in (f"Hm.\n<tool_call>\n{WHOLE}", f"Hm.\n{TAGS}\n</tool_call>", "Hm.\n</tool_call>"):
        reply = read("auto", text, tool_calls=native, finish_reason="tool_calls")
        assert (reply.content, reply.tool_calls, reply.warnings) == ("Hm.", native, ())
    text = "Hm.\n" + TAGS.replace("Brno", "Ostrava")
    reply = read("auto", text, tool_calls=native, finish_reason="tool_calls")
    assert (reply.content, reply.tool_calls) == (text, native)
    assert "beside native calls" in reply.warnings[0]


def test_a_quoted_call_without_markers_is_text() -> None:
    """A call that a tool or a user wrote is text where the model repeats it, with other markers too."""
    document = Message(role="user", content=f"It says:\n```\n<tool_call>\n{WHOLE}\n</tool_call>\n```")
    request = Request(model="m", messages=[document], tools=TOOLS)
    for text in (f"<tool_call>\n{WHOLE}", f"{WHOLE}</tool_call>", TAGS):
        assert read("auto", text, request=request).tool_calls == ()


@pytest.mark.parametrize("text", [f"<tool_call>\n{WHOLE}\n</tool_call>", TAGS, f"<tool_call>{WHOLE[:-9]}"])
def test_a_call_in_unopened_thoughts_is_not_run(text: str) -> None:
    """A call before a `</think>` whose opening marker is missing was thought of, and the next one is made."""
    for tool_format in ("auto", "hermes"):
        reply = read(tool_format, f'Perhaps\n{text}\nor not.\n</think>\n<tool_call>{{"name": "now"}}')
        assert [call.name for call in reply.tool_calls] == ["now"]
        assert reply.content == "Perhaps"
    inside = read("auto", f"<tool_call>\n{WHOLE.replace('Brno', '</think>')}")
    assert inside.tool_calls[0].arguments == {"city": "</think>"}


SIGNS = "ab <>/[]{}()`~|=_:;,'\"\\\n\t#*-é｜▁"


@settings(max_examples=choose_count(short=80, long=500), deadline=None)
@given(st.text(alphabet=SIGNS, max_size=60), st.sampled_from(["auto", *TEXT_FORMATS]))
def test_ordinary_text_stays_the_answer(text: str, tool_format: str) -> None:
    """Text with brackets, code and markup of its own is passed on unchanged, whole and in any pieces."""
    if text:
        reply = read(tool_format, text)
        assert (reply.content, reply.tool_calls, reply.finish_reason) == (text, (), "stop")


@tool(idempotent=True)
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


@pytest.mark.parametrize("chart", ["tool_loop", "full"])
def test_the_model_reads_why_and_repeats_the_call(chart: str) -> None:
    """A turn with a broken call goes on: the model reads its words and the problem; its next call runs."""
    broken = "<tool_call>\n" + WHOLE[:-2]
    inner = ScriptedProvider([f"I look.\n{broken}", f"<tool_call>\n{WHOLE}", "Sunny."])
    spec = {
        "name": "t",
        "chart": chart,
        "llms": {"main": {"provider": "scripted", "model": "m", "replies": ["x"]}},
        "responses": [{"llm": "main", "tools": {"enabled": True}}],
        "approval": [{"tools": "*", "decision": "always"}],
    }
    provider = TextCallProvider(inner, "hermes")
    with Engine(spec, log="memory", functions=[weather], providers={"main": provider}) as engine:
        result = engine.run("Weather in Brno?")
    assert (result.content, result.state) == ("Sunny.", "finished")
    texts = [message.content or "" for message in inner.requests[1].messages]
    assert texts[-2] == f"I look.\n{broken}"
    assert "cannot be read" in texts[-1]
    assert "sunny in Brno" in str(inner.requests[2].messages[-1].content)


@pytest.mark.parametrize("text", [f"<tool_call>\n{WHOLE}", TAGS, '[weather(city="Brno")]', *PROSE])
def test_native_tools_warn_of_a_call_as_text(text: str) -> None:
    """Where tools are native, a call in the text stays text, and a warning names the tool and the setting."""
    warnings = find_text_call_warnings(text, REQUEST)
    assert [("weather" in warning, "tool_format: auto" in warning) for warning in warnings] == (
        [] if text in PROSE else [(True, True)]
    )
    assert "call of a tool as text" in find_text_call_warnings("<tool_call>\n{", REQUEST)[0]


ATTACKS = [
    *("<tool_call>", "<tool_call>{", '<tool_call>\n{"', '\n{"name":[', '\n{"name":"',),
    *('\n{"name":["</tool_call>",', "x\n{"),
    *("<function=", "<function=a", "<function=w><parameter=a>", "<parameter=a>", "[TOOL_CALLS]weather "),
    *("\nweather[ARGS]{", "\n```", "`", "\n~~~", "<think>", "\n<think>", "</think>\n", f"{BEGIN}  ", SEP),
    *("[weather(", "(", "[", "{", " ", "\n", "</", "\n</tool_call>", "<tool_call> "),
    *('\n{"name":1}', "</s>", "\n[TOOL_CALLS]</think>"),
    *(f"\n<tool_call>{WHOLE}", "`<tool_call>", "\n```\n<tool_call>", "<tool_call>```json\n"),
    *('<|python_tag|>{"a":', "<|python_start|>["),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_takes_more_than_linear_time(attack: str) -> None:
    """Texts of many beginnings without an end are read at once, whole and in small pieces."""
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    rows = [row for row in TEXT_FORMATS.values() if row.is_detected]
    with ends_in_time():
        for end in ("", "</tool_call></function></parameter>"):
            text = attack * (12_000 // len(attack)) + end
            scanner = TextCallScanner(rows, schemas)
            list(scanner.add_text(text)), list(scanner.finish_text())
            scanner = TextCallScanner(rows, schemas)
            for start in range(0, len(text), 5):
                scanner.add_text(text[start : start + 5])
            scanner.finish_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (json.dumps({"a": "x" * 1_000_000}), "its arguments have more than 1,000,000 characters"),
        ('{"a": [1, 2' + " " * 1_000_000, "its arguments have more than 1,000,000 characters"),
        ('{"a": [1, x' + " " * 1_000_000, "it is not valid JSON: Expecting value at character 10"),
        (json.dumps({"a": "x" * 999_000}), ""),
    ],
)
def test_arguments_that_are_too_long_are_not_called_broken(text: str, problem: str) -> None:
    """No more is read than arguments may have, and the error says that, not what is wrong at the cut."""
    assert CallText(text).decode_json(0)[2] == problem
