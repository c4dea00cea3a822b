"""Counts the exchanges of a watch, and says at its end what was seen."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from toolchart.engine.watching.exchanges import Exchange
from toolchart.engine.watching.recorder import TAG, Recorder, WatchFigures
from toolchart.states.errors import ToolchartError

NOTHING_SEEN = """\
no exchange with a model host was seen
  Either the program asked no model, or its client reads none of the variables that lead to the proxy. Known
  to read none: @ai-sdk/google, the gateway of the AI SDK, smolagents and dspy by themselves, clients of
  Vertex AI, Azure and Bedrock, WebSockets, and programs that give their client an address in code. Give such
  a client the address of the proxy yourself, which `toolchart watch --port N` prints, or name its host:
  `toolchart watch --https HOST -- COMMAND`."""

_MOST_NAMES = 5
"""Models and tools that are listed."""


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


class TunnelCounts:
    """What programs have asked the proxy for HTTPS for, beside what is seen.

    Args:
        names: the hosts that are seen.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.tunnelled: Counter[str] = Counter()
        """Connections with hosts that are not named, which pass unread."""
        self.distrusted: Counter[str] = Counter()
        """Connections with named hosts that a client left before TLS was there: it trusts others alone."""

    def list_lines(self) -> Iterator[str]:
        """A line for each kind that there was."""
        if self.tunnelled:
            yield f"tunnelled, not seen: {_list_counts(self.tunnelled)}"
        if self.distrusted:
            yield f"no TLS, its client may not read SSL_CERT_FILE: {_list_counts(self.distrusted)}"


class WatchSink:
    """Counts exchanges, and records them."""

    def __init__(self, counts: ExchangeCounts, recorder: Recorder) -> None:
        self._counts, self._recorder = counts, recorder

    def note(self, exchange: Exchange) -> None:
        """Count and record an exchange."""
        self._counts.note(exchange)
        self._recorder.note(exchange)


def list_recorded_lines(figures: WatchFigures) -> Iterator[str]:
    """What was recorded: conversations, models, calls of tools, tokens, and what is not certain."""
    if figures.calls:
        parts = [
            f"{figures.calls} model {_count(figures.calls, 'call')} in {len(figures.conversations)} "
            f"{_count(len(figures.conversations), 'conversation')}"
        ]
        counted = [
            (figures.children, "run by a call of another"),
            (figures.failed, "failed"),
            (figures.retries, "asked again"),
            (figures.branches, "gone back"),
            (figures.shortened, "with a shorter list"),
        ]
        yield ", ".join([*parts, *(f"{number} {words}" for number, words in counted if number)])
        yield f"models: {_list_counts(figures.models)}"
    if figures.tools:
        yield f"tools asked for: {_list_counts(figures.tools)}"
    usage = figures.usage
    if usage.input is not None or usage.output is not None:
        cost = "not known" if usage.cost is None else f"{usage.cost:.6f}"
        yield f"tokens: {usage.input or 0} in, {usage.output or 0} out; cost: {cost}"
    if figures.refused:
        times = "once" if figures.asked_again == 1 else f"{figures.asked_again} times"
        again = f"; the host was asked again {times}" if figures.asked_again else ""
        yield f"refused: {_list_counts(figures.refused)}{again}"
    if figures.held:
        yield f"held for a person: {figures.held} {_count(figures.held, 'call')}"
    if figures.turns:
        left = len(figures.departures)
        yield f"of {figures.turns} {_count(figures.turns, 'turn')}, {left or 'none'} left the chart"
    for departure in figures.departures[:_MOST_NAMES]:
        place = f"{departure.conversation}, turn {departure.turn}, {departure.state}"
        yield f"  {place}: {departure.reason}"
    if figures.uncertain:
        yield f"not certain of which conversation: {figures.uncertain}, each marked in its reply"
    for problem, number in figures.problems.most_common(3):
        yield f"not recorded: {number} {_count(number, 'call')}: {problem}"
    if len(figures.problems) > 3:
        yield f"not recorded for {len(figures.problems) - 3} other reasons: see the warnings"


def end_recording(recorder: Recorder, watch: str, log: str | None) -> list[str]:
    """Write what is left; what was recorded, and how to look at it, in lines.

    Args:
        watch: value of the tag of its conversations.
        log: address of the log, as the command was given it.
    """
    try:
        figures = recorder.close()
    except ToolchartError as error:  # the program has ended as it wanted: its exit code stands
        return [*list_recorded_lines(recorder.figures), f"the log could not be written: {error}"]
    lines, place = list(list_recorded_lines(figures)), f" --log {shlex.quote(log)}" if log else ""
    if figures.conversations:
        lines.append(f"look at the first one:  toolchart show {figures.conversations[0]}{place}")
        lines.append(f"list all of this watch: toolchart runs --tag {TAG}={watch}{place}")
    return lines


def _count(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"


def _list_counts(counts: Counter[str]) -> str:
    shown = [f"{name} {number}" for name, number in counts.most_common(_MOST_NAMES)]
    rest = len(counts) - _MOST_NAMES
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def describe_watch(
    counts: ExchangeCounts,
    refusals: Mapping[str, int],
    lines: Iterable[str] = (),
    contacts: Iterable[str] = (),
) -> str:
    """What a watch has seen, for a person; lines after the first are indented.

    Args:
        refusals: requests that went to no host, by the reason.
        lines: what was recorded, and how to look at it.
        contacts: what passed without being seen.
    """
    refused = [
        f"refused: {words}{f' ({count} times)' if count > 1 else ''}" for words, count in refusals.items()
    ]
    if not counts.total:
        return "\n  ".join([NOTHING_SEEN, *refused, *contacts])
    noun = "exchange" if counts.total == 1 else "exchanges"
    return "\n  ".join(
        [f"{counts.total} {noun} with model hosts", *counts.list_lines(), *refused, *contacts, *lines]
    )
