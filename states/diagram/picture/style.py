"""The looks of pictures: their colours in light and dark, their letters, and the CSS of SVG and of pages.

A colour is a custom property. A picture chooses by what the reader's system prefers. On a page, it follows
the page's `color-scheme`.
"""

from __future__ import annotations

import re

ARROW_HEADS = {
    "toolchart-arrow-head": "arrow-head",
    "toolchart-arrow-head-visited": "arrow-head visited-head",
}
"""Classes of the heads of arrows by id; the same in every picture of a page."""

COLOURS = {
    "ground": ("#ffffff", "#101318"),
    "panel": ("#f4f6f8", "#161a20"),
    "box": ("#ffffff", "#1c2128"),
    "line": ("#858e99", "#7d8794"),
    "text": ("#16191d", "#e4e7eb"),
    "quiet": ("#5d6673", "#98a2af"),
    "path": ("#16191d", "#e4e7eb"),
    "current": ("#1d4ed8", "#7aa7ff"),
    "current-box": ("#e8effe", "#1d2b4a"),
    "model": ("#1f6feb", "#6cb0ff"),
    "tools": ("#a15c00", "#e3a53a"),
    "person": ("#b8327c", "#f285bd"),
    "agent": ("#6d3fc4", "#b596ff"),
    "timer": ("#5d6673", "#98a2af"),
    "heat-1": ("#fff3e0", "#2b2418"),
    "heat-2": ("#ffe0b2", "#3a2c16"),
    "heat-3": ("#ffcc80", "#4b3513"),
    "heat-4": ("#ffb74d", "#5d3e0f"),
    "heat-5": ("#ff9d2e", "#70480b"),
}
"""Each colour in light and in dark; in CSS it is `--chart-NAME`. `text` and `quiet` are for letters, `line`
and `path` for frames and arrows, and the kinds of effects for marks."""

SHAPES = {
    "model": "M4.5 0a4.5 4.5 0 1 0 .01 0z",
    "tools": "M.5 .5h8v8h-8z",
    "person": "M4.5 -.5l5 5l-5 5l-5 -5z",
    "user": "M4.5 -.5l5 5l-5 5l-5 -5zM4.5 2.3l-2.2 2.2l2.2 2.2l2.2 -2.2z",
    "timer": "M4.5 0a4.5 4.5 0 1 0 .01 0zM4.5 2.2a2.3 2.3 0 1 1 -.01 0z",
    "agent": "M4.5 0l4.8 8.5h-9.6z",
    "function": "M.5 .5h8v8h-8zM2.7 2.7v3.6h3.6v-3.6z",
}
"""The mark of each kind of effect: its colour is not all that tells it apart."""
MARK_SIZE = 9.0

_RULES = """
.toolchart-diagram .background { fill: $ground; }
.toolchart-diagram text { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  fill: $text; white-space: pre; }
.toolchart-diagram text.name { font: 600 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.toolchart-diagram text.middle { text-anchor: middle; }
.toolchart-diagram text.effect, .toolchart-diagram text.exit, .toolchart-diagram text.guard,
.toolchart-diagram text.stay, .toolchart-diagram text.visits, .toolchart-diagram text.note { fill: $quiet; }
.toolchart-diagram text.stay { font-style: italic; }
.toolchart-diagram .box { fill: $box; stroke: $line; stroke-width: 1px; }
.toolchart-diagram .inner-box { fill: none; stroke: $line; stroke-width: 1px; }
.toolchart-diagram .compound .box { fill: $panel; }
.toolchart-diagram .compound text { paint-order: stroke; stroke: $panel; stroke-width: 3px; }
.toolchart-diagram .region .box { stroke-dasharray: 5 3; }
.toolchart-diagram .sub-agent .box { stroke: $agent; }
.toolchart-diagram .divider { stroke: $line; stroke-width: 1px; }
.toolchart-diagram .start { fill: $text; }
.toolchart-diagram .arrow { fill: none; stroke: $line; stroke-width: 1.2px;
  marker-end: url(#toolchart-arrow-head); }
.toolchart-diagram .arrow-head { fill: $line; }
.toolchart-diagram .visited-head { fill: $path; }
.toolchart-diagram .visited .box, .toolchart-diagram .visited .inner-box { stroke: $path; }
.toolchart-diagram .visited .box { stroke-width: 2px; }
.toolchart-diagram .visited text.visits { fill: $text; }
.toolchart-diagram .current .box { fill: $current-box; stroke: $current; stroke-width: 3px; }
.toolchart-diagram .current .inner-box { stroke: $current; }
.toolchart-diagram .arrow.visited { stroke: $path; stroke-width: 2.4px;
  marker-end: url(#toolchart-arrow-head-visited); }
.toolchart-diagram .transition.visited .event, .toolchart-diagram .transition.visited .stay { fill: $text;
  font-weight: bold; }
.toolchart-diagram .badge-model { fill: $model; }
.toolchart-diagram .badge-tools, .toolchart-diagram .badge-function { fill: $tools; }
.toolchart-diagram .badge-person, .toolchart-diagram .badge-user { fill: $person; }
.toolchart-diagram .badge-timer { fill: $timer; }
.toolchart-diagram .badge-agent { fill: $agent; }
.toolchart-diagram .badge path { fill-rule: evenodd; }
.toolchart-diagram .arrow.answer { stroke-dasharray: 5 3; }
.toolchart-diagram .lifeline { stroke: $line; stroke-width: 1px; stroke-dasharray: 2 3; }
.toolchart-diagram .message text { paint-order: stroke; stroke: $ground; stroke-width: 3px; }
.toolchart-diagram .note-box { fill: $panel; stroke: $line; }
.toolchart-diagram .entered .note-box { fill: $box; stroke: $path; }
.toolchart-diagram .separator-line { stroke: $line; stroke-width: 1px; }
.toolchart-diagram .separator-box { fill: $panel; stroke: $line; }
.toolchart-diagram .participant .box { stroke-width: 1.5px; }
.toolchart-diagram .participant-model .box { stroke: $model; }
.toolchart-diagram .participant-tools .box { stroke: $tools; }
.toolchart-diagram .participant-person .box, .toolchart-diagram .participant-user .box { stroke: $person; }
"""
"""`$NAME` is a colour."""

_HEAT = """.hot .toolchart-diagram .visited .box, .hot .toolchart-diagram .box { fill: $box; }
.hot .toolchart-diagram .state text { fill: $text; }
""" + "".join(
    f".hot .toolchart-diagram .heat-{level} .box {{ fill: $heat-{level}; }}\n"
    f".hot .toolchart-diagram .arrow.heat-{level} {{ stroke-width: {level}px; }}\n"
    for level in range(1, 6)
)
"""Shades of a chart inside an element of the class `hot`."""

CHANGE_STYLE = "".join(
    f"""
.toolchart-diagram .{change} > .box, .toolchart-diagram .{change} > .inner-box {{ stroke: {colour};
  stroke-width: 2px; }}
.toolchart-diagram .arrow.{change} {{ stroke: {colour}; stroke-width: 2.4px; }}
.toolchart-diagram .transition.{change} text {{ fill: {colour}; }}"""
    for change, colour in (("changed", "#96690f"), ("added", "#1a8a3f"), ("removed", "#d1352c"))
) + (
    """
.toolchart-diagram .removed > .box, .toolchart-diagram .arrow.removed { stroke-dasharray: 5 3; }
.toolchart-diagram .transition.removed text { text-decoration: line-through; }
"""
)
"""For a picture that shows how two charts differ. Its colours can be read on light and on dark ground."""

_DECLARATION = re.compile(r"([\w-]+): (\$[\w-]+);")
_COLOUR = re.compile(r"\$([\w-]+)")


def make_flat_style(*, is_dark: bool = False) -> str:
    """The style with plain colours, for what knows no custom properties."""
    return _COLOUR.sub(lambda match: COLOURS[match[1]][is_dark], _RULES)


def _make_style() -> str:
    """The style inside a picture: a program that knows no custom properties takes the light colours."""
    used = {match[1]: None for match in _COLOUR.finditer(_RULES)}
    light, dark = (" ".join(f"--chart-{name}: {COLOURS[name][side]};" for name in used) for side in (0, 1))
    rules = _DECLARATION.sub(
        lambda match: f"{match[1]}: {COLOURS[match[2][1:]][0]}; {match[1]}: {_name_colour(match[2][1:])};",
        _RULES,
    )
    return (
        f"\n.toolchart-diagram {{ {light} }}\n@media (prefers-color-scheme: dark) {{\n"
        f".toolchart-diagram {{ {dark} }}\n}}{rules}"
    )


def _make_page_style() -> str:
    """The style for pages, which choose light or dark by `color-scheme`."""
    colours = " ".join(f"--chart-{name}: light-dark({a}, {b});" for name, (a, b) in COLOURS.items())
    rules = _COLOUR.sub(lambda match: _name_colour(match[1]), _RULES + _HEAT)
    return f":root {{ {colours} }}{rules}"


def _name_colour(name: str) -> str:
    return f"var(--chart-{name})"


STYLE = _make_style()
"""What every SVG has inside."""
PAGE_STYLE = _make_page_style()
"""What pages have as a file: the same rules, and the shades of heat."""
