"""YAML and JSON texts as documents: plain data within bounds, and the line of every key, which errors name.

A word without quotes is what the core schema of YAML 1.2 makes of it, in every document that is read. Only
`true` and `false` are booleans (`on`, `off`, `yes` and `no` are texts). Dates, times of day (`12:30`) and
numbers with `_` are texts. So is a number with a zero in front (`007`): YAML 1.1 reads it in base 8, YAML 1.2
in base 10, and whoever writes one means a code.

A YAML text of a few lines can describe a billion entries (aliases of aliases), an entry that contains
itself, or a nesting that exhausts the stack. Each is refused here with its line, so no later code meets it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, Protocol

import yaml

from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.reading_limits import READING, name_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlLimits:
    """The most that one document may hold."""

    characters: int
    entries: int
    """Keys, values and list entries, with each alias counted as what it repeats."""
    depth: int
    """Mappings and lists inside one another."""
    raised_by: Mapping[str, str] = field(default_factory=dict)
    """For `characters` and `entries`, the limit with which an operator raises them."""

    def name(self, what: str) -> str:
        """The words behind an error that tell how to raise a limit; empty where nobody can."""
        return f" {name_limit(self.raised_by[what])}" if what in self.raised_by else ""


CHART_LIMITS = YamlLimits(characters=600_000, entries=50_000, depth=40)
"""Of one chart; one of 1,000 states that each ask a model has 220,000 characters and 20,000 entries."""
SPEC_LIMITS = YamlLimits(
    characters=READING.spec_characters,
    entries=READING.spec_entries,
    depth=100,
    raised_by={"characters": "spec_characters", "entries": "spec_entries"},
)


MisreadWords = Literal["refuse", "convert", "keep"]
"""What becomes of words without quotes that are no values of their schema; see `read_yaml`."""

SourcePosition = tuple[str | int, ...]
"""The keys and indexes that lead to an entry, for instance `("states", "prompting", "transitions", 0)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The data of a text, and the line of each of its parts."""

    data: Any = None
    source: str | None = None
    """File or name of the document."""
    lines: Mapping[SourcePosition, int] = field(default_factory=dict, repr=False)

    def find_line(self, position: SourcePosition) -> int | None:
        """The one-based line of a position, or of the nearest entry that contains it."""
        return find_nearest_line(self.lines, position)


def read_yaml(
    text: str, source: str | None, *, limits: YamlLimits, misread_words: MisreadWords = "refuse"
) -> Document:
    """The document of a YAML text; an empty text gives None.

    Args:
        misread_words: what becomes of a number or boolean without quotes among the values of a schema of
            texts, and of `yes` and its like in one of booleans. `convert` is for documents that somebody else
            wrote for other readers: it is what is meant. `keep` is for what Toolchart wrote itself.

    Raises:
        SpecError: not YAML, a key twice, or beyond the limits; with file and line.
    """
    if len(text) > limits.characters:
        problem = f"more than {limits.characters:,} characters{limits.name('characters')}"
        raise SpecError(problem, file=source, line=1)
    try:
        loader = _BoundedLoader(text, limits)
        node = loader.get_single_node()
        if node is None:
            return Document(source=source)
        _NodeMeasure(limits).measure_node(node)
        lines = _map_lines(node, source, misread_words)
        return Document(data=loader.construct_document(node), source=source, lines=lines)
    except yaml.YAMLError as error:
        raise _convert_yaml_error(error, source, text) from None


def parse_document(
    text: str, source: str | None, *, json_only: bool = False, expected_keys: str = "`llms` and `responses`"
) -> Document:
    """The document of a mapping: JSON if `json_only`, else YAML, which includes JSON.

    Args:
        expected_keys: the keys that it should have, for an error's words.

    Raises:
        SpecError: not a YAML or JSON mapping.
    """
    if json_only:
        _check_json(text, source)
        # YAML allows no tabs between JSON's tokens; JSON allows no raw tab inside a string.
        text = text.replace("\t", " ")
    try:
        document = read_yaml(text, source, limits=SPEC_LIMITS)
        data = parse_foreign_json(text, "file_values") if json_only else document.data
    except RecursionError:
        raise SpecError("nested too deeply", file=source, line=1) from None
    if data is None:
        raise SpecError(
            "the file is empty", file=source, line=1, hint=f"write a mapping with {expected_keys}"
        )
    if not isinstance(data, dict):
        raise SpecError(
            f"expected a mapping with {expected_keys}, found a {type(data).__name__}", file=source, line=1
        )
    return replace(document, data=data)


def _check_json(text: str, source: str | None) -> None:
    try:
        parse_foreign_json(text, "file_values")
    except json.JSONDecodeError as error:
        raise SpecError(
            f"not valid JSON: {error.msg} (column {error.colno})", file=source, line=error.lineno
        ) from None
    except ValueError as error:
        raise SpecError(f"not valid JSON: {error}", file=source, line=1) from None


def write_yaml(data: Any, **options: Any) -> str:
    """Data as YAML that `read_yaml`, and a reader of YAML 1.1, read back as the same data.

    Args:
        options: of `yaml.dump`.
    """
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **options))


# What a word without quotes is: the tag, the pattern, and the characters with which such a word begins.
# Source: YAML 1.2.2, section 10.3.2; without numbers that have a zero in front.
_WORDS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)


class _BoundedLoader(yaml.SafeLoader):
    """A safe loader that stops at a depth, and raises nothing but `YAMLError`."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  the library's

    def __init__(self, text: str, limits: YamlLimits) -> None:
        super().__init__(text)
        self._limits = limits
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node; the library calls this once for every level of nesting."""
        self._depth += 1
        if self._depth > self._limits.depth:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _build_yaml_error(f"nested too deeply: more than {self._limits.depth} levels", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; a constructor that fails in its own way (`!!timestamp x`) is located."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, TypeError, OverflowError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _build_yaml_error(
                f"not a valid value of the type {kind}: {error}", node.start_mark
            ) from None


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes a text which a reader of YAML 1.1 or 1.2 would take for something else."""


for _name, _pattern, _beginnings in _WORDS:
    _tag, _word = f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$")
    for _class in (_BoundedLoader, _Dumper):
        _class.add_implicit_resolver(_tag, _word, _beginnings)  # type: ignore[no-untyped-call]


def _build_yaml_error(problem: str, mark: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _NodeMeasure:
    """Measures a composed document, with aliases written out."""

    def __init__(self, limits: YamlLimits) -> None:
        self._limits = limits
        self._measures: dict[int, tuple[int, int]] = {}
        """Number of entries and depth of each finished node, by its identity."""
        self._open_nodes: set[int] = set()

    def measure_node(self, node: yaml.Node) -> tuple[int, int]:
        """The number of entries and the depth of a node.

        Raises:
            YAMLError: beyond the limits, or a node contains itself.
        """
        if id(node) in self._measures:
            return self._measures[id(node)]
        if id(node) in self._open_nodes:
            raise _build_yaml_error("an alias names an entry that contains it", node.start_mark)
        self._open_nodes.add(id(node))
        measures = [self.measure_node(child) for child in _list_children(node)]
        entries = 1 + sum(entries for entries, _ in measures)
        depth = 1 + max((depth for _, depth in measures), default=0)
        if entries > self._limits.entries:
            problem = f"more than {self._limits.entries:,} entries with its aliases"
            raise _build_yaml_error(problem + self._limits.name("entries"), node.start_mark)
        if depth > self._limits.depth:
            raise _build_yaml_error(
                f"nested too deeply: more than {self._limits.depth} levels", node.start_mark
            )
        self._measures[id(node)] = entries, depth
        return entries, depth


def _list_children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _map_lines(node: yaml.Node, source: str | None, misread_words: MisreadWords) -> dict[SourcePosition, int]:
    """The one-based line of every key and entry below a composed node.

    Raises:
        SpecError: a key is not a plain word, or occurs twice in one mapping. YAML readers accept the second
            and keep the last one.
    """
    lines: dict[SourcePosition, int] = {}
    _collect_lines(node, (), lines, source, misread_words)
    return lines


def _collect_lines(
    node: yaml.Node,
    position: SourcePosition,
    lines: dict[SourcePosition, int],
    source: str | None,
    misread_words: MisreadWords,
) -> None:
    lines.setdefault(position, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            _collect_lines(entry, (*position, index), lines, source, misread_words)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _collect_key(key, position, lines, source)
            _collect_lines(value, (*position, key.value), lines, source, misread_words)
        if misread_words != "keep" and not _DATA_KEYS.intersection(position):
            for key, value, meant_tag in _list_misread_words(node):
                if misread_words == "refuse":
                    raise _build_word_error(value, (*position, key), source)
                value.tag = meant_tag


_DATA_KEYS = frozenset(
    ("const", "default", "enum", "example", "examples", "arguments", "mock_response", "replies", "variables")
)
"""Keys below which a mapping is a value, and no JSON Schema."""

_TAG = "tag:yaml.org,2002:"

_NOT_TEXT = {f"{_TAG}int": "a number", f"{_TAG}float": "a number", f"{_TAG}bool": "a boolean"}

_OLD_BOOLEANS = frozenset(("yes", "no", "on", "off"))


def _list_misread_words(node: yaml.MappingNode) -> list[tuple[str, yaml.Node, str]]:
    """The words without quotes among the values of a JSON Schema that nothing which fits it could ever equal:
    numbers and booleans of the type `string`, `yes` and its like of the type `boolean`.

    Each comes with its key, and with the tag that is meant.
    """
    parts = {key.value: value for key, value in node.value}
    kinds = parts.get("type")
    names = kinds.value if isinstance(kinds, yaml.SequenceNode) else [kinds] if kinds else []
    kind = {str(name.value) for name in names} - {"null"}
    if kind not in ({"string"}, {"boolean"}):
        return []
    values = [(key, parts[key]) for key in ("const", "default", "example") if key in parts]
    for key in ("enum", "examples"):
        if isinstance(parts.get(key), yaml.SequenceNode):
            values += [(key, value) for value in parts[key].value]
    if kind == {"string"}:
        return [(key, value, f"{_TAG}str") for key, value in values if value.tag in _NOT_TEXT]
    return [
        (key, value, f"{_TAG}bool")
        for key, value in values
        if isinstance(value, yaml.ScalarNode) and value.style is None and value.value.lower() in _OLD_BOOLEANS
    ]


def _build_word_error(value: yaml.Node, position: SourcePosition, source: str | None) -> SpecError:
    kind = _NOT_TEXT.get(value.tag)
    message = f"{value.value} is {kind}, and the schema is one of texts (`type: string`)"
    if kind is None:
        message = f"{value.value} is a text, and the schema is one of booleans (`type: boolean`)"
    return SpecError(
        message,
        file=source,
        line=value.start_mark.line + 1,
        path=format_key_path(position),
        hint="write true or false" if kind is None else f'write it in quotes: "{value.value}"',
    )


def _collect_key(
    key: yaml.Node, position: SourcePosition, lines: dict[SourcePosition, int], source: str | None
) -> None:
    line = key.start_mark.line + 1
    path = format_key_path(position)
    if not isinstance(key, yaml.ScalarNode):
        raise SpecError("a key is a word, not a list or a mapping", file=source, line=line, path=path)
    key_position = (*position, key.value)
    if key_position in lines and key.value != "<<":
        raise SpecError(
            f"the key {key.value!r} occurs twice, first in line {lines[key_position]}",
            file=source,
            line=line,
            path=path,
            hint="keep one of them",
        )
    lines[key_position] = line


def _convert_yaml_error(error: yaml.YAMLError, source: str | None, text: str) -> SpecError:
    """A YAML parser's error as a `SpecError` with its line; `text` is what was parsed."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if isinstance(error, yaml.reader.ReaderError):
        character = error.character if isinstance(error.character, int) else ord(error.character)
        return SpecError(
            f"not valid YAML: the character U+{character:04X} is not allowed",
            file=source,
            line=text.count("\n", 0, error.position) + 1,
        )
    problem = str(getattr(error, "problem", None) or error).split("\n")[0]
    if problem.startswith("but "):
        problem = f"{getattr(error, 'context', '')}, {problem}"
    problem = shorten(problem)
    hint = "indent with spaces, never with tabs" if "\\t" in problem else None
    column = f" (column {mark.column + 1})" if mark else ""
    line = mark.line + 1 if mark else None
    return SpecError(f"not valid YAML: {problem}{column}", file=source, line=line, hint=hint)


# -- places in errors ----------------------------------------------------------------------------

_MAX_KEY_CHARACTERS = 60
"""Characters of one key that a printed key path shows."""


class LocatedDocument(Protocol):
    """What an error needs to name a place: the source of a document and the lines of its entries."""

    @property
    def source(self) -> str | None:
        """File or name of the document."""

    def find_line(self, position: SourcePosition) -> int | None:
        """The one-based line of a position, or of the nearest entry that contains it."""


def raise_error(
    document: LocatedDocument, position: SourcePosition, message: str, hint: str | None = None
) -> NoReturn:
    """Refuse an entry of a document.

    Raises:
        SpecError: always; with the file, the line and the key path of the entry.
    """
    raise SpecError(
        message,
        file=document.source,
        line=document.find_line(position),
        path=format_key_path(position),
        hint=hint,
    )


def find_nearest_line(lines: Mapping[SourcePosition, int], position: SourcePosition) -> int | None:
    """The line of a position, or of the nearest entry that contains it."""
    for length in range(len(position), -1, -1):
        if position[:length] in lines:
            return lines[position[:length]]
    return None


def format_key_path(position: SourcePosition) -> str | None:
    """A position as text, for instance `states.prompting.transitions[0]`; None for the whole document."""
    key_path = ""
    for part in position:
        key = shorten(str(part), _MAX_KEY_CHARACTERS)
        key_path += f"[{part}]" if isinstance(part, int) else f".{key}" if key_path else key
    return key_path or None


_STEP = re.compile(r"([\w-]+)|\[(\d+)\]")


def parse_key_path(path: str) -> SourcePosition:
    """Split a key path into keys and list positions.

    >>> parse_key_path("approval[1].tools")
    ('approval', 1, 'tools')
    """
    return tuple(int(number) if number else key for key, number in _STEP.findall(path))


def shorten(text: str, most: int = 200) -> str:
    """The text, cut where it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


# -- plain data: what a document may consist of ------------------------------------------------------
#
# The first check of a chart; every later rule relies on it.

_LARGEST_INTEGER = 2**63 - 1

WORDS_HINT = "YAML reads on, off, yes, no, true, false, numbers and dates as values: write a name in quotes"


def copy_plain_data(data: Any, document: LocatedDocument) -> Any:
    """A copy of a value that consists of mappings with text keys, lists, texts, numbers, booleans and nulls.

    The copy shares nothing with the value, and no two of its parts are the same object.

    Args:
        document: where the value comes from, for errors.

    Raises:
        SpecError: something else, too much of it, or a value that contains itself.
    """
    return _PlainCopy(document).copy_value(data, ())


class _PlainCopy:
    """One copy, with the number of entries so far."""

    def __init__(self, document: LocatedDocument) -> None:
        self._document = document
        self._entries = 0

    def copy_value(self, value: Any, position: SourcePosition) -> Any:
        """The copy of one value at its position."""
        self._entries += 1
        # A value that contains itself is deeper than every limit.
        if self._entries > CHART_LIMITS.entries or len(position) > CHART_LIMITS.depth:
            raise_error(
                self._document,
                position[:8],
                f"a chart has at most {CHART_LIMITS.entries:,} entries and {CHART_LIMITS.depth} levels",
            )
        if isinstance(value, Mapping):
            return {
                self._check_key(key, position): self.copy_value(item, (*position, key))
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copy_value(item, (*position, index)) for index, item in enumerate(value)]
        problem = _find_scalar_problem(value)
        if problem:
            raise_error(self._document, position, problem, WORDS_HINT)
        return value

    def _check_key(self, key: Any, position: SourcePosition) -> str:
        if not isinstance(key, str):
            # As it stands in YAML, so that its line is found.
            written = "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)
            raise_error(
                self._document,
                (*position, written),
                f"the key {shorten(repr(key))} is not a text",
                WORDS_HINT,
            )
        if _find_scalar_problem(key):
            raise_error(self._document, position, f"a key is not Unicode text: {shorten(ascii(key))}")
        return key


def _find_scalar_problem(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"not Unicode text: {shorten(ascii(value))}"
        return None
    if isinstance(value, int):
        return None if abs(value) <= _LARGEST_INTEGER else "an integer of more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not a number that a chart can hold"
    return f"a chart holds no {type(value).__name__}"
