"""Checks what a program passes to a public function, before anything is recorded: names and types.

Type checkers find the same mistakes; programs without one, notebooks for instance, find them here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from toolchart.states.errors import SpecError
from toolchart.states.events import Cancelled, Decided, UserSaid

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Kind(msgspec.Struct, frozen=True):
    """What an argument must be."""

    accepts: Callable[[Any], bool]
    words: str
    """What it is, for people."""
    hint: str | None = None
    """What to do in place of the likely mistake."""


def _or_none(kind: _Kind) -> _Kind:
    return _Kind(lambda value: value is None or kind.accepts(value), f"{kind.words} or None", kind.hint)


def _is_list(value: Any) -> bool:
    """Whether it has items, and is not itself what the items should be."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Path, Mapping))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_type(value: Any) -> bool:
    """Whether pydantic may know it as a type: no text, no data and no instance of a model."""
    return not isinstance(value, (str, bytes, int, float, list, set, Mapping)) and not (
        hasattr(value, "model_fields_set") and not isinstance(value, type)
    )


_TEXT = _Kind(lambda value: isinstance(value, str), "a text")
_FUNCTION = _Kind(callable, "a function")
_MAPPING = _Kind(
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    "a mapping with texts as keys",
)
_POSITIVE = _Kind(lambda value: _is_number(value) and value > 0, "a number above 0")
_WHOLE = _Kind(lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number")
_TIME = _Kind(lambda value: isinstance(value, datetime), "a datetime")
_COUNT = _Kind(lambda value: _WHOLE.accepts(value) and value > 0, "a whole number from 1")
_FROM_ZERO = _Kind(lambda value: _is_number(value) and value >= 0, "a number of seconds from 0")
_TRUTH = _Kind(lambda value: isinstance(value, bool), "True or False")
_LIST = _Kind(_is_list, "a list", "write [...] around a single value")

_KINDS = {
    "message": _TEXT,
    "conversation": _or_none(_TEXT),
    "handler": _or_none(_TEXT),
    "owner": _or_none(_TEXT),
    "tags": _or_none(
        _Kind(
            lambda value: (
                isinstance(value, Mapping)
                and all(isinstance(text, str) for pair in value.items() for text in pair)
            ),
            "a mapping from texts to texts",
        )
    ),
    "llm": _or_none(_TEXT),
    "model": _or_none(_TEXT),
    "variables": _or_none(_MAPPING),
    "history": _LIST,
    "attachments": _LIST,
    "state": _or_none(_TEXT),
    "tool": _or_none(_TEXT),
    "agent": _or_none(_TEXT),
    "text": _or_none(_TEXT),
    "before": _or_none(_TEXT),
    "since": _or_none(_TIME),
    "until": _or_none(_TIME),
    "limit": _Kind(lambda value: _WHOLE.accepts(value) and value > 0, "a whole number from 1"),
    "start": _Kind(lambda value: _WHOLE.accepts(value) and value >= 0, "a whole number from 0"),
    "output_type": _or_none(_Kind(_is_type, "a type", "give the class itself: output_type=City")),
    "observer": _or_none(_FUNCTION),
    "on_delta": _or_none(_FUNCTION),
    "decision": _or_none(
        _Kind(
            lambda value: isinstance(value, Decided), "a Decided", "write Decided(call_id=..., approved=True)"
        )
    ),
    "event": _Kind(
        lambda value: isinstance(value, (Decided, UserSaid, Cancelled)), "a Decided, UserSaid or Cancelled"
    ),
    "call_id": _or_none(_TEXT),
    "approved": _TRUTH,
    "arguments": _or_none(_MAPPING),
    "content": _MAPPING,
    "question": _or_none(_TEXT),
    "by": _or_none(_TEXT),
    "reason": _or_none(_TEXT),
    "key": _or_none(_TEXT),
    "name": _or_none(_TEXT),
    "at": _or_none(_WHOLE),
    "changes": _or_none(
        _Kind(
            lambda value: isinstance(value, msgspec.Struct),
            "a ForkChanges or RerunChanges",
            "write ForkChanges(settings={...}) for a fork, RerunChanges(settings={...}) for a rerun",
        )
    ),
    # -- of an engine, a rerun --
    "spec": _Kind(
        lambda value: isinstance(value, (str, Path, Mapping)) or hasattr(value, "responses"),
        "an AgentSpec, a name, a path or a mapping",
    ),
    "log": _Kind(
        lambda value: value is None or isinstance(value, (str, Path)) or hasattr(value, "read_last_line"),
        'a store, a path, "memory" or None',
    ),
    "functions": _Kind(
        lambda value: (
            _is_list(value)
            and not callable(value)
            and (not isinstance(value, (list, tuple)) or all(map(_is_tool, value)))
        ),
        "a list of functions and tools",
        "write functions=[f]",
    ),
    "services": _or_none(_MAPPING),
    "providers": _or_none(_MAPPING),
    "outputs": _or_none(
        _Kind(
            lambda value: isinstance(value, Mapping) and all(isinstance(v, type) for v in value.values()),
            "a mapping from names of results to classes",
        )
    ),
    "approver": _or_none(_FUNCTION),
    "asker": _or_none(_FUNCTION),
    "durability": _or_none(_Kind(lambda value: value in ("full", "normal"), '"full" or "normal"')),
    "lease_s": _or_none(_POSITIVE),
    "longest_wait_s": _or_none(_FROM_ZERO),
    "conversations": _or_none(_LIST),
    "judges": _LIST,
    "at_once": _COUNT,
    "every_s": _POSITIVE,
    "grace_s": _FROM_ZERO,
    "on_turn": _FUNCTION,
    "listener": _FUNCTION,
    "sequence": _TRUTH,
    "format_name": _TEXT,
    # -- of a typed agent --
    "prompt": _TEXT,
    "description": _TEXT,
    "handoffs": _LIST,
    "live_tools": _LIST,
    "parallel": _COUNT,
}
"""By name of an argument, which means the same wherever it is used."""

MODEL = _Kind(
    lambda value: isinstance(value, (str, Mapping)) or hasattr(value, "complete"),
    "a text, a mapping or a provider",
    'write "openai:gpt-5.1", or toolchart.testing.ScriptedModel("an answer") in a test',
)
"""The model of a typed agent, which may be a double."""

TOOLS = _Kind(_KINDS["functions"].accepts, "a list of functions and tools", "write tools=[f]")

PEOPLE_MAKE = (Decided, UserSaid, Cancelled)
"""Events that programs make themselves."""

_NO_DEFAULT = object()


def _is_tool(value: Any) -> bool:
    return callable(value) or hasattr(value, "definition")


def check_arguments(
    options: type | None = None, **other_kinds: _Kind
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """A decorator: the function refuses unknown names and wrong types before it begins, with a `SpecError`.

    Args:
        options: the `TypedDict` of the function's `**options`.
        other_kinds: what an argument of this function is, where that is not what `_KINDS` says.
    """
    kinds = {**_KINDS, **other_kinds}
    option_names = () if options is None else tuple(options.__annotations__)

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        places = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
        ]
        skipped = 1 if next(iter(inspect.signature(function).parameters), "") == "self" else 0
        by_position = [place.name for place in places if place.kind is place.POSITIONAL_OR_KEYWORD]
        names = (*(place.name for place in places), *_list_all_names(options, option_names))
        defaults = {place.name: place.default for place in places}
        title = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        def check(args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
            for name in named:
                if name not in names:
                    raise _build_unknown_error(title, name, names)
            for name, value in (*zip(by_position, args[skipped:], strict=False), *named.items()):
                kind = kinds.get(name)
                if (
                    kind is not None
                    and value is not defaults.get(name, _NO_DEFAULT)
                    and not kind.accepts(value)
                ):
                    raise _build_type_error(title, name, value, kind)
                if isinstance(value, PEOPLE_MAKE):
                    _check_fields(title, name, value)

        if inspect.iscoroutinefunction(function):
            awaited = cast("Callable[..., Any]", function)

            @functools.wraps(function)
            async def call_async(*args: Any, **named: Any) -> Any:
                check(args, named)
                return await awaited(*args, **named)

            return cast("Callable[Parameters, Result]", call_async)

        @functools.wraps(function)
        def call(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
            check(args, named)
            return function(*args, **named)

        return call

    return decorate


def _check_fields(title: str, name: str, value: Any) -> None:
    """Check the fields of a value that a program makes: their types stand in annotations only.

    Raises:
        SpecError: names the field, and what it must be.
    """
    try:
        msgspec.convert(msgspec.structs.asdict(value), type(value), strict=True, from_attributes=True)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        field = place.strip("`$.") or "value"
        raise SpecError(
            f"{field!r} of the {type(value).__name__} that {title!r} gets: {problem[:1].lower()}{problem[1:]}"
        ) from None


def _list_all_names(options: type | None, own: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a `TypedDict` and of those that it extends."""
    required = getattr(options, "__required_keys__", frozenset[str]())
    optional = getattr(options, "__optional_keys__", frozenset[str]())
    return tuple(dict.fromkeys((*own, *sorted(required | optional))))


def _build_unknown_error(title: str, name: str, names: Iterable[str]) -> SpecError:
    known = sorted(set(names))
    nearest = get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"known: {', '.join(known)}"
    return SpecError(
        f"{title!r} has no option {name!r}", hint=f"did you mean {nearest[0]!r}? {hint}" if nearest else hint
    )


def _build_type_error(title: str, name: str, value: Any, kind: _Kind) -> SpecError:
    # Of other values only the type is shown: they may be long, or hold a secret.
    is_short = (
        value is None or isinstance(value, (bool, int, float)) or (_TEXT.accepts(value) and len(value) < 60)
    )
    found = f"{value!r} ({type(value).__name__})" if is_short else type(value).__name__
    return SpecError(f"{name!r} of {title!r} is {kind.words}, not {found}", hint=kind.hint)
