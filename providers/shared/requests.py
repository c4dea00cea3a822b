"""What the wires share about requests: private data, content parts, blocks, tool choice, warnings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from toolchart.states.content import (
    AudioPart,
    ContentPart,
    FilePart,
    ImagePart,
    Media,
    Note,
    TextPart,
    describe_part,
)
from toolchart.states.errors import ProviderError, suggest_name
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import FAILED_RESULT, Message, Reply, Request, ToolCall, ToolDefinition
from toolchart.states.schema_dialects import ANTHROPIC, OLLAMA, SchemaDialect

# -- private data of a host ------------------------------------------------------------------------
# The data goes back only to the host and the model that sent it. Two hosts may share an adapter (every
# compatible host is `openai`), but what one of them encrypted, the other must not see and cannot use.


IMPORTED_PROVIDER = "imported"
"""Name of the provider in data that an import attached to a message. It belongs to no host, so leaving it
out of a request loses nothing."""

_NO_DATA: Mapping[str, Any] = {}


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reply comes from, and where its private data may go."""

    provider: str
    """Name of the adapter."""
    host: str = ""
    """Name and port of the host; empty where the address is not known."""
    model: str = ""
    """Model, as requests name it."""

    def owns(self, data: Mapping[str, Any]) -> bool:
        """Whether data of a message comes from here. Logs of older releases name no host and no model."""
        return data.get("provider") == self.provider and all(
            not own or data.get(key) in (None, own)
            for key, own in (("host", self.host), ("model", self.model))
        )

    def get_data(self, message: Message) -> Mapping[str, Any]:
        """The private data of a message; empty where it has none, or where it belongs elsewhere."""
        data = message.provider_data
        return data if data is not None and self.owns(data) else _NO_DATA

    def mark_data(self, data: dict[str, Any] | None) -> dict[str, Any] | None:
        """The data of a reply with its host and model."""
        if data is None or data.get("provider") != self.provider:
            return data
        names = {"host": self.host, "model": self.model}
        return {**data, **{key: name for key, name in names.items() if name}}


def find_foreign_data(
    messages: Sequence[Message], origin: Origin, key: str, *, sends_media: bool = False
) -> list[str]:
    """A warning if the last assistant message holds data that cannot be sent to this host and model, or
    pictures, sounds and files that go out as words.

    Only the last assistant message counts: the first reply after a change warns, later ones do not.

    Args:
        origin: where the request goes.
        key: under which this wire format keeps its data.
        sends_media: whether the wire format has a place for them in an assistant message.
    """
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    media = [part for part in last.parts if isinstance(part, Media)] if last and not sends_media else []
    # Own blocks and items go back as they came; own keys of a chat message do not hold what it shows.
    is_verbatim = last is not None and key in ("content", "output") and key in origin.get_data(last)
    described = [
        f"{describe_part(part)} of an earlier reply was sent as these words: there is no place for it"
        for part in ([] if is_verbatim else media)
    ]
    return described + _find_lost_data(last, origin, key)


def _find_lost_data(last: Message | None, origin: Origin, key: str) -> list[str]:
    data = (last.provider_data or {}) if last else {}
    is_usable = key in origin.get_data(last) if last else False
    if not data.get("provider") or is_usable or data["provider"] == IMPORTED_PROVIDER:
        return []
    source = " ".join(str(data[name]) for name in ("provider", "host", "model") if data.get(name))
    target = " ".join(name for name in (origin.provider, origin.host, origin.model) if name)
    return [
        f"data that {source} attached to its messages (reasoning, signatures) was left out of "
        f"the request to {target}"
    ]


# -- content parts ---------------------------------------------------------------------------------
# A part that a host cannot take is refused before anything is sent: a model that answers without the picture
# answers another question. Parts of earlier replies (a picture that another model drew) are described in
# words where the host has no place for them.


SentPart = TextPart | ImagePart | FilePart | AudioPart
"""The parts that a request may hold."""

_TEXT_TYPES = ("application/json", "application/xml", "application/yaml", "application/x-yaml")


def list_sent_parts(message: Message, *, reads_files: bool = True) -> list[SentPart]:
    """The parts of a message of the user or a tool, without sources.

    Args:
        reads_files: whether the text of a file stands as text, for hosts that take no text files.
    """
    parts = [part for part in message.list_parts() if not isinstance(part, Note)]
    return [_replace_text_file(part) for part in parts] if reads_files else parts


def list_media(message: Message, *, reads_files: bool = True) -> list[SentPart]:
    """The parts of a message beside its texts; `reads_files` as for `list_sent_parts`."""
    parts: list[SentPart] = [p for p in message.parts if not isinstance(p, TextPart | Note)]
    return [_replace_text_file(part) for part in parts] if reads_files else parts


def _replace_text_file(part: SentPart) -> SentPart:
    text = read_file_text(part)
    return part if text is None else TextPart(text=text)


def describe_reply(message: Message) -> str:
    """The content of an assistant message in words: its text, and what else it holds in brackets."""
    if not any(isinstance(part, Media) for part in message.parts):
        return message.content or ""
    return "\n".join(describe_part(part) for part in message.parts if not isinstance(part, Note))


def read_file_text(part: ContentPart) -> str | None:
    """The text of a text file under its name; None for other parts, and for bytes that are no UTF-8."""
    text = read_plain_text(part)
    return f"{part.name}:\n{text}" if isinstance(part, FilePart) and part.name and text is not None else text


def read_plain_text(part: ContentPart) -> str | None:
    """The text of a text file; None for other parts, and for bytes that are no UTF-8."""
    if not isinstance(part, FilePart) or not part.data:
        return None
    if not part.media_type.startswith("text/") and part.media_type not in _TEXT_TYPES:
        return None
    try:
        return part.read_bytes().decode("utf-8-sig")
    except ValueError:
        return None


def refuse_part(part: SentPart, host: str, advice: str) -> ProviderError:
    """The error for a part that a host cannot take.

    Args:
        advice: what to do instead, as a clause.
    """
    return ProviderError(
        kind="bad_request", message=f"{host} takes no part like {describe_part(part)}: {advice}"
    )


# -- blocks ----------------------------------------------------------------------------------------
# Anthropic's Messages and Bedrock's Converse have messages of blocks, in different spellings.

Block = dict[str, Any]


def restore_own_parts(
    own_parts: Any,
    calls: Sequence[ToolCall],
    encode_own_part: Callable[[Block, ToolCall | None], Block | None],
    is_call: Callable[[Block], bool],
) -> list[Block] | None:
    """What a host itself sent of a reply, as it goes back to it: verbatim, because hosts refuse thinking that
    is left out or does not fit its signature; but its calls are those of the message, in their order, which
    have the ids, names and arguments that go out, and texts and lists that are null are left out: hosts send
    them so, and refuse them when they come back. None where the calls are not as many.

    Args:
        own_parts: blocks, parts or items of the reply; None or empty where there are none.
        encode_own_part: the part as it goes back, with the call that it holds; None leaves it out.
        is_call: whether a part holds a call that is answered here.
    """
    parts = [part for part in own_parts if isinstance(part, dict)] if isinstance(own_parts, list) else []
    if not parts or sum(map(is_call, parts)) != len(calls):
        return None
    left = iter(calls)
    restored = (
        encode_own_part(leave_out_nulls(part), next(left) if is_call(part) else None) for part in parts
    )
    return [part for part in restored if part is not None]


_NEVER_NULL = ("id", "name", "text", "thinking", "signature", "data", "annotations", "logprobs", "status")
_HOLDERS = ("summary", "content", "reasoningContent", "reasoningText", "redactedContent")
"""Keys of texts and lists that hosts refuse where they are null, and those of them that hold further ones."""


def leave_out_nulls(part: Block) -> Block:
    """A part without the texts and lists that are null, also in its own parts.

    Everything else stays as it came: hosts take `null` back in their own calls and in schemas.

    >>> leave_out_nulls({"id": None, "summary": [{"text": None}], "input": {"text": None}, "call_id": None})
    {'summary': [{}], 'input': {'text': None}, 'call_id': None}
    """
    return {
        key: _leave_out_nulls(value) if key in _HOLDERS else value
        for key, value in part.items()
        if value is not None or key not in (*_NEVER_NULL, *_HOLDERS)
    }


def _leave_out_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return leave_out_nulls(value)
    return list(map(_leave_out_nulls, value)) if isinstance(value, list) else value


def encode_reply_blocks(
    message: Message,
    own_blocks: list[Block] | None,
    *,
    encode_text: Callable[[str | None], Block],
    encode_call: Callable[[ToolCall], Block],
) -> list[Block]:
    """The blocks of an earlier reply.

    Args:
        own_blocks: what this host sent then, as `restore_own_parts` gives it back.
    """
    if own_blocks:
        return own_blocks
    text = describe_reply(message) if message.parts else message.content
    blocks = [encode_text(text)] if text or not message.tool_calls else []
    return [*blocks, *map(encode_call, message.tool_calls)]


def is_failed_result(message: Message) -> bool:
    """Whether a tool's result says that the tool failed: by itself, or where it was read from a list."""
    if message.provider_data and message.provider_data.get(FAILED_RESULT):
        return True
    try:
        result = parse_foreign_json(message.content or "")
    except ValueError:
        return False
    return isinstance(result, dict) and result.get("success") is False


# -- tool choice -----------------------------------------------------------------------------------
# Every spelling is parsed into one `ToolChoice`; each adapter's `wire.py` encodes it for its host.


ToolChoiceMode = Literal["auto", "none", "required"]

_MODES: tuple[ToolChoiceMode, ...] = ("auto", "none", "required")


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the offered tools the reply may or must call."""

    mode: ToolChoiceMode = "auto"
    names: tuple[str, ...] = ()
    """The tools that may be called; empty means every offered tool."""

    @property
    def required_name(self) -> str | None:
        """The tool that must be called, if the choice leaves only one."""
        return self.names[0] if self.mode == "required" and len(self.names) == 1 else None


def select_offered_tools(
    choice: ToolChoice, tools: Sequence[ToolDefinition], dialect: SchemaDialect | None
) -> tuple[ToolDefinition, ...]:
    """The tools that a request to a host of that dialect contains.

    Ollama has no tool choice, and Anthropic none among several tools: for them the list of tools expresses
    the choice. Anthropic keeps all tools with `none`, because a history with calls needs their definitions.
    """
    if dialect not in (OLLAMA, ANTHROPIC):
        return tuple(tools)
    if choice.mode == "none":
        return () if dialect is OLLAMA else tuple(tools)
    return tuple(tool for tool in tools if not choice.names or tool.name in choice.names)


def read_tool_choice(request: Request) -> ToolChoice | None:
    """The choice of a request; None where it has none, or offers no tools.

    Raises:
        ProviderError: `bad_request`; it has no known form, or names a tool that is not offered.
    """
    option = request.options.get("tool_choice")
    if option is None or not request.tools:
        return None
    choice = parse_tool_choice(option)
    tool_names = [tool.name for tool in request.tools]
    for name in choice.names:
        if name not in tool_names:
            raise ProviderError(
                kind="bad_request",
                message=f"tool_choice names {name!r}, which is not offered; {suggest_name(name, tool_names)}",
            )
    return choice


def parse_tool_choice(option: Any) -> ToolChoice:
    """The choice of an option value.

    Accepts `auto`, `none`, `required`, a tool's name, `{"allowed": [...], "mode": ...}`, and OpenAI's
    spellings (`{"type": "function", ...}`, `{"type": "allowed_tools", ...}`). None means `auto`.

    >>> parse_tool_choice("required"), parse_tool_choice({"allowed": ["a", "b"]}).names
    (ToolChoice(mode='required', names=()), ('a', 'b'))

    Raises:
        ProviderError: `bad_request`; the value is none of these.
    """
    if option is None:
        return ToolChoice()
    if isinstance(option, str) and option:
        for mode in _MODES:
            if mode == option:
                return ToolChoice(mode=mode)
        return ToolChoice(mode="required", names=(option,))
    choice = _parse_choice_mapping(option) if isinstance(option, Mapping) else None
    if choice is None:
        raise ProviderError(
            kind="bad_request",
            message=f"tool_choice {option!r} is none of: auto, none, required, a tool's name, "
            '{"allowed": [names], "mode": "auto" or "required"}',
        )
    return choice


def _parse_choice_mapping(option: Mapping[str, Any]) -> ToolChoice | None:
    """The choice of a mapping; None if it has no valid form."""
    inner = option.get("allowed_tools", option)
    if not isinstance(inner, Mapping):
        return None
    tools = inner.get("allowed", inner.get("tools"))
    if isinstance(tools, list):
        names = tuple(map(_read_tool_name, tools))
        is_valid = names and all(names)
        return ToolChoice(mode=_read_choice_mode(inner), names=names) if is_valid else None
    name = _read_tool_name(option)
    return ToolChoice(mode="required", names=(name,)) if name else None


def _read_choice_mode(option: Mapping[str, Any]) -> ToolChoiceMode:
    mode = option.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise ProviderError(
            kind="bad_request", message=f"tool_choice: mode {mode!r} is none of: auto, required"
        )
    return cast(ToolChoiceMode, mode)


def _read_tool_name(option: Any) -> str:
    """The name, from a name itself or from OpenAI's function mapping; empty if there is none."""
    function = option.get("function", option) if isinstance(option, Mapping) else option
    name = function.get("name") if isinstance(function, Mapping) else function
    return name if isinstance(name, str) else ""


# -- warnings --------------------------------------------------------------------------------------
# Every `find_*` function returns the texts of its warnings; an empty list means that nothing was lost.


def find_unmet_tool_choice(choice: ToolChoice, reply: Reply, host: str) -> list[str]:
    """A warning if a host that cannot enforce `tool_choice` replied against it."""
    if choice.mode == "none" or not is_complete_reply(reply):
        return []
    warnings = []
    if choice.mode == "required" and not reply.tool_calls:
        required = " or ".join(choice.names) or "a tool"
        warnings.append(f"tool_choice: {host} cannot be forced to call {required}, and the reply does not")
    disallowed_names = {call.name for call in reply.tool_calls} - set(choice.names)
    if choice.names and disallowed_names:
        warnings.append(
            f"tool_choice: the reply calls {', '.join(sorted(disallowed_names))}, "
            "which is not among the allowed tools"
        )
    return warnings


def is_complete_reply(reply: Reply) -> bool:
    """Whether the reply ended by itself, and was neither cut nor filtered."""
    return reply.finish_reason in ("stop", "tool_calls", "unknown")


def find_parallel_calls(request: Request, reply: Reply, host: str) -> list[str]:
    """A warning if a host that cannot be limited to one call made several against the request."""
    if request.options.get("parallel_tool_calls") is not False or len(reply.tool_calls) < 2:
        return []
    count = len(reply.tool_calls)
    return [f"parallel_tool_calls: {host} cannot be limited to one call, and made {count}"]


def find_unsupported_options(request: Request, supported: Collection[str], host: str) -> list[str]:
    """A warning for each option of a request that a host does not have.

    Args:
        supported: names of the options that its wire map writes.
    """
    return [
        f"{name}: {host} has no such option, so it was left out"
        for name, value in request.options.items()
        if value is not None and name not in supported and name not in _COMMON_OPTIONS
    ]


_COMMON_OPTIONS = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_tokens",
    "extra_body",
    "batch",  # says how the body goes to the host, and is no part of it
)
"""Options that every wire map reads, and warns of itself where it must."""
