"""A function that charts of tests name by its module."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class WordCount:
    """The words of a text."""

    words: int
    first: str


def count_words(text: str) -> WordCount:
    """Count the words of a text."""
    words = text.split()
    return WordCount(words=len(words), first=words[0])


def repeat_text(count: int) -> str:
    """A text of so many characters."""
    return "x" * count
