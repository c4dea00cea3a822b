"""A run in one file: the page of a run with its records inside, which opens without a server.

The records stand in the file byte for byte, so that the page can check their hashes and name the one that was
changed. What the page shows is made from them there, by the modules that make the page of a server; only the
drawing of the chart, the kinds of its effects and its visits are written beside the records.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup

from toolchart.app.studio.drawings import draw_for_page
from toolchart.app.studio.rendering import render_text
from toolchart.app.studio.static_files import load_static_files
from toolchart.engine.exchange.exports import copy_redacted, redact_for_copy
from toolchart.engine.log.continuation.versions import read_release
from toolchart.engine.log.family import list_relatives
from toolchart.engine.log.read_records import parse_line
from toolchart.engine.log.redaction import PATTERNS, Redactor, count_matches
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import SHARED_PAGE_END, SHARED_PAGE_START, iterate_file_lines
from toolchart.engine.reading.overview import read_children, require_existing
from toolchart.engine.reading.steps import read_readable_steps
from toolchart.engine.reading.visited_path import build_overlay, find_active_states, read_chart
from toolchart.engine.runtime.clock import SystemClock
from toolchart.states.diagram.effect_kinds import find_effect_kind
from toolchart.states.errors import SpecError, ToolchartError, suggest_name
from toolchart.states.events import Forked
from toolchart.states.ports import Store

_STYLES = ("studio.css", "run.css", "diagram.css")
_FIRST_MODULES = ("shared_run.js",)
"""They come before the page's own: they say how requests are answered."""
_PAGE_MODULE = "run.js"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "/static/(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


class SharedContent(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever gets the file can read."""

    conversations: tuple[str, ...]
    """The conversation, and those that its records refer to."""
    records: int
    events: Mapping[str, int]
    """How many events of each type."""
    found: Mapping[str, int]
    """How often each of some patterns of `redact` was found."""
    kept: Mapping[str, int]
    """How many of these are in what redaction leaves: ids, names, and what the author of the agent wrote."""

    def describe(self) -> str:
        """A sentence for whoever shares it."""
        said = ", ".join(
            f"{self.events[name]} {one if self.events[name] == 1 else several}"
            for name, (one, several) in _TEXTS.items()
            if self.events.get(name)
        )
        found = ", ".join(f"{number} {name}" for name, number in self.found.items())
        others = len(self.conversations) - 1
        return (
            f"Whoever gets the file reads all of its {self.records} records: {said or 'no messages'}."
            + (
                f" They are of {others + 1} conversations, for its records refer to the others."
                if others
                else ""
            )
            + (f" Found in them: {found}." if found else "")
            + (f" {self.describe_kept()}" if self.kept else "")
        )

    def describe_kept(self) -> str:
        """A sentence about what a redacted file still shows; empty where that is nothing."""
        kept = ", ".join(f"{number} {name}" for name, number in self.kept.items())
        return f"Redaction leaves {kept}: in ids, in names, or in the agent's own texts." if kept else ""


_TEXTS = {
    "turn_started": ("message", "messages"),
    "replied": ("model reply", "model replies"),
    "tool_finished": ("tool result", "tool results"),
    "decided": ("decision", "decisions"),
    "answered": ("answer of a person", "answers of people"),
}


def survey_content(
    store: Store, conversation: str, patterns: Sequence[str] = tuple(PATTERNS)
) -> SharedContent:
    """What a file of a conversation would show.

    Args:
        patterns: patterns of `redact`, which are looked for.

    Raises:
        NotFound: there is no such conversation.
        LogDamaged: a record cannot be read.
        SpecError: a pattern is unknown.
    """
    require_existing(store, conversation)
    names = list_relatives(store, conversation)
    redactor = Redactor(patterns=patterns)
    events, found, kept = Counter[str](), Counter[str](), Counter[str]()
    for name in names:
        for seq, line in enumerate(store.read_lines(name)):
            record = parse_line(line, seq, name)
            events[record.event_type] += 1
            text = _join_texts(record.event)
            counted = {pattern: count_matches(pattern, text) for pattern in patterns}
            if any(counted.values()):
                left = _join_texts(redact_for_copy(redactor, record.event))
                kept += Counter({pattern: count_matches(pattern, left) for pattern in patterns})
            found += Counter(counted)
    return SharedContent(
        conversations=tuple(names),
        records=sum(events.values()),
        events=dict(events),
        found={name: found[name] for name in patterns if found[name]},
        kept={name: kept[name] for name in patterns if kept[name]},
    )


def _join_texts(value: Any) -> str:
    """All texts and numbers of JSON data, keys too, each on a line of its own."""
    return "\n".join(_iterate_texts(value))


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _iterate_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def build_shared_page(store: Store, conversation: str, redact: Sequence[str] = ()) -> bytes:
    """The run as one page of HTML.

    Args:
        redact: patterns of `redact` that are replaced by marks in a copy, whose hashes are its own; none for
            the records as they are.

    Raises:
        NotFound: there is no such conversation.
        LogDamaged: a record is not the one that was written.
        SpecError: a pattern is unknown; or the conversation cannot be redacted, because others refer to it.
    """
    require_existing(store, conversation)
    unknown = next((name for name in redact if name not in PATTERNS and not name.startswith("/")), None)
    if unknown is not None:
        raise SpecError(f"there is no pattern {unknown!r}", hint=suggest_name(unknown, PATTERNS))
    source = store
    if redact:
        source = MemoryStore()
        source.append(conversation, 0, copy_redacted(store, conversation, Redactor(patterns=redact)))
    names = list_relatives(source, conversation)
    records = b"".join(iterate_file_lines(source, names)).decode()
    drawing = draw_for_page(lambda: read_chart(source, conversation))
    drawn = json.dumps({name: _describe_drawn(source, name) for name in names})
    style = "\n".join(_read_static(name) for name in _STYLES)
    script = bundle_modules()
    text = render_text(
        "shared_run.html",
        conversation=conversation,
        others=[name for name in names if name != conversation],
        summary={
            "conversation": conversation,
            "records": 0,
            "state": "",
            "parent": "",
            "owner": "",
            "author": "",
        },
        origin=read_origin(source, conversation),
        open_requests={"approvals": [], "questions": []},
        shared=True,
        may_chat=False,
        may_debug=False,
        may_approve=False,
        is_redacted=bool(redact),
        version=read_release(),
        written_at=SystemClock().now()[:19].replace("T", " ") + " UTC",
        policy=_make_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        drawn=Markup(_escape(drawn)),
        drawn_digest=hashlib.sha256(drawn.encode()).hexdigest(),
        records=Markup(_escape(records)),
        start=Markup(SHARED_PAGE_START.decode()),
        end=Markup(SHARED_PAGE_END.decode()),
        **drawing,
    )
    return text.encode("utf-8", "replace")


def read_origin(store: Store, conversation: str) -> tuple[str, int] | None:
    """Of a fork its parent, and the record up to which it shares the parent's; None for what is no fork.

    Raises:
        LogDamaged: its first record cannot be read.
    """
    line = next(iter(store.read_lines(conversation)), None)
    record = parse_line(line, 0, conversation) if line is not None else None
    if record is None or record.event_type != Forked.TYPE:
        return None
    return str(record.event["parent"]), int(record.event["seq"])


def _escape(text: str) -> str:
    """A text inside a `script` element that is data: nothing in it can end the element or begin a comment."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _describe_drawn(store: Store, name: str) -> dict[str, Any]:
    """What is written of a conversation beside its records: active states by configuration, kinds of effects,
    the agents that it runs, visits."""
    steps = list(read_readable_steps(store, name, 0))
    # In the order of the log, so that the same log makes the same page.
    labels = list(dict.fromkeys(step.target for step in steps))
    effects = dict.fromkeys(ask.effect for step in steps for ask in step.asks)
    try:
        chart = read_chart(store, name)
        lines = enumerate(store.read_lines(name))
        overlay = build_overlay(chart, (parse_line(line, seq, name) for seq, line in lines))
    except ToolchartError:
        return {}
    return {
        "active": find_active_states(chart, labels),
        "kinds": {effect: find_effect_kind(effect, chart.vocabulary) for effect in effects},
        "children": msgspec.to_builtins(read_children(store, name)),
        "visits": {
            "visits": overlay.states,
            "seconds": overlay.seconds,
            "edges": [[source, row, count] for (source, row), count in overlay.edges.items()],
        },
    }


def _make_policy(style: str, script: str) -> str:
    """The content policy: this script and this style, and nothing from anywhere."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )


# -- the modules of the page as one script -----------------------------------------------------------


def bundle_modules() -> str:
    """The modules of the page as one script. Each is a function of its own, so that names do not meet."""
    order: list[str] = []
    for name in (*_FIRST_MODULES, _PAGE_MODULE):
        _collect(name, order)
    return "const modules = {};\n" + "\n".join(_wrap(name) for name in order)


def _collect(name: str, order: list[str]) -> None:
    if name in order:
        return
    for match in _IMPORT.finditer(_read_static(name)):
        _collect(f"{match[2]}.js", order)
    order.append(name)


def _wrap(name: str) -> str:
    text = _read_static(name)
    exported = [match[2] for match in _EXPORT.finditer(text)]
    text = _IMPORT.sub(_take_from_module, text)
    text = _EXPORT.sub(r"\1 \2", text)
    own = name.removesuffix(".js")
    is_async = "async " if re.search(r"^await ", text, re.MULTILINE) else ""
    return f"modules.{own} = ({is_async}() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _take_from_module(match: re.Match[str]) -> str:
    names = match[1].replace(" as ", ": ")
    return f"const {{{names}}} = modules.{match[2]};"


def list_page_modules() -> Iterator[str]:
    """The modules that the page of a run loads, for it to name them before they are asked for."""
    order: list[str] = []
    _collect(_PAGE_MODULE, order)
    yield from order


def _read_static(name: str) -> str:
    return load_static_files()[name].data.decode()
