"""JSON Schemas of what `to_dict` gives."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from toolchart.engine.reading.listing import ConversationPage
from toolchart.engine.reading.overview import ConversationView
from toolchart.engine.reading.waiting import PendingApproval, Waiting, WaitingCall
from toolchart.engine.rerun.comparison import FirstDifference
from toolchart.engine.rerun.judges import Judgement, RunView
from toolchart.engine.rerun.report import RerunReport, RerunResult, RerunTotals, Status
from toolchart.engine.runtime.result import FinishedCall, ForkResult, Turn, TurnError
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.states.content import ContentPart, HostCallPart, Value
from toolchart.states.errors import SpecError
from toolchart.states.messages import Usage


class _TurnForm(TypedDict):
    ok: bool
    is_over: bool
    content: str
    service: str
    model: str
    tool_calls: list[FinishedCall]
    state: str
    conversation: str
    iterations: int
    usage: Usage
    finish_reason: str
    combined_text: NotRequired[str]
    limit_reached: NotRequired[str]
    limit_value: NotRequired[float | None]
    max_iterations_reached: NotRequired[bool]
    data: NotRequired[Any]
    awaits_user: NotRequired[bool]
    error: NotRequired[TurnError]
    pending_approvals: NotRequired[list[PendingApproval]]
    waiting_calls: NotRequired[list[WaitingCall]]
    questions: NotRequired[list[dict[str, Any]]]
    due: NotRequired[str]
    parts: NotRequired[list[ContentPart]]
    host_calls: NotRequired[list[HostCallPart]]
    waiting_messages: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    results: NotRequired[dict[str, dict[str, Any]]]
    result_errors: NotRequired[dict[str, TurnError]]


class _ForkForm(TypedDict):
    conversation: str
    parent: str
    at: int
    result: _TurnForm | None
    stopped: str | None


class _ViewForm(TypedDict):
    conversation: str
    at: str
    newest_at: str
    turns: int
    records: int
    state: str
    message: str
    parent: str
    owner: str
    author: str
    tags: dict[str, str]
    waiting: Waiting
    results: dict[str, Any]
    total_usage: Usage
    cost: float | None
    children: list[str]


class _RerunForm(TypedDict):
    conversation: str
    status: Status
    reason: str
    first: FirstDifference | None
    request_differences: list[str]
    judgements: list[Judgement]
    recorded: RunView | None
    rerun: RunView | None
    is_known: bool
    passed: bool


class _ReportForm(TypedDict):
    passed: bool
    offline: bool
    totals: RerunTotals
    results: list[_RerunForm]


class _StepForm(TypedDict):
    type: Literal["step_taken"]
    event: dict[str, Any]
    effects: list[dict[str, Any]]
    source: str
    target: str
    is_late: bool


class _PageForm(TypedDict):
    conversations: list[dict[str, Any]]
    next: str | None


_FORMS: dict[type[Value], Any] = {
    ConversationPage: _PageForm,
    Turn: _TurnForm,
    ForkResult: _ForkForm,
    ConversationView: _ViewForm,
    RerunResult: _RerunForm,
    RerunReport: _ReportForm,
    StepTaken: _StepForm,
}
"""What `to_dict` gives of a value where that is not its fields."""

for _kind, _form in _FORMS.items():  # a schema names the value
    _form.__name__ = _kind.__name__


def schema_of(kind: type[Value]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `to_dict` of a value of this class gives.

    >>> schema_of(Usage)["$ref"]
    '#/$defs/Usage'

    Raises:
        SpecError: it is no class of values.
    """
    if not (isinstance(kind, type) and issubclass(kind, Value)):
        raise SpecError(
            f"{getattr(kind, '__name__', kind)!s} has no JSON form",
            hint="give a class whose values have `to_dict`",
        )
    schema: dict[str, Any] = msgspec.json.schema(_FORMS.get(kind, kind))
    return schema
