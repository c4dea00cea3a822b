"""What single models refuse at single hosts, as data, and the request that they take.

A rule often belongs to a host, a family of models and whether the model thinks, and not to the host alone. So
a row of `MODEL_RULES` names all three, and its source. `adapt_request` leaves out, narrows or rewrites what
the rows refuse, with a warning for each change. What differs between hosts in spelling alone stands in
`openai/compatible_hosts.yaml`.

Sources are pages and threads as they were read until 2026-11-23.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolchart.providers.shared.requests import (
    ANTHROPIC_IDS,
    BEDROCK_IDS,
    CHAT_IDS,
    MISTRAL_IDS,
    RESPONSES_IDS,
    CallIdForm,
    ToolChoice,
    read_tool_choice,
)
from toolchart.states.messages import Request

Wire = Literal["chat", "responses", "messages", "converse"]
"""The wire formats whose requests are adapted."""

ChoiceForm = Literal["none", "required", "named", "lists"]
"""The forms of a tool choice beside `auto`: a word, one tool that must be called, several tools that may be
called."""

# -- rows ----------------------------------------------------------------------------------------


class RefusedOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option that a model refuses."""

    name: str
    """One of `MODEL_OPTIONS`."""
    taken: tuple[float, float] | None = None
    """Least and greatest number that is taken all the same."""
    words: tuple[str, ...] = ()
    """The only values that are refused; empty: every value is."""

    def refuses(self, value: Any) -> bool:
        """Whether the model refuses a value of this option."""
        if value is None or value in ("", [], ()):
            return False
        if self.words:
            return value in self.words
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return not (self.taken is not None and is_number and self.taken[0] <= value <= self.taken[1])


class ModelRule(msgspec.Struct, frozen=True, kw_only=True):
    """What some models refuse at some hosts."""

    source: str
    hosts: tuple[str, ...] = ()
    """Ends of the names of hosts, or names of profiles; empty: every host."""
    other_hosts: tuple[str, ...] = ()
    """Hosts for which it does not hold."""
    wires: tuple[Wire, ...] = ()
    """Wire formats in which it holds; empty: all."""
    models: str = ""
    """Regular expression that is searched in the model's name, in lower case and without `MAKER/`; empty:
    every model."""
    is_thinking: bool | None = None
    """Whether it holds while the model thinks, or while it does not; None: both."""
    has_budget: bool | None = None
    """Whether it holds while thinking has a budget of tokens; None: with and without."""
    refuses: tuple[RefusedOption, ...] = ()
    refused_choices: tuple[ChoiceForm, ...] = ()
    """The forms of a tool choice that are refused."""
    id_form: CallIdForm | None = None
    """The form that ids of calls must have."""
    needs_reply_after_results: bool = False
    """Whether a message of the user right after a tool's result is refused."""
    takes_budget: bool = True
    """Whether thinking can have a budget of tokens."""
    tools_need_effort_none: bool = False
    """Whether tools are refused unless the model is asked not to reason."""
    needs_call_signatures: bool = False
    """Whether a call without a thought signature is refused."""
    never_thinks: bool = False
    """Whether the models do not think, and refuse to be asked for their reasoning."""
    is_chat_only: bool = False
    """Whether only chat completions have the model."""


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """When the models of a family think."""

    source: str
    models: str
    """As in `ModelRule`."""
    default: Literal["always", "on", "off"]
    """Whether they think if nothing is said; `always`: whatever is said."""
    switches: tuple[str, ...] = ()
    """What says whether they think: `reasoning_effort`, `thinking`, `enable_thinking`."""
    hosts: tuple[str, ...] = ()


# -- the tables ----------------------------------------------------------------------------------

_OPENAI = ("api.openai.com", "openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com")
_DEEPSEEK = ("api.deepseek.com",)
_MOONSHOT = ("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com")
_QWEN = ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com")
_ZAI = ("api.z.ai", "open.bigmodel.cn")
_XAI = ("api.x.ai",)
_GEMINI = ("generativelanguage.googleapis.com", "aiplatform.googleapis.com")
_LM_STUDIO = ("lmstudio", "localhost:1234", "127.0.0.1:1234")
"""Its own port, where nothing else says what is behind it."""

_NEW_CLAUDE = r"claude-(opus|sonnet|haiku)-(4[.-][789]|[5-9])|claude-(fable|mythos)"
_GROK = r"^grok-(4|3-mini|code)(?!.*non-reasoning)"
_MISTRAL = r"mistral|mixtral|ministral|codestral|devstral|magistral|pixtral"

_FORCED: tuple[ChoiceForm, ...] = ("required", "named")

THINKING_RULES: tuple[ThinkingRule, ...] = (
    ThinkingRule(hosts=_OPENAI, models=r"^gpt-5\S*-chat", default="off", source="OpenAI's page of the model"),
    ThinkingRule(
        hosts=_OPENAI,
        models=r"^gpt-5\.\d.*-(codex|pro)|^gpt-5\.[5-9]",
        default="on",
        switches=("reasoning_effort",),
        source="BerriAI/litellm#34569 (2026-07-24), jeffdafoe/llm-memory-api#178 (2026-04-29)",
    ),
    ThinkingRule(
        hosts=_OPENAI,
        models=r"^gpt-5\.[1-4]",
        default="off",
        switches=("reasoning_effort",),
        source="openai/openai-openapi#541 (2026-05-18), livekit/agents#7169 (2026-09-08)",
    ),
    ThinkingRule(
        hosts=_OPENAI,
        models=r"^(o1|o3|o4|gpt-5)\b",
        default="always",
        source="openai 3.54.0, types/shared/reasoning_effort.py (they have no `none`)",
    ),
    ThinkingRule(
        models=r"claude",
        default="off",
        switches=("thinking",),
        source="platform.claude.com, Extended thinking",
    ),
    ThinkingRule(
        hosts=_DEEPSEEK,
        models=r"^deepseek-v[4-9]",
        default="on",
        switches=("thinking",),
        source="deepseek-ai/DeepSeek-V3#1376 (2026-05-30), BerriAI/litellm#37470 (2026-08-19)",
    ),
    ThinkingRule(
        hosts=_MOONSHOT,
        models=r"^kimi-(k2\.[7-9]-code|k[3-9]|k2-thinking)",
        default="always",
        source="simstudioai/sim#5716 (2026-07-16)",
    ),
    ThinkingRule(
        hosts=_MOONSHOT,
        models=r"^kimi-k2\.[5-9]",
        default="on",
        switches=("thinking",),
        source="simstudioai/sim#5716 (2026-07-16), oh-my-pi#1077",
    ),
    ThinkingRule(
        hosts=_QWEN, models=r"^qwq|-thinking", default="always", source="pydantic-ai, profiles/qwen.py"
    ),
    ThinkingRule(
        hosts=_QWEN,
        models=r"^qwen3\.[5-9]",
        default="on",
        switches=("enable_thinking", "thinking"),
        source="agentscope-ai/agentscope#1608 (2026-09-07), cloudwego/eino#994 (2026-04-24)",
    ),
    ThinkingRule(
        hosts=_QWEN,
        models=r"",
        default="off",
        switches=("enable_thinking", "thinking"),
        source="QwenLM/qwen-code#7659 (2026-07-24)",
    ),
    ThinkingRule(hosts=_XAI, models=_GROK, default="always", source="vercel/ai, packages/xai, 2026-08-22"),
)
"""The first row that fits a model counts. A model without a row thinks if the request says so."""

_SAMPLING = ("temperature", "top_p", "top_k")
_PENALTIES = ("presence_penalty", "frequency_penalty")

MODEL_RULES: tuple[ModelRule, ...] = (
    # OpenAI
    ModelRule(
        hosts=_OPENAI,
        models=r"^(gpt-5|o1|o3|o4)",
        is_thinking=True,
        refuses=(
            RefusedOption(name="temperature", taken=(1, 1)),
            RefusedOption(name="top_p", taken=(1, 1)),
            *(RefusedOption(name=name) for name in (*_PENALTIES, "logprobs")),
        ),
        source="openai/openai-openapi#541 (2026-05-18); a temperature of 1 is taken (recorded traffic)",
    ),
    ModelRule(
        hosts=_OPENAI,
        wires=("chat",),
        models=r"^(gpt-5|o3|o4)(?!\S*-chat)",
        refuses=(RefusedOption(name="stop"),),
        source="obot#6595, Flowise#5046; openai 3.54.0, completion_create_params.py (o3, o4-mini)",
    ),
    ModelRule(
        hosts=_OPENAI,
        wires=("chat",),
        models=r"^gpt-5\.[56](?!\S*-chat)",
        tools_need_effort_none=True,
        source="BerriAI/litellm#34569 (2026-07-24), livekit/agents#7169 (2026-09-08)",
    ),
    ModelRule(
        hosts=_OPENAI,
        wires=("responses",),
        models=r"gpt-3\.5|gpt-4|chatgpt-|gpt-5\S*-chat",
        never_thinks=True,
        source='the API\'s own refusal, "Encrypted content is not supported with this model": '
        "microsoft/agent-framework#7483 (gpt-4.1)",
    ),
    ModelRule(
        hosts=("api.openai.com",),
        models=r"-audio|-search-preview|-search-api",
        is_chat_only=True,
        source="openai 3.54.0: the Responses API takes no sound (response_input_content_param.py); OpenAI's "
        "pages of the models",
    ),
    ModelRule(
        hosts=_OPENAI, wires=("chat",), id_form=CHAT_IDS, source="earendil-works/pi, openai-completions.ts"
    ),
    ModelRule(
        hosts=_OPENAI,
        wires=("responses",),
        id_form=RESPONSES_IDS,
        source="earendil-works/pi, openai-completions.ts",
    ),
    # Anthropic's models, wherever they are served in Anthropic's forms
    ModelRule(wires=("messages",), id_form=ANTHROPIC_IDS, source="pydantic-ai, profiles/anthropic.py"),
    ModelRule(wires=("converse",), id_form=BEDROCK_IDS, source="botocore 1.44.5, shape ToolUseId"),
    ModelRule(
        wires=("messages", "converse"),
        models=_NEW_CLAUDE,
        refuses=tuple(RefusedOption(name=name) for name in _SAMPLING),
        source="modelparams.dev#282 (2026-08-18); API version 2026-10-21 refuses every value "
        "(platform.claude.com/docs/en/api/migration-2026-10-21)",
    ),
    ModelRule(
        wires=("messages",), models=_NEW_CLAUDE, takes_budget=False, source="modelparams.dev#282 (2026-08-18)"
    ),
    ModelRule(
        wires=("messages",),
        models=r"claude-opus-5",
        is_thinking=False,
        refuses=(RefusedOption(name="reasoning_effort", words=("xhigh", "max")),),
        source="pydantic-ai, profiles/anthropic.py, 2026-08-22",
    ),
    ModelRule(
        wires=("messages", "converse"),
        models=r"claude-(fable|mythos)",
        refused_choices=_FORCED,
        source="pydantic-ai, profiles/anthropic.py, 2026-08-22",
    ),
    ModelRule(
        wires=("messages", "converse"),
        models=r"claude",
        is_thinking=True,
        refuses=(
            RefusedOption(name="temperature", taken=(1, 1)),
            RefusedOption(name="top_p", taken=(0.95, 1)),
            RefusedOption(name="top_k"),
        ),
        source="platform.claude.com, Extended thinking",
    ),
    ModelRule(
        wires=("messages", "converse"),
        models=r"claude",
        has_budget=True,
        refused_choices=_FORCED,
        source="pydantic-ai, profiles/anthropic.py and models/bedrock.py, 2026-08-22",
    ),
    # hosts with OpenAI's forms
    ModelRule(
        hosts=(*_DEEPSEEK, *_MOONSHOT, *_QWEN),
        is_thinking=True,
        refused_choices=_FORCED,
        source="deepseek-ai/DeepSeek-V3#1376 (2026-05-30), BerriAI/litellm#37470 (2026-08-19); Moonshot: "
        "simstudioai/sim#5716 (2026-07-16), oh-my-pi#1077; Qwen: cloudwego/eino#994 (2026-04-24), "
        "QwenLM/qwen-code#7659 (2026-07-24)",
    ),
    ModelRule(
        hosts=_MOONSHOT,
        models=r"^kimi-k2",
        refused_choices=("required",),
        source="vercel/ai, packages/moonshotai, 2026-08-22",
    ),
    ModelRule(
        hosts=_MOONSHOT,
        models=r"^kimi-k(2\.[5-9]|[3-9])",
        is_thinking=True,
        refuses=(RefusedOption(name="temperature", taken=(1, 1)),),
        source="odysseus#3959, nanobot#4962",
    ),
    ModelRule(
        hosts=_MOONSHOT,
        models=r"^kimi-k2\.[5-9]",
        is_thinking=False,
        refuses=(RefusedOption(name="temperature", taken=(0.6, 0.6)),),
        source="odysseus#3959, nanobot#4962",
    ),
    ModelRule(
        hosts=_QWEN,
        models=r"^qwen-?3-coder",
        refused_choices=("required",),
        source="pydantic-ai, profiles/qwen.py, 2026-08-22",
    ),
    ModelRule(
        hosts=_ZAI,
        refused_choices=("none", *_FORCED),
        source="agentscope-java, GLMFormatter, 2026-08-22; docs.z.ai, Chat completion",
    ),
    ModelRule(
        hosts=_XAI,
        models=_GROK,
        refuses=tuple(RefusedOption(name=name) for name in (*_PENALTIES, "stop")),
        source="vercel/ai, packages/xai, 2026-08-22",
    ),
    ModelRule(
        hosts=_XAI,
        models=r"^grok-4\.20",
        refuses=(RefusedOption(name="reasoning_effort"),),
        source="vercel/ai, packages/xai, 2026-08-22",
    ),
    ModelRule(
        hosts=("databricks.com", "azuredatabricks.net"),
        models=r"claude",
        refuses=(RefusedOption(name="reasoning_effort"),),
        source="BerriAI/litellm#36931 (2026-08-14), maximhq/bifrost#6958 (2026-09-07)",
    ),
    ModelRule(
        hosts=_LM_STUDIO,
        refused_choices=("named",),
        source="lmstudio-bug-tracker#670, oh-my-pi#6925 (2026-07-28)",
    ),
    ModelRule(
        hosts=("api.mistral.ai",),
        wires=("chat",),
        id_form=MISTRAL_IDS,
        needs_reply_after_results=True,
        source="errors 3280 and 3230: mistral-vibe#1075 (2026-09-10), nearai/ironclaw#1241, avante.nvim#2695",
    ),
    ModelRule(
        wires=("chat",),
        models=_MISTRAL,
        id_form=MISTRAL_IDS,
        needs_reply_after_results=True,
        source="opencode#1680, hermes-agent#20154: the models' templates refuse it at other hosts too",
    ),
    ModelRule(
        hosts=_GEMINI,
        wires=("chat",),
        models=r"gemini-[3-9]",
        needs_call_signatures=True,
        source="0xsline/OpenChatCut#6 (2026-07), securo-finance/securo#884 (2026-09-10), ellmer#946",
    ),
    ModelRule(
        other_hosts=_OPENAI,
        wires=("chat", "responses"),
        refused_choices=("lists",),
        source="openai 3.54.0, chat_completion_allowed_tool_choice_param.py; no page of another host has it",
    ),
)
"""All rows that fit a request hold together."""


def list_profile_names() -> list[str]:
    """The hosts of the tables, by which an entry can name the rules that hold."""
    rows: tuple[ModelRule | ThinkingRule, ...] = (*MODEL_RULES, *THINKING_RULES)
    return sorted({name for row in rows for name in row.hosts if ":" not in name})


# -- finding rows --------------------------------------------------------------------------------


def find_rules(wire: Wire, host: str, model: str) -> tuple[ModelRule, ...]:
    """The rows for a model at a host, whether it thinks or not.

    Args:
        host: name, or name and port, or the name of a profile.
    """
    return _find_rules(wire, host.lower(), _shorten_name(model))


@lru_cache(maxsize=1024)
def _find_rules(wire: Wire, host: str, name: str) -> tuple[ModelRule, ...]:
    return tuple(
        rule
        for rule in MODEL_RULES
        if (not rule.wires or wire in rule.wires)
        and (not rule.hosts or _is_host(host, rule.hosts))
        and not _is_host(host, rule.other_hosts)
        and re.search(rule.models, name)
    )


@lru_cache(maxsize=1024)
def _find_thinking(host: str, name: str) -> ThinkingRule | None:
    return next(
        (
            rule
            for rule in THINKING_RULES
            if (not rule.hosts or _is_host(host, rule.hosts)) and re.search(rule.models, name)
        ),
        None,
    )


def _shorten_name(model: str | None) -> str:
    """The model's name in lower case, without `MAKER/`; empty where a stored prompt of the host names it."""
    return (model or "").lower().rpartition("/")[2]


def _is_host(host: str, names: tuple[str, ...]) -> bool:
    """Whether a host, given with or without its port, is one of some names or below one."""
    name = host.partition(":")[0].rstrip(".")
    return any(host == one or name == one or name.endswith(f".{one}") for one in names)


def is_thinking(host: str, model: str, switches: Mapping[str, bool]) -> bool | None:
    """Whether a model thinks; None where no row knows it and the request says nothing.

    Args:
        switches: what the request says of it, by name.
    """
    rule = _find_thinking(host.lower(), _shorten_name(model))
    if rule is None:
        return switches.get("thinking", switches.get("enable_thinking"))
    if rule.default == "always":
        return True
    words = [switches[name] for name in rule.switches if name in switches]
    return words[-1] if words else rule.default == "on"


def _read_switches(*sources: Mapping[str, Any] | None) -> dict[str, bool]:
    """What options and further keys of a body say of thinking; the last one counts."""
    switches: dict[str, bool] = {}
    for source in sources:
        if source:
            switches.update(_iterate_switches(source))
    return switches


def _iterate_switches(source: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for name in ("chat_template_kwargs", "additionalModelRequestFields"):
        inner = source.get(name)
        if isinstance(inner, Mapping):
            yield from _iterate_switches(inner)
    reasoning, thinking = source.get("reasoning"), source.get("thinking")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else source.get("reasoning_effort")
    if effort is not None:
        yield "reasoning_effort", effort != "none"
    if isinstance(thinking, Mapping):
        yield "thinking", thinking.get("type") != "disabled"
    elif isinstance(thinking, bool):
        yield "thinking", thinking
    if isinstance(source.get("enable_thinking"), bool):
        yield "enable_thinking", source["enable_thinking"]


# -- adapting a request --------------------------------------------------------------------------


class AdaptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that its model takes, and what was changed for that."""

    request: Request
    thinking: Mapping[str, Any] | None = None
    """The `thinking` of an Anthropic request."""
    warnings: tuple[str, ...] = ()
    """One sentence for each setting that was left out or changed."""
    id_form: CallIdForm | None = None
    """The form that ids of calls must have; None for any."""
    needs_reply_after_results: bool = False
    """Whether a message of the user must not stand right after a tool's result."""
    needs_call_signatures: bool = False
    """Whether each call needs a thought signature."""
    is_thinking: bool | None = None
    """Whether the model thinks; None where nothing says so."""
    may_think: bool = True
    """Whether the model thinks for any request; true where that is not known."""


def adapt_request(
    request: Request,
    *,
    wire: Wire,
    host: str,
    extra: Mapping[str, Any] | None = None,
    thinking: Mapping[str, Any] | None = None,
) -> AdaptedRequest:
    """The request without what its model refuses at a host.

    What `extra_body` says, of the entry or of the handler, is never changed: it is the user's own word.

    Args:
        host: name and port, or the name of a profile.
        extra: the entry's `extra_body`.
        thinking: the `thinking` of an Anthropic request.

    Raises:
        ProviderError: `bad_request`; the tool choice has no known form, or names a tool that is not offered.
    """
    rules = find_rules(wire, host, request.model)
    own_extra = request.options.get("extra_body")
    bodies = (own_extra if isinstance(own_extra, Mapping) else None, extra)
    warnings: list[str] = []
    if thinking is not None and not all(rule.takes_budget for rule in rules):
        request, thinking = _replace_budget(request, thinking, warnings)
    switches = _read_switches(request.options, {"thinking": thinking} if thinking else None, *bodies)
    needs_none = bool(request.tools) and any(rule.tools_need_effort_none for rule in rules)
    if needs_none and "reasoning_effort" not in switches:
        switches["reasoning_effort"] = False
        request = _change_options(request, reasoning_effort="none")
        warnings.append(
            f"reasoning_effort: chat completions refuse tools while {request.model} reasons, so it was asked "
            "not to (`none`); with `api: responses` in the llms entry it reasons beside tools"
        )
    thinks = is_thinking(host, request.model, switches)
    has_budget = _has_budget(thinking, *bodies)
    rules = tuple(
        rule for rule in rules if rule.is_thinking in (None, thinks) and rule.has_budget in (None, has_budget)
    )
    request = _drop_options(request, rules, warnings)
    request = _fit_tool_choice(request, rules, host, warnings)
    return AdaptedRequest(
        request=request,
        thinking=thinking,
        warnings=tuple(warnings),
        id_form=next((rule.id_form for rule in rules if rule.id_form is not None), None),
        needs_reply_after_results=any(rule.needs_reply_after_results for rule in rules),
        needs_call_signatures=any(rule.needs_call_signatures for rule in rules),
        is_thinking=thinks,
        may_think=not any(rule.never_thinks for rule in rules),
    )


def _change_options(request: Request, **changes: Any) -> Request:
    """The request with other options; None removes one."""
    options = {**request.options, **changes}
    return replace(request, options={name: value for name, value in options.items() if value is not None})


_EFFORTS_OF_BUDGETS = ((4_096, "low"), (12_288, "medium"))
"""Up to how many tokens a budget stands for which effort; above, for `high`."""


def _replace_budget(
    request: Request, thinking: Mapping[str, Any], warnings: list[str]
) -> tuple[Request, Mapping[str, Any]]:
    """Adaptive thinking in place of a budget, with an effort of about its size."""
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled":
        return request, thinking
    size = budget if isinstance(budget, int) else 0
    effort = request.options.get("reasoning_effort") or next(
        (word for most, word in _EFFORTS_OF_BUDGETS if size <= most), "high"
    )
    warnings.append(
        f"thinking: {request.model} takes no budget of thinking ({budget} tokens), so it thinks adaptively "
        f"with the effort {effort!r}; set `reasoning_effort`, and `thinking: {{type: adaptive}}`"
    )
    others = {key: value for key, value in thinking.items() if key not in ("type", "budget_tokens")}
    return _change_options(request, reasoning_effort=effort, thinking_budget=None), {
        "type": "adaptive",
        **others,
    }


def _has_budget(thinking: Mapping[str, Any] | None, *bodies: Mapping[str, Any] | None) -> bool:
    """Whether thinking is switched on with a budget."""
    for body in bodies:
        fields = (body or {}).get("additionalModelRequestFields", body) or {}
        if isinstance(fields, Mapping) and isinstance(fields.get("thinking"), Mapping):
            thinking = fields["thinking"]
    return thinking is not None and thinking.get("type") == "enabled"


def _describe_rule(rule: ModelRule) -> str:
    """When a row holds, at the end of a warning."""
    if rule.has_budget:
        return " while its thinking has a budget"
    return {True: " while it thinks", False: " unless it thinks", None: ""}[rule.is_thinking]


def _drop_options(request: Request, rules: tuple[ModelRule, ...], warnings: list[str]) -> Request:
    """The request without the options that some rows refuse."""
    refused: dict[str, None] = {}
    for rule in rules:
        for option in rule.refuses:
            value = request.options.get(option.name)
            if option.name not in refused and option.refuses(value):
                refused[option.name] = None
                word = f" {value!r}" if option.words else ""
                warnings.append(
                    f"{option.name}: {request.model} refuses it{word and f' at {word.strip()}'}"
                    f"{_describe_rule(rule)}, so it was left out"
                )
    return _change_options(request, **dict.fromkeys(refused)) if refused else request


def _fit_tool_choice(
    request: Request, rules: tuple[ModelRule, ...], host: str, warnings: list[str]
) -> Request:
    """The request with a tool choice that no row refuses, and with the tools that express it otherwise."""
    refused = {form: rule for rule in reversed(rules) for form in rule.refused_choices}
    choice = read_tool_choice(request) if refused else None
    if choice is None or (choice.mode == "auto" and not choice.names):
        return request
    names, mode = choice.names, choice.mode
    kept_names: tuple[str, ...] = ()
    notes: list[str] = []

    def note(form: ChoiceForm, refusal: str, result: str) -> None:
        rule = refused[form]
        who = request.model if rule.models or rule.is_thinking is not None else host
        notes.append(f"tool_choice: {who} {refusal}{_describe_rule(rule)}, so {result}")

    if mode == "none" and "none" in refused:
        note("none", "knows no `none`", "no tools were sent")
        warnings += notes
        return replace(_change_options(request, tool_choice=None), tools=())
    is_list = _is_list(request.options["tool_choice"], choice)
    if is_list and "lists" in refused and (choice.required_name is None or "named" in refused):
        note("lists", "takes no list of allowed tools", f"only {', '.join(names)} went out as tools")
        kept_names, names = names, choice.names if choice.required_name else ()
    if mode == "required":
        listed = ", ".join(names)
        form: ChoiceForm = "named" if len(names) == 1 else "required"
        offered_count = len(kept_names) or len(request.tools)
        if form in refused and form == "named" and "required" not in refused:
            note(form, "takes no tool by its name", f"only {listed} went out, and a call was required")
            kept_names, names = names, ()
        elif form in refused and form == "required" and offered_count == 1 and "named" not in refused:
            names = kept_names or (request.tools[0].name,)
        elif form in refused:
            what = f"only {listed} went out as a tool, and" if form == "named" else "nothing is forced:"
            note(form, "cannot be forced to call a tool", f"{what} the model decides")
            kept_names, mode = names or kept_names, "auto"
            names = names if len(names) > 1 else ()
    if (names, mode, kept_names) == (choice.names, choice.mode, ()) and not (is_list and "lists" in refused):
        return request
    warnings += notes
    tools = tuple(tool for tool in request.tools if not kept_names or tool.name in kept_names)
    return replace(_change_options(request, tool_choice=_spell_choice(mode, names)), tools=tools)


def _is_list(option: Any, choice: ToolChoice) -> bool:
    """Whether a choice is spelled as a list of tools."""
    is_spelled = isinstance(option, Mapping) and ("allowed" in option or "allowed_tools" in option)
    return is_spelled or len(choice.names) > 1 or bool(choice.names and choice.mode == "auto")


def _spell_choice(mode: str, names: tuple[str, ...]) -> Any:
    """The option of a choice; None for `auto`."""
    if not names:
        return None if mode == "auto" else mode
    return names[0] if mode == "required" and len(names) == 1 else {"allowed": list(names), "mode": mode}
