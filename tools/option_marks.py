"""What a decorator with options leaves on a function: the options, checked and stored as an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.states.errors import SpecError, describe_value, suggest_name


def require_function(subject: str, function: Any) -> None:
    """Refuse what is no function.

    Args:
        subject: what would be made of it, with its article.

    Raises:
        SpecError: it cannot be called.
    """
    if not callable(function):
        raise SpecError(
            f"{subject} is made of a function, not of {describe_value(function)}",
            hint="give the function itself, not its name; an agent takes builtins as mappings: "
            "{'name': 'calculator'}"
            if isinstance(function, str)
            else None,
        )


class OptionMark(msgspec.Struct, frozen=True, kw_only=True):
    """The mark of one decorator: where it stores options, and which ones it has."""

    attribute: str
    """Name of the attribute that holds the options."""
    subject: str
    """What the decorator makes, with its article, for errors."""
    options: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]] = {}
    """By option: the values that it may have, where these are words."""

    def decorate(self, function: Any, options: Mapping[str, Any]) -> Any:
        """The function with its options stored; without a function, a decorator that stores them.

        Raises:
            SpecError: an option is unknown or has a value that it cannot have, or what is marked is no
                function.
        """
        for option, value in options.items():
            if option not in self.options:
                hint = suggest_name(option, self.options)
                raise SpecError(f"unknown option {option!r} of {self.subject}", hint=hint)
            if option in self.words and value not in self.words[option]:
                hint = suggest_name(str(value), self.words[option])
                raise SpecError(f"the {option} of {self.subject} cannot be {value!r}", hint=hint)

        def store_options(function: Any) -> Any:
            require_function(self.subject, function)
            try:
                setattr(function, self.attribute, dict(options))
            except (AttributeError, TypeError):  # a bound method, a function of C, an object with slots
                raise SpecError(
                    f"{self.subject} is made of a function, and {type(function).__name__} keeps no options",
                    hint="mark the function where it is defined, or write a function that calls it",
                ) from None
            return function

        return store_options if function is None else store_options(function)

    def is_on(self, function: Any) -> bool:
        """Whether the decorator marks a function."""
        return hasattr(function, self.attribute)

    def read_options(self, function: Any) -> dict[str, Any]:
        """The options of a function; none for one that is not marked."""
        return dict(getattr(function, self.attribute, {}))
