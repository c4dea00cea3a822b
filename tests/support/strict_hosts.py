"""A model host on loopback that refuses what the real host refuses, and answers as `ScriptedHost` does.

An entry reaches it under the real host's name: `base_url` is the host's address over plain HTTP, and `proxy`
is the server. A row of `REFUSALS` says what one host refuses, in the words of the real refusals that
`providers/shared/host_rows.py` names. The rows know nothing of the tables under test.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from web import WebAnswer, serve_web
from wire_answers import ScriptedHost

Body = dict[str, Any]
Check = Callable[[Body], bool]
"""Whether a host refuses a body."""


def is_forced(body: Body) -> bool:
    """Whether a call is asked for."""
    choice = body.get("tool_choice", body.get("toolConfig", {}).get("toolChoice"))
    if isinstance(choice, dict):
        return choice.get("type") in ("any", "tool", "function") or "any" in choice or "tool" in choice
    return choice == "required"


def list_calls(body: Body) -> list[dict[str, Any]]:
    """The calls in the messages of a chat."""
    return [call for message in body.get("messages", ()) for call in message.get("tool_calls") or ()]


def list_call_ids(body: Body) -> Iterator[str]:
    """The ids of calls and of results, in any wire format."""
    for call in list_calls(body):
        yield call["id"]
    for message in body.get("messages", ()):
        if message.get("role") == "tool":
            yield message["tool_call_id"]
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            for found in (block, block.get("toolUse", {}), block.get("toolResult", {})):
                if found.get("type") == "tool_use":
                    yield found["id"]
                for key in ("tool_use_id", "toolUseId"):
                    if key in found:
                        yield found[key]
    for item in body.get("input", ()):
        if "call_id" in item:
            yield item["call_id"]


def has_unmatched_results(body: Body) -> bool:
    """Whether a result answers no call, or a call has no result."""
    counts = Counter(list_call_ids(body))
    return any(count != 2 for count in counts.values())


def has_any(*names: str, taken: float | None = None) -> Check:
    """Refuses a body with one of some keys, unless it has the one value that is taken."""
    return lambda body: any(name in body and body[name] != taken for name in names)


def has_ids_beside(pattern: str) -> Check:
    """Refuses ids of calls that do not fit a pattern, and ids that fit no call."""
    return lambda body: (
        any(not re.fullmatch(pattern, one) for one in list_call_ids(body)) or has_unmatched_results(body)
    )


def list_call_names(body: Body) -> Iterator[str]:
    """The names of calls, in any wire format."""
    for call in list_calls(body):
        yield call["function"]["name"]
    for message in body.get("messages", ()):
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            for found in (block, block.get("toolUse", {})):
                if found.get("type") == "tool_use" or ("toolUseId" in found and "name" in found):
                    yield found["name"]
    for item in body.get("input", ()):
        if item.get("type") == "function_call":
            yield item["name"]


def has_names_beside(pattern: str) -> Check:
    """Refuses names of calls that do not fit a pattern."""
    return lambda body: any(not re.fullmatch(pattern, name) for name in list_call_names(body))


def has_unread_arguments(body: Body) -> bool:
    """Whether the arguments of a call are not the text of a JSON object."""
    texts = [call["function"]["arguments"] for call in list_calls(body)]
    texts += [item["arguments"] for item in body.get("input", ()) if item.get("type") == "function_call"]
    for text in texts:
        try:
            if not isinstance(json.loads(text), dict):
                return True
        except ValueError:
            return True
    return False


def has_empty_reply(body: Body) -> bool:
    """Whether an assistant message has neither text nor calls."""
    own = [message for message in body["messages"] if message["role"] == "assistant"]
    return any(not message.get("content") and not message.get("tool_calls") for message in own)


def has_user_after_tool(body: Body) -> bool:
    """Whether a message of the user stands right after a result."""
    roles = [message["role"] for message in body["messages"]]
    return ("tool", "user") in pairwise(roles)


def lacks_reasoning(body: Body, only_calls: bool = False) -> bool:
    """Whether an assistant message has no `reasoning_content`."""
    own = [message for message in body["messages"] if message["role"] == "assistant"]
    return any(
        "reasoning_content" not in message for message in own if message.get("tool_calls") or not only_calls
    )


def thinks_by_default(body: Body) -> bool:
    """Whether thinking is not switched off."""
    return body.get("thinking", {}).get("type") != "disabled"


def has_message_keys(*names: str) -> Check:
    """Refuses messages with some keys."""
    return lambda body: any(name in message for message in body["messages"] for name in names)


def lacks_signature(body: Body) -> bool:
    """Whether the first call of a message has no thought signature."""
    messages = body.get("messages", ())
    first_calls = [message["tool_calls"][0] for message in messages if message.get("tool_calls")]
    return any(
        not call.get("extra_content", {}).get("google", {}).get("thought_signature") for call in first_calls
    )


def lists_tools(body: Body) -> bool:
    """Whether the tool choice is a list of tools."""
    choice = body.get("tool_choice")
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"


def reasons(body: Body) -> bool:
    """Whether an OpenAI model reasons that does so by default."""
    return body.get("reasoning_effort", body.get("reasoning", {}).get("effort")) != "none"


@dataclass(frozen=True)
class Refusal:
    """What one host refuses of some models."""

    host: str
    check: Check
    message: str
    models: str = ""
    path: str = ""

    def applies(self, host: str, path: str, body: Body, model: str) -> bool:
        """Whether a request is refused."""
        is_host = host == self.host and path.endswith(self.path)
        return is_host and bool(re.search(self.models, model)) and self.check(body)


NEW_CLAUDE = r"claude-opus-5|claude-sonnet-4-[789]|claude-fable"
SAMPLING = ("temperature", "top_p", "top_k")

REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "api.openai.com",
        lambda body: bool(body.get("tools")) and reasons(body),
        "Function tools with reasoning_effort are not supported in /v1/chat/completions",
        r"gpt-5\.[56]",
        "/chat/completions",
    ),
    Refusal(
        "api.openai.com",
        lambda body: reasons(body) and has_any("temperature", "top_p", taken=1)(body),
        "Unsupported parameter: 'temperature' is not supported with this model",
        r"gpt-5\.5|gpt-5-mini",
    ),
    Refusal(
        "api.openai.com",
        has_any("stop", "presence_penalty", "frequency_penalty", "logprobs"),
        "Unsupported parameter: 'stop' is not supported with this model",
        r"gpt-5-mini",
    ),
    Refusal(
        "api.openai.com",
        lambda body: "reasoning.encrypted_content" in body.get("include", ()),
        "Encrypted content is not supported with this model.",
        r"gpt-4",
    ),
    Refusal(
        "api.openai.com",
        has_ids_beside(r".{1,40}"),
        "string too long. Expected a string with maximum length 40",
        path="/chat/completions",
    ),
    Refusal("api.openai.com", has_ids_beside(r".{1,64}"), "string too long: 64", path="/responses"),
    Refusal("api.anthropic.com", has_any(*SAMPLING), "temperature is deprecated for this model", NEW_CLAUDE),
    Refusal(
        "api.anthropic.com",
        lambda body: body.get("thinking", {}).get("type") == "enabled",
        "thinking.type.enabled is not supported for this model. Use thinking.type.adaptive",
        NEW_CLAUDE,
    ),
    Refusal("api.anthropic.com", is_forced, "tool_choice forces tool use is not compatible", "claude-fable"),
    Refusal(
        "api.anthropic.com",
        lambda body: body.get("thinking", {}).get("type") == "enabled" and is_forced(body),
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    Refusal(
        "api.anthropic.com",
        lambda body: (
            body.get("thinking", {}).get("type") in ("enabled", "adaptive")
            and has_any("temperature", taken=1)(body)
        ),
        "`temperature` may only be set to 1 when thinking is enabled",
    ),
    Refusal(
        "api.anthropic.com",
        lambda body: (
            body.get("thinking", {}).get("type") == "disabled"
            and body.get("output_config", {}).get("effort") in ("xhigh", "max")
        ),
        "effort: xhigh needs thinking",
        "claude-opus-5",
    ),
    Refusal(
        "api.anthropic.com", has_ids_beside(r"[a-zA-Z0-9_-]+"), "tool_use.id: String should match pattern"
    ),
    Refusal("api.openai.com", has_names_beside(r"[a-zA-Z0-9_-]{1,64}"), "string does not match pattern"),
    Refusal("api.anthropic.com", has_names_beside(r"[a-zA-Z0-9_-]{1,128}"), "tool_use.name: pattern"),
    Refusal(
        "bedrock-runtime.eu-central-1.amazonaws.com",
        has_names_beside(r"[a-zA-Z0-9_-]{1,64}"),
        "toolUse.name failed to satisfy constraint",
    ),
    Refusal("gateway.test", has_unread_arguments, "Expecting ',' delimiter"),
    Refusal("api.mistral.ai", has_empty_reply, "either content or tool_calls, but not none"),
    Refusal(
        "bedrock-runtime.eu-central-1.amazonaws.com",
        has_ids_beside(r"[a-zA-Z0-9_.:-]{1,64}"),
        "toolUseId failed to satisfy constraint",
    ),
    Refusal(
        "bedrock-runtime.eu-central-1.amazonaws.com",
        lambda body: (
            is_forced(body)
            and body.get("additionalModelRequestFields", {}).get("thinking", {}).get("type") == "enabled"
        ),
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    Refusal(
        "api.deepseek.com",
        lambda body: is_forced(body) and thinks_by_default(body),
        "Thinking mode does not support this tool_choice",
        "deepseek-v4",
    ),
    Refusal(
        "api.deepseek.com",
        lambda body: thinks_by_default(body) and bool(list_calls(body)) and lacks_reasoning(body),
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "deepseek-v4",
    ),
    Refusal(
        "api.moonshot.ai",
        lambda body: is_forced(body) and thinks_by_default(body),
        "tool_choice 'specified' is incompatible with thinking enabled",
        "kimi-k2.6|kimi-k3",
    ),
    Refusal(
        "api.moonshot.ai",
        lambda body: body.get("tool_choice") == "required",
        "tool_choice required is not supported",
        "kimi-k2",
    ),
    Refusal(
        "api.moonshot.ai",
        lambda body: "temperature" in body and body["temperature"] != (1 if thinks_by_default(body) else 0.6),
        "invalid temperature: only 1 is allowed for this model",
        "kimi-k2.6",
    ),
    Refusal(
        "api.moonshot.ai",
        lambda body: thinks_by_default(body) and lacks_reasoning(body, only_calls=True),
        "thinking is enabled but reasoning_content is missing in assistant tool call message",
        "kimi-k2.6",
    ),
    Refusal("api.moonshot.ai", has_any("seed"), "seed is not supported"),
    Refusal(
        "dashscope.aliyuncs.com",
        lambda body: is_forced(body) and body.get("enable_thinking", "qwen3.5" in body["model"]),
        "The tool_choice parameter does not support being set to required or object in thinking mode",
    ),
    Refusal("api.z.ai", lambda body: body.get("tool_choice") not in (None, "auto"), "tool_choice: only auto"),
    Refusal(
        "api.x.ai",
        has_any("presence_penalty", "frequency_penalty", "stop"),
        "Argument not supported on this model: presencePenalty",
        "grok-4",
    ),
    Refusal("api.x.ai", has_any("reasoning_effort"), "reasoning_effort is not supported", "grok-4.20"),
    Refusal(
        "api.mistral.ai",
        has_ids_beside(r"[a-zA-Z0-9]{9}"),
        "Tool call id has to be defined and of length 9: a-z, A-Z, 0-9 (3280)",
    ),
    Refusal(
        "api.mistral.ai", has_user_after_tool, "Unexpected role 'user' after role 'tool' (3230)", path=""
    ),
    Refusal(
        "api.groq.com",
        has_message_keys("reasoning", "reasoning_content", "name"),
        "'messages.2' : property 'reasoning_content' is unsupported",
    ),
    Refusal("api.groq.com", has_any("logprobs", "top_logprobs", "logit_bias"), "`logprobs` is not supported"),
    Refusal("gateway.test", has_message_keys("reasoning", "reasoning_content", "name"), "unknown key"),
    Refusal("gateway.test", lists_tools, "tool_choice: input should be 'auto', 'none' or 'required'"),
    Refusal(
        "localhost:1234",
        lambda body: isinstance(body.get("tool_choice"), dict),
        "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
    ),
    Refusal(
        "generativelanguage.googleapis.com",
        lacks_signature,
        "Function call is missing a thought_signature in functionCall parts.",
        "gemini-3",
    ),
    Refusal(
        "generativelanguage.googleapis.com",
        lambda body: any(
            parts and "thoughtSignature" not in parts[0]
            for content in body.get("contents", ())
            if (parts := [part for part in content["parts"] if "functionCall" in part])
        ),
        "Function call is missing a thought_signature in functionCall parts.",
        "gemini-3",
    ),
    Refusal(
        "api.cerebras.ai",
        has_any("parallel_tool_calls", "frequency_penalty", "presence_penalty", "service_tier"),
        "property is unsupported",
    ),
    Refusal(
        "adb-1.azuredatabricks.net", has_any("reasoning_effort"), "reasoning_effort: Extra inputs", "claude"
    ),
)


@dataclass
class StrictHost:
    """A running stand-in: its scripted answers, the bodies that it got, and what it refused."""

    proxy: str
    """Address that an entry names as its `proxy`."""
    script: ScriptedHost
    bodies: list[Body] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


@contextmanager
def serve_strict_host(
    answers: Iterable[Any] = (), change_answer: Callable[[Body], None] | None = None
) -> Iterator[StrictHost]:
    """Serve every host of `REFUSALS` by one server.

    Args:
        answers: scripted, in order; a refused request uses none up.
        change_answer: changes the body of each answer.
    """
    script = ScriptedHost()
    script.answers.extend(answers)
    strict = StrictHost("", script)

    def answer(request: dict[str, Any]) -> WebAnswer:
        address, body = urlsplit(request["path"]), json.loads(request["body"])
        named = re.search(r"/models?/([^/:]+)", address.path)
        model = str(body.get("model") or (named.group(1) if named else ""))
        strict.bodies.append(body)
        strict.paths.append(address.path)
        for row in REFUSALS:
            if row.applies(address.netloc, address.path, body, model):
                strict.refusals.append(row.message)
                error = {"message": row.message, "type": "invalid_request_error"}
                return 400, {"content-type": "application/json"}, json.dumps({"error": error}).encode()
        status, headers, data = script.make_answer({**request, "path": address.path})
        if change_answer is not None:
            changed = json.loads(data)
            change_answer(changed)
            data = json.dumps(changed).encode()
        return status, headers, data

    with serve_web(answer) as server:
        strict.proxy = server.url
        yield strict
