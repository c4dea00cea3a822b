"""One text for every exception: what the model, the log and a person read of code that failed.

An exception group hides what happened behind a count of its parts, so its text is that of its first causes:
the exceptions inside, at any depth, that are no groups. A cancellation beside another cause is its
consequence and is left out. Imports only the standard library, since every host of bounded work loads it.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_CAUSES = 5
"""First causes of a group that its text names; it says how many more there are."""

MAX_CHAIN = 4
"""Exceptions of one `raise ... from ...` chain that a text names."""

MAX_TEXT = 20_000
"""Characters of a text; the rest is cut."""

_DEFAULT_GROUP_TEXT = "unhandled errors in a TaskGroup"
"""What the task groups of asyncio and AnyIO say of each of their groups: nothing."""

_CANCELLATIONS = frozenset({"CancelledError", "Cancelled"})
"""Names of the classes with which asyncio, concurrent.futures and Trio cancel."""


def describe_error(error: BaseException) -> str:
    """Class and text of an exception, and what it was raised from; of a group its first causes.

        >>> describe_error(ValueError("boom"))
        'ValueError: boom'
        >>> describe_error(ExceptionGroup("two shops", [ValueError("a"), KeyError("b")]))
        "two shops: ValueError: a; KeyError: 'b'"

    The class alone where `__str__` fails or says nothing.
    """
    text = _describe(error, MAX_CHAIN)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4]} ..."


def list_first_causes(error: BaseException) -> list[BaseException]:
    """The exceptions of a group, at any depth, that are no groups; of another exception itself.

    One that says the same as one before is left out, and so are cancellations beside other causes.
    """
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    causes = {(type(cause), read_error_text(cause)): cause for cause in reversed(list(_walk(error)))}
    first_causes = list(reversed(causes.values()))
    others = [cause for cause in first_causes if type(cause).__name__ not in _CANCELLATIONS]
    return others or first_causes


def read_error_text(error: BaseException) -> str:
    """What `str` gives for an exception, and its notes (`add_note`), a line each; empty where it fails."""
    try:
        return str(error) + _read_notes(error)
    except BaseException:  # an unknown class may raise anything in __str__
        return ""


def _read_notes(error: BaseException) -> str:
    return "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))


def _walk(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Every exception of a group that is no group, in order; a stack, since groups may nest deeply."""
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(reversed(error.exceptions))
        else:
            yield error


def _describe(error: BaseException, chain: int) -> str:
    if isinstance(error, BaseExceptionGroup):
        causes = list_first_causes(error)
        texts = [_describe(cause, chain) for cause in causes[:MAX_CAUSES]]
        if len(causes) > MAX_CAUSES:
            texts.append(f"and {len(causes) - MAX_CAUSES} more")
        heading = "" if _DEFAULT_GROUP_TEXT in error.message else f"{error.message}: "
        return heading + "; ".join(texts) + _read_notes(error)
    text = read_error_text(error)
    description = f"{type(error).__name__}: {text.lstrip(chr(10))}" if text else type(error).__name__
    cause = error.__cause__
    # A library that translates an error of another one often repeats its text.
    while cause is not None and chain > 1 and (read_error_text(cause) or type(cause).__name__) in text:
        cause, chain = cause.__cause__, chain - 1
    if cause is None or chain <= 1:
        return description
    return f"{description} (caused by {_describe(cause, chain - 1)})"
