"""Counts the exchanges of a watch, and says at its end what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from toolchart.engine.watching.exchanges import Exchange

NOTHING_SEEN = """\
no exchange with a model host was seen
  Either the program asked no model, or its client reads none of the variables that lead to the proxy. Known
  to read none: @ai-sdk/google, the gateway of the AI SDK, smolagents and dspy by themselves, clients of
  Vertex AI, Azure and Bedrock, WebSockets, and programs that give their client an address in code. Give such
  a client the address of the proxy yourself: `toolchart watch --port N` prints it."""


class ExchangeCounts:
    """A sink that counts exchanges by wire format and host."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()

    def note(self, exchange: Exchange) -> None:
        """Count an exchange."""
        place = (exchange.wire, exchange.host)
        self.total += 1
        self._counts[place] += 1
        # Not a redirect, which the client follows: it is an exchange of its own.
        if not 0 < exchange.status < 400 or exchange.is_cut:
            self._failed[place] += 1

    def list_lines(self) -> Iterator[str]:
        """What was seen, a line for each wire format and host."""
        for (wire, host), count in sorted(self._counts.items()):
            failed = self._failed[wire, host]
            yield f"{wire or 'other'} at {host}: {count}{f', {failed} failed or cut' if failed else ''}"


def describe_watch(counts: ExchangeCounts, refusals: Mapping[str, int]) -> str:
    """What a watch has seen, for a person; lines after the first are indented.

    Args:
        refusals: requests that went to no host, by the reason.
    """
    refused = [
        f"refused: {words}{f' ({count} times)' if count > 1 else ''}" for words, count in refusals.items()
    ]
    if not counts.total:
        return "\n  ".join([NOTHING_SEEN, *refused])
    noun = "exchange" if counts.total == 1 else "exchanges"
    return "\n  ".join([f"{counts.total} {noun} with model hosts", *counts.list_lines(), *refused])
