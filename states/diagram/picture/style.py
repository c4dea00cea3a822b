"""The looks of pictures, as CSS inside each SVG."""

from __future__ import annotations

ARROW_HEADS = {
    "toolchart-arrow-head": "arrow-head",
    "toolchart-arrow-head-visited": "arrow-head visited-head",
}
"""Classes of the heads of arrows by id; the same in every picture of a page."""

STYLE = """
.toolchart-diagram .background { fill: #ffffff; }
.toolchart-diagram text { font-family: "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace;
  font-size: 11px; fill: #24292f; white-space: pre; }
.toolchart-diagram text.name { font-size: 13px; font-weight: bold; }
.toolchart-diagram text.middle { text-anchor: middle; }
.toolchart-diagram text.exit, .toolchart-diagram text.guard { fill: #57606a; }
.toolchart-diagram text.stay, .toolchart-diagram text.note { fill: #6e7781; font-style: italic; }
.toolchart-diagram text.visits { fill: #2e7d32; }
.toolchart-diagram .compound > text { paint-order: stroke; stroke: #f6f8fa; stroke-width: 3px; }
.toolchart-diagram .box { fill: #ffffff; stroke: #57606a; stroke-width: 1.2px; }
.toolchart-diagram .inner-box { fill: none; stroke: #57606a; stroke-width: 1px; }
.toolchart-diagram .compound .box { fill: #f6f8fa; }
.toolchart-diagram .region .box { stroke-dasharray: 5 3; }
.toolchart-diagram .sub-agent .box { fill: #f3effb; stroke: #6f42c1; }
.toolchart-diagram .divider { stroke: #d0d7de; stroke-width: 1px; }
.toolchart-diagram .start { fill: #24292f; }
.toolchart-diagram .arrow { fill: none; stroke: #57606a; stroke-width: 1.2px;
  marker-end: url(#toolchart-arrow-head); }
.toolchart-diagram .arrow-head { fill: #57606a; }
.toolchart-diagram .visited-head { fill: #2e7d32; }
.toolchart-diagram .visited .box { fill: #d7ecd9; stroke: #2e7d32; stroke-width: 2px; }
.toolchart-diagram .compound.visited .box { fill: #f0f7f0; }
.toolchart-diagram .current .box { fill: #ffe0a3; stroke: #e65100; stroke-width: 2px; }
.toolchart-diagram .arrow.visited { stroke: #2e7d32; stroke-width: 2px;
  marker-end: url(#toolchart-arrow-head-visited); }
.toolchart-diagram .transition.visited .event, .toolchart-diagram .transition.visited .stay { fill: #2e7d32;
  font-weight: bold; }
.toolchart-diagram .arrow.answer { stroke-dasharray: 5 3; }
.toolchart-diagram .lifeline { stroke: #8c959f; stroke-width: 1px; stroke-dasharray: 2 3; }
.toolchart-diagram .message text { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
.toolchart-diagram .note-box { fill: #f6f8fa; stroke: #8c959f; }
.toolchart-diagram .entered .note-box { fill: #dafbe1; stroke: #1a7f37; }
.toolchart-diagram .separator-line { stroke: #57606a; stroke-width: 1px; }
.toolchart-diagram .separator-box { fill: #eaeef2; stroke: #57606a; }
.toolchart-diagram .participant .box { fill: #f6f8fa; }
.toolchart-diagram .participant-chart .box { fill: #dafbe1; }
.toolchart-diagram .participant-model .box { fill: #ddf4ff; }
.toolchart-diagram .participant-tools .box { fill: #fff8c5; }
.toolchart-diagram .participant-person .box, .toolchart-diagram .participant-user .box { fill: #ffeff7; }
.toolchart-diagram .badge-box { fill: #eaeef2; stroke: #8c959f; stroke-width: 0.8px; }
.toolchart-diagram text.badge-text { font-size: 9px; }
.toolchart-diagram .badge-model .badge-box { fill: #ddf4ff; stroke: #0969da; }
.toolchart-diagram .badge-tools .badge-box { fill: #fff8c5; stroke: #9a6700; }
.toolchart-diagram .badge-person .badge-box { fill: #ffeff7; stroke: #bf3989; }
.toolchart-diagram .badge-timer .badge-box { fill: #f6f8fa; stroke: #57606a; }
.toolchart-diagram .badge-agent .badge-box { fill: #fbefff; stroke: #8250df; }
.toolchart-diagram .badge-function .badge-box { fill: #dafbe1; stroke: #1a7f37; }
.toolchart-diagram .badge-user .badge-box { fill: #fff1e5; stroke: #bc4c00; }
"""
