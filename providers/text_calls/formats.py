"""The text formats in which models write tool calls: one row per format, with its markers, reader and writer.

To add a format, write its reader and writer here and add a row to the table.

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

from toolchart.specs.models import TOOL_FORMAT_WORDS
from toolchart.states.call_arguments import parse_arguments
from toolchart.states.canonical_json import encode_canonical, encode_canonical_text
from toolchart.states.descriptors import Descriptor, build_table
from toolchart.states.messages import Message, Request, encode_arguments

TextCall = tuple[str, dict[str, Any]]
"""Name and arguments of one call."""

Schemas = Mapping[str, Mapping[str, Any]]
"""JSON Schema of the arguments of each offered tool, by name."""

BodyReader = Callable[[str, Schemas], list[TextCall] | None]
"""Reads the calls in a body; None where the body is not a call."""


class TextFormat(Descriptor, frozen=True, kw_only=True):
    """One way to write calls as text."""

    opener: str = ""
    """The marker that begins a call; empty for calls that are a whole message."""
    closer: str = ""
    """The marker that ends a call; empty if the call ends with the message."""
    read_body: BodyReader | None = None
    """Reads the calls between the markers."""
    read_message: BodyReader | None = None
    """Reads a whole message without markers. It is a call only if it names nothing but offered tools. None:
    a message without markers is no call."""
    write_call: Callable[[str, str], str] | None = None
    """Writes a call from its name and its arguments as JSON."""
    is_detected: bool = True
    """Whether `auto` looks for this format. False where another row has the same markers and reads both."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        gaps = super().find_gaps()
        if self.name in TOOL_FORMAT_WORDS:
            gaps.append(f"`name` {self.name!r} has another meaning in `tool_format`")
        if not self.opener and self.read_message is None:
            gaps.append("`opener` is missing, and without it `read_message`")
        if self.opener and self.read_body is None:
            gaps.append("`read_body` is missing: a function that reads the calls between the markers")
        if self.write_call is None:
            gaps.append("`write_call` is missing: a function that writes a call")
        return gaps

    def read_calls(self, body: str, schemas: Schemas) -> list[TextCall] | None:
        """The calls between the markers; None if the body is not a call."""
        return self.read_body(body, schemas) if self.read_body else None

    def format_call(self, name: str, arguments: str) -> str:
        """A call as the model writes it, from its name and its arguments as JSON."""
        assert self.write_call is not None  # `find_gaps` refuses a row without it
        return self.write_call(name, arguments)


# -- bodies ------------------------------------------------------------------------------------------


def read_json_calls(body: str, schemas: Schemas) -> list[TextCall] | None:
    """`{"name": ..., "arguments" or "parameters": {...}}`, or a list of these."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    calls = [_read_call_object(item) for item in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if calls and None not in calls else None


def _read_call_object(value: Any) -> TextCall | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments, _ = parse_arguments(arguments)
    return (value["name"], arguments) if isinstance(arguments, dict) else None


_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>", re.DOTALL)


def read_function_tags(body: str, schemas: Schemas) -> list[TextCall] | None:
    """`<function=name><parameter=key>value</parameter></function>` (Qwen3-Coder).

    A value whose schema has the type `string` stays text. Any other value is read as JSON where it is JSON.
    """
    match = _FUNCTION.fullmatch(body)
    if not match:
        return None
    properties = schemas.get(match[1], {}).get("properties") or {}
    arguments = {
        key: _read_parameter(text.removeprefix("\n").removesuffix("\n"), properties.get(key))
        for key, text in _PARAMETER.findall(match[2])
    }
    return [(match[1], arguments)]


def _read_parameter(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_hermes_calls(body: str, schemas: Schemas) -> list[TextCall] | None:
    """Either of the two bodies that models write between `<tool_call>` tags."""
    return read_json_calls(body, schemas) or read_function_tags(body, schemas)


_MISTRAL = re.compile(r"\s*([\w.-]+)\s*(?:\[ARGS\]|\[CALL_ID\]\w+\[ARGS\])?\s*(?=\{)")


def read_mistral_calls(body: str, schemas: Schemas) -> list[TextCall] | None:
    """A list of calls (up to v10), or `name{...}` or `name[ARGS]{...}`, each after its own marker (v11)."""
    calls: list[TextCall] = []
    for part in body.split("[TOOL_CALLS]"):
        head = _MISTRAL.match(part)
        if head:
            arguments, _ = parse_arguments(part[head.end() :])
            part_calls = [(head[1], arguments)] if arguments is not None else None
        else:
            part_calls = read_json_calls(part, schemas)
        if not part_calls:
            return None
        calls += part_calls
    return calls


def read_llama_calls(body: str, schemas: Schemas) -> list[TextCall] | None:
    """One or several JSON objects, with `;` between them."""
    whole = read_json_calls(body, schemas)
    if whole is not None:
        return whole
    parts = [read_json_calls(part, schemas) for part in re.split(r";\s*(?=\{)", body)]
    return [call for calls in parts if calls for call in calls] if all(parts) else None


_DEEPSEEK = re.compile(
    r"\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?\s*([^\s<`]+?)\s*"
    r"(?:<｜tool▁sep｜>|\n```json\n)(.*?)(?:\n```)?\s*<｜tool▁call▁end｜>\s*",
    re.DOTALL,
)


def read_deepseek_calls(body: str, schemas: Schemas) -> list[TextCall] | None:
    """`name<sep>{...}` (V3.1) or `function<sep>name` with a fenced object (V3), several in one block."""
    calls, position = [], 0
    while position < len(body):
        match = _DEEPSEEK.match(body, position)
        arguments = parse_arguments(match[2])[0] if match else None
        if match is None or arguments is None:
            return None
        calls.append((match[1], arguments))
        position = match.end()
    return calls or None


def read_pythonic_calls(body: str, schemas: Schemas) -> list[TextCall] | None:
    """`[f(a=1), g(b="x")]`: keyword arguments only, and literals only."""
    try:
        tree = ast.parse(body.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.List) or not tree.elts:
        return None
    calls = [_read_call_node(node) for node in tree.elts]
    return [call for call in calls if call is not None] if None not in calls else None


def _read_call_node(node: ast.expr) -> TextCall | None:
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
    return (name, arguments) if is_plain else None


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
        read_body=read_hermes_calls,
        write_call=_write_hermes_call,
    ),
    TextFormat(
        name="qwen3_coder",
        opener="<tool_call>",
        closer="</tool_call>",
        read_body=read_hermes_calls,
        write_call=_write_function_tags,
        is_detected=False,  # it has the markers of hermes, whose reader takes both bodies
    ),
    TextFormat(
        name="mistral",
        opener="[TOOL_CALLS]",
        read_body=read_mistral_calls,
        write_call=lambda name, arguments: f"[TOOL_CALLS]{name}[ARGS]{arguments}",
    ),
    TextFormat(
        name="llama3",
        opener="<|python_tag|>",
        read_body=read_llama_calls,
        read_message=read_llama_calls,
        write_call=_write_llama_call,
    ),
    TextFormat(
        name="deepseek",
        opener="<｜tool▁calls▁begin｜>",
        closer="<｜tool▁calls▁end｜>",
        read_body=read_deepseek_calls,
        write_call=_write_deepseek_call,
    ),
    TextFormat(name="pythonic", read_message=read_pythonic_calls, write_call=_write_pythonic_call),
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
        read_body=read_json_calls,
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
