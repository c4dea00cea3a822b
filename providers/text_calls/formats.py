"""The text formats in which models write tool calls: one row per format, with its markers, reader and writer.

To add a format, write its reader and writer here and add a row to the table.

Models leave markers out. The opening one is often a token that a host strips, the closing one a word that
stops the reply. So a reader does not look for two markers with a body between them: it reads the call itself,
by its own form, and says where it ends. The form decides whether the call is whole: a JSON object by its
braces, a list of parameters by their tags. A call that is not whole is never repaired: it is a call with a
problem, which is refused, and the model reads why.

Source: the models' own chat templates, as vLLM, SGLang and llama.cpp read them (see docs/text-calls.md).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import count, takewhile
from typing import Any

import msgspec

from toolchart.specs.models import TOOL_FORMAT_WORDS
from toolchart.states.call_arguments import MAX_ARGUMENT_CHARACTERS, decode_call, parse_arguments
from toolchart.states.canonical_json import encode_canonical, encode_canonical_text
from toolchart.states.descriptors import Descriptor, build_table
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import Message, Request, ToolCall, encode_arguments

Schemas = Mapping[str, Mapping[str, Any]]
"""JSON Schema of the arguments of each offered tool, by name."""

UNREADABLE = "the call cannot be read"
"""How the problem of a call begins that was refused as a whole; its `raw` is what the model wrote."""

# -- the text that is read -------------------------------------------------------------------------


_FOLD = {
    **{ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
    ord("｜"): "|",
    ord("▁"): "_",
}


def fold(text: str) -> str:
    """The text as markers are compared: in lower case, DeepSeek's bars and blanks in ASCII, of equal length.

    >>> fold("<Tool_Call>"), fold("<｜tool▁sep｜>")
    ('<tool_call>', '<|tool_sep|>')
    """
    return text.translate(_FOLD)


class CallText:
    """A text that is searched for calls.

    It is read in linear time: a marker that comes no more is not looked for again, and JSON that broke once
    too often is not tried again.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold(text)
        self._last_positions: dict[str, int] = {}
        self._last_search: tuple[int, re.Match[str] | None] = (len(text) + 1, None)
        self._json_left = 200 * len(text) + 100_000

    def find(self, marker: str, start: int) -> int:
        """Where a marker stands next; -1 if nowhere."""
        return self.folded.find(marker, start) if self.comes(marker, start) else -1

    def comes(self, marker: str, start: int) -> bool:
        """Whether a marker stands here or further on."""
        last = self._last_positions.get(marker)
        if last is None:
            last = self._last_positions[marker] = self.folded.rfind(marker)
        return start <= last

    def search(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """The next match of a pattern in the folded text. What was found last counts again up to there."""
        begin, match = self._last_search
        if begin <= start and (match is None or start <= match.start()):
            return match
        match = pattern.search(self.folded, start)
        self._last_search = (start, match)
        return match

    def has(self, marker: str, start: int) -> bool:
        """Whether a marker stands here."""
        return self.folded.startswith(marker, start)

    def skip_blanks(self, start: int) -> int:
        """The place behind white space."""
        match = _BLANKS.match(self.text, start)
        return match.end() if match else start

    def decode_json(self, start: int) -> tuple[Any, int, str]:
        """The JSON value that begins here, where it ends, and what is wrong with it.

        Where it cannot be read, the end is the place up to which it was read.
        """
        if self._json_left < 0:
            return None, len(self.text), "the text has too many broken calls"
        # No more is read than arguments may have, so no more is built.
        is_long = len(self.text) - start > MAX_ARGUMENT_CHARACTERS
        skipped = start if is_long else 0
        text = self.text[start : start + MAX_ARGUMENT_CHARACTERS + 1] if is_long else self.text
        try:
            value, end = json.JSONDecoder().raw_decode(text, start - skipped)
            end += skipped
        except json.JSONDecodeError as error:
            place = error.pos + skipped
            is_cut = place >= skipped + MAX_ARGUMENT_CHARACTERS or error.msg.startswith("Unterminated")
            if is_long and is_cut:
                self._json_left = -1
                return None, place, f"its arguments have more than {MAX_ARGUMENT_CHARACTERS:,} characters"
            # The error counts the lines before it, so it costs its place in the text.
            self._json_left -= error.pos + 50 * (place - start)
            reason = f"{error.msg.removesuffix(' at')} at character {place - start}"
            return None, place, f"it is not valid JSON: {reason}"
        except (ValueError, RecursionError) as error:
            self._json_left = -1
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            return None, start, f"it is not valid JSON: {reason}"
        # The strict rules (no key twice, no NaN) are those of all arguments.
        _, problem = parse_arguments(f'{{"value": {self.text[start:end]}}}')
        return value, end, problem or ""


_BLANKS = re.compile(r"\s*")


class Reading(msgspec.Struct, frozen=True):
    """What was read at a place."""

    end: int
    """Where it ends; with a problem, the place up to which it was read."""
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    """Why it is no whole call; empty if it is."""


BlockReader = Callable[[CallText, int, Schemas], Reading]
"""Reads the calls that begin at a place, without the markers around them."""

MessageReader = Callable[[str, Schemas], list[ToolCall] | None]
"""Reads a whole message as calls; None where it is none."""


class TextFormat(Descriptor, frozen=True, kw_only=True):
    """One way to write calls as text. Markers are compared in the form of `fold`."""

    opener: str = ""
    """The marker that begins a call; empty for calls that are a whole message."""
    closer: str = ""
    """The marker that ends a call; empty if a call ends by its own form."""
    starts: tuple[str, ...] = ()
    """With what a call begins where the opener is missing; `{name}` stands for an offered tool, and then it
    counts at the start of a line. The reader begins in front of it."""
    read_block: BlockReader | None = None
    """Reads the calls behind the opener."""
    read_message: MessageReader | None = None
    """Reads a whole message without markers. It is a call only if it names nothing but offered tools. None:
    a message without markers is no call."""
    write_call: Callable[[str, str], str] | None = None
    """Writes a call from its name and its arguments as JSON."""
    is_detected: bool = True
    """Whether `auto` looks for this format. False where another row has the same markers and reads both."""
    is_certain: bool = False
    """Whether the opener stands in no text that a model could quote."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        gaps = super().find_gaps()
        if self.name in TOOL_FORMAT_WORDS:
            gaps.append(f"`name` {self.name!r} has another meaning in `tool_format`")
        if not self.opener and self.read_message is None:
            gaps.append("`opener` is missing, and without it `read_message`")
        if self.opener and self.read_block is None:
            gaps.append("`read_block` is missing: a function that reads the calls behind the opener")
        if self.write_call is None:
            gaps.append("`write_call` is missing: a function that writes a call")
        return gaps

    def list_starts(self, names: Sequence[str]) -> list[str]:
        """The texts with which a call of one of these tools begins without the opener."""
        return [
            fold(start.replace("{name}", name))
            for start in self.starts
            for name in (names if "{name}" in start else ("",))
        ]

    def format_call(self, name: str, arguments: str) -> str:
        """A call as the model writes it, from its name and its arguments as JSON."""
        assert self.write_call is not None  # `find_gaps` refuses a row without it
        return self.write_call(name, arguments)


# -- readers -----------------------------------------------------------------------------------------


def read_json_block(text: CallText, start: int, schemas: Schemas) -> Reading:
    """`{"name": ..., "arguments" or "parameters": {...}}`, or a list of these; several in a row too."""
    calls: list[ToolCall] = []
    position = skip_fence(text, start)
    while True:
        position = text.skip_blanks(position)
        if text.text[position : position + 1] not in ("{", "["):
            break
        value, end, problem = text.decode_json(position)
        found = read_call_objects(value) if not problem else None
        if found is None and calls:
            break
        if found is None:
            return Reading(end, problem=problem or "it is no object with the name of a tool")
        calls += found
        start = position = end
        separator = text.skip_blanks(position)
        if text.text[separator : separator + 1] in (";", ","):
            position = separator + 1
    return Reading(start, tuple(calls), "" if calls else "no call follows")


def read_call_objects(value: Any) -> list[ToolCall] | None:
    """The calls of a JSON value; None if it is something else."""
    calls = [_read_call_object(item) for item in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if calls and None not in calls else None


def _read_call_object(value: Any) -> ToolCall | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    name, forms = (
        value["name"],
        [value[key] for key in ("arguments", "parameters") if value.get(key) is not None],
    )
    if len(forms) > 1 and forms[0] != forms[1]:
        return _refuse_call(name, value, "it has both `arguments` and `parameters`")
    others = set(value) - {"name", "type", "id", "arguments", "parameters"}
    if not forms and others and not {"arguments", "parameters"} & set(value):
        return _refuse_call(name, value, f"it has {sorted(others)[0]!r} beside `name`, and no `arguments`")
    arguments = forms[0] if forms else None
    if not isinstance(arguments, dict | str | None):
        arguments = json.dumps(arguments)
    return decode_call("", name, arguments)


def _refuse_call(name: str, value: Any, problem: str) -> ToolCall:
    return ToolCall(name=name, raw=f"[{json.dumps(value)}]", problem=f"{UNREADABLE}: {problem}")


_FENCE = re.compile(r"\s*```[\w-]*[ \t]*\n?\s*")


def skip_fence(text: CallText, start: int) -> int:
    """The place behind white space and the marker of a code block."""
    match = _FENCE.match(text.text, start)
    return match.end() if match else text.skip_blanks(start)


_FUNCTION = re.compile(r"""<function=\s*+["']?([^<>"'\s]++)["']?\s*+>\s*+""", re.IGNORECASE)
_PARAMETER = re.compile(r"""<parameter=\s*+["']?([^<>"'\s]++)["']?\s*+>""", re.IGNORECASE)
_END_OF_FUNCTION, _END_OF_PARAMETER = "</function>", "</parameter>"


def read_function_block(text: CallText, start: int, schemas: Schemas) -> Reading:
    """`<function=name><parameter=key>value</parameter></function>` (Qwen3-Coder), or with a JSON object in it
    (Llama 3.1, functionary); several in a row too.

    A value whose schema has the type `string` stays text. Any other value is read as JSON where it is JSON.
    """
    calls: list[ToolCall] = []
    position = text.skip_blanks(start)
    while match := _FUNCTION.match(text.text, position):
        name, position = match[1], match.end()
        arguments: Any = {}
        if text.text[position : position + 1] == "{":
            arguments, position, problem = text.decode_json(position)
            if problem:
                return Reading(position, problem=problem)
        properties = schemas.get(name, {}).get("properties") or {}
        while parameter := _PARAMETER.match(text.text, position):
            key, begin = parameter[1], parameter.end()
            end = text.find(_END_OF_PARAMETER, begin)
            if end < 0:
                return Reading(len(text.text), problem=f"the parameter {key!r} has no end")
            position = end + len(_END_OF_PARAMETER)
            value = text.text[begin:end]
            # Whether this is one value or two, the first without its end, cannot be known.
            if _PARAMETER.search(value) or key in arguments:
                return Reading(position, problem=f"the parameter {key!r} has no end, or comes twice")
            arguments[key] = _read_parameter(value.removeprefix("\n").removesuffix("\n"), properties.get(key))
            position = text.skip_blanks(position)
        position = text.skip_blanks(position)
        if text.has(_END_OF_FUNCTION, position):
            start = position + len(_END_OF_FUNCTION)
        elif text.has("</tool_call>", position) or text.has("<tool_call>", position):
            start = position
        else:
            return Reading(position, problem=f"the call of {name!r} has no end")
        calls.append(decode_call("", name, arguments))
        position = text.skip_blanks(start)
    return Reading(start, tuple(calls), "" if calls else "no call follows")


def _read_parameter(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return parse_foreign_json(text)
    except ValueError:
        return text


def read_hermes_block(text: CallText, start: int, schemas: Schemas) -> Reading:
    """Either of the two bodies that models write behind `<tool_call>`."""
    position = skip_fence(text, start)
    while text.has("<tool_call>", position):
        position = skip_fence(text, position + len("<tool_call>"))
    is_tag = text.has("<function=", position)
    return (read_function_block if is_tag else read_json_block)(text, position, schemas)


_MISTRAL = re.compile(r"\s*+([\w.-]++)\s*+(?:\[CALL_ID\]\s*+\w++\s*+)?(?:\[ARGS\]\s*+)?(?=\{)", re.IGNORECASE)


def read_mistral_block(text: CallText, start: int, schemas: Schemas) -> Reading:
    """A list of calls (up to v10), or `name{...}` or `name[ARGS]{...}` (v11)."""
    head = _MISTRAL.match(text.text, start)
    return _read_named_json(text, head[1], head.end()) if head else read_json_block(text, start, schemas)


def _read_named_json(text: CallText, name: str, start: int) -> Reading:
    """The arguments of a call whose name is known."""
    arguments, end, problem = text.decode_json(start)
    if not problem and not isinstance(arguments, dict):
        problem = "its arguments are no JSON object"
    return Reading(end, () if problem else (decode_call("", name, arguments),), problem)


_BEGIN, _SEPARATOR, _END = "<|tool_call_begin|>", "<|tool_sep|>", "<|tool_call_end|>"
_DEEPSEEK = re.compile(
    r"\s*+(?:<\|tool_call_begin\|>\s*+)?(?:function<\|tool_sep\|>\s*+)?([^\s<`{]++)\s*+(?:<\|tool_sep\|>)?"
)


def read_deepseek_block(text: CallText, start: int, schemas: Schemas) -> Reading:
    """`name<sep>{...}` (V3.1) or `function<sep>name` with a fenced object (V3), several in one block."""
    calls: list[ToolCall] = []
    position = text.skip_blanks(start)
    while head := _DEEPSEEK.match(text.folded, position):
        if calls and not text.has(_BEGIN, position):
            break
        reading = _read_named_json(text, text.text[head.start(1) : head.end(1)], skip_fence(text, head.end()))
        if reading.problem:
            return reading
        calls += reading.calls
        start = reading.end
        position = skip_fence(text, start)
        if text.has(_END, position):
            start = position + len(_END)
            position = text.skip_blanks(start)
    return Reading(start, tuple(calls), "" if calls else "no call follows")


def read_json_message(text: str, schemas: Schemas) -> list[ToolCall] | None:
    """One or several JSON objects, with `;` between them, or a list."""
    reading = read_json_block(CallText(text), 0, schemas)
    return list(reading.calls) if not reading.problem and not text[reading.end :].strip("` \r\n\t") else None


def read_mistral_message(text: str, schemas: Schemas) -> list[ToolCall] | None:
    """What stands behind `[TOOL_CALLS]`, where the host has stripped that."""
    reading = read_mistral_block(CallText(text), 0, schemas)
    return list(reading.calls) if not reading.problem and not text[reading.end :].strip() else None


def read_pythonic_block(text: CallText, start: int, schemas: Schemas) -> Reading:
    """What stands between `<|python_start|>` and `<|python_end|>` (Llama 4)."""
    end = text.find("<|python_end|>", start)
    end = end if end >= 0 else len(text.text)
    calls = read_pythonic_calls(text.text[start:end], schemas)
    return Reading(end, tuple(calls or ()), "" if calls else "its arguments are no literals")


def read_pythonic_calls(body: str, schemas: Schemas) -> list[ToolCall] | None:
    """`[f(a=1), g(b="x")]`: keyword arguments only, and literals only. The brackets may be missing."""
    source = body.strip().removeprefix("[").removesuffix("]")
    try:
        tree = ast.parse(f"[{source}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.List) or not tree.elts:
        return None
    calls = [_read_call_node(node) for node in tree.elts]
    return [call for call in calls if call is not None] if None not in calls else None


def _read_call_node(node: ast.expr) -> ToolCall | None:
    if not isinstance(node, ast.Call) or node.args:
        return None
    try:
        arguments = {
            str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg
        }
        name = ast.unparse(node.func)
        json.dumps(arguments)
    except (ValueError, TypeError, RecursionError):
        return None
    is_plain = re.fullmatch(r"[A-Za-z_][\w.]*", name) and len(arguments) == len(node.keywords)
    return decode_call("", name, arguments) if is_plain else None


# -- writers -----------------------------------------------------------------------------------------


def _write_json_call(name: str, arguments: str) -> str:
    return f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'


def _write_function_tags(name: str, arguments: str) -> str:
    values = parse_arguments(arguments)[0] or {}
    texts = {
        key: value if isinstance(value, str) else encode_canonical_text(value)
        for key, value in values.items()
    }
    parameters = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _write_hermes_call(name: str, arguments: str) -> str:
    return f"<tool_call>\n{_write_json_call(name, arguments)}\n</tool_call>"


def _write_llama_call(name: str, arguments: str) -> str:
    return _write_json_call(name, arguments).replace('"arguments"', '"parameters"', 1)


def _write_deepseek_call(name: str, arguments: str) -> str:
    return (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
        f"{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def _write_pythonic_call(name: str, arguments: str) -> str:
    values = parse_arguments(arguments)[0] or {}
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})]"


# -- the table ---------------------------------------------------------------------------------------


_ROWS = (
    TextFormat(
        name="hermes",
        opener="<tool_call>",
        closer="</tool_call>",
        starts=("<function=",),
        read_block=read_hermes_block,
        read_message=read_json_message,
        write_call=_write_hermes_call,
    ),
    TextFormat(
        name="qwen3_coder",
        opener="<tool_call>",
        closer="</tool_call>",
        starts=("<function=",),
        read_block=read_hermes_block,
        read_message=read_json_message,
        write_call=_write_function_tags,
        is_detected=False,  # it has the markers of hermes, whose reader takes both bodies
    ),
    TextFormat(
        name="mistral",
        opener="[TOOL_CALLS]",
        starts=("{name}[ARGS]",),
        read_block=read_mistral_block,
        read_message=read_mistral_message,
        write_call=lambda name, arguments: f"[TOOL_CALLS]{name}[ARGS]{arguments}",
    ),
    TextFormat(
        name="llama3",
        opener="<|python_tag|>",
        read_block=read_json_block,
        read_message=read_json_message,
        write_call=_write_llama_call,
    ),
    TextFormat(
        name="deepseek",
        opener="<｜tool▁calls▁begin｜>",
        closer="<｜tool▁calls▁end｜>",
        starts=("<｜tool▁call▁begin｜>", "{name}<｜tool▁sep｜>", "function<｜tool▁sep｜>"),
        read_block=read_deepseek_block,
        write_call=_write_deepseek_call,
    ),
    TextFormat(
        name="pythonic",
        opener="<|python_start|>",
        closer="<|python_end|>",
        read_block=read_pythonic_block,
        read_message=read_pythonic_calls,
        write_call=_write_pythonic_call,
    ),
)

TEXT_FORMATS = build_table("text format", _ROWS)
"""Every format by its name, but `bracket`, whose marker has a boundary of its own in each request."""


def make_bracket_format(boundary: str) -> TextFormat:
    """`[TOOL_CALL:boundary]{...}[/TOOL_CALL:boundary]`.

    A marker with another boundary is plain text. A text that a tool or a user wrote cannot become a call,
    since the boundary stands in none of them.
    """
    opener, closer = f"[TOOL_CALL:{boundary}]", f"[/TOOL_CALL:{boundary}]"
    return TextFormat(
        name="bracket",
        opener=opener,
        closer=closer,
        read_block=read_json_block,
        is_certain=True,
        write_call=lambda name, arguments: f"{opener}{_write_json_call(name, arguments)}{closer}",
    )


# -- the boundary of `bracket` ---------------------------------------------------------------------
# A marker counts as a call only with the boundary of the request. So a text that the model quotes, such as a
# tool result or a document, cannot become a call if it does not contain the boundary. A random boundary would
# promise that, but then nobody could build the body of the request again from the log. MIME has the same
# problem, and the same answer serves here: the boundary is derived from the request, and checked against it.
#
# - The first candidate is a digest of the beginning of the conversation. It stays the same from request to
#   request, which keeps the host's prompt cache useful and the model's earlier calls alike.
# - Whoever knows the beginning can compute that candidate and put it into a text. Then it occurs in the
#   request, and is not taken. The next candidates are digests of everything in the request, that text
#   included: nobody writes a text that names a digest of itself, and what occurs nevertheless is not taken
#   either.
#
# So the promise does not rest on a secret: it is checked for each request.
#
# Source: RFC 2046, 5.1.1: a boundary must not appear in the parts that it separates.


_LENGTH = 8
"""Hexadecimal digits: short enough that small models copy them without a mistake."""


def choose_boundary(request: Request) -> str:
    """The boundary of a request: the same for equal requests, and part of no text in it."""
    texts = list(_iterate_texts(request))
    candidates = _iterate_candidates(request.messages, texts)
    return next(candidate for candidate in candidates if not any(candidate in text for text in texts))


def _iterate_texts(request: Request) -> Iterator[str]:
    """Every text of the request that the model reads: messages, calls and descriptions of tools."""
    for message in request.messages:
        yield message.content or ""
        yield message.name or ""
        for call in message.tool_calls:
            yield call.name
            yield encode_arguments(call)
    for tool in request.tools:
        yield encode_canonical([tool.name, tool.description, tool.parameters]).decode()


def _iterate_candidates(messages: Sequence[Message], texts: Sequence[str]) -> Iterator[str]:
    """The candidates in their order, without an end."""
    opening = [message.content for message in takewhile(lambda m: m.role in ("system", "user"), messages)]
    yield _compute_candidate(["opening", *opening])
    for number in count():
        yield _compute_candidate([number, *texts])


def _compute_candidate(parts: Sequence[object]) -> str:
    return sha256(encode_canonical(parts)).hexdigest()[:_LENGTH]
