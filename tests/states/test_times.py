"""Times in charts: durations, times of day and dates, against an independent reckoning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolchart.states.chart.loading import parse_chart
from toolchart.states.errors import SpecError
from toolchart.states.flows.times import compute_wait, format_due, is_time, parse_duration

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

moments = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
offsets = st.integers(-14 * 4, 14 * 4).map(lambda quarters: timedelta(minutes=15 * quarters))


def write_offset(offset: timedelta) -> str:
    """The offset as charts write it."""
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def write_now(moment: datetime) -> str:
    """The moment as events have it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- durations ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(list(UNITS))), min_size=1, max_size=6))
@example([(5, "m"), (5, "s"), (5, "ms")])
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    """Units add up, in any order; `m` and `ms` are told apart."""
    text = "".join(f"{number}{unit}" for number, unit in parts)
    expected_ms = sum(number * UNITS[unit] for number, unit in parts)
    seconds = parse_duration(text)
    assert seconds is not None
    assert round(seconds * 1000, 3) == expected_ms
    assert parse_duration(f" {text} ") == seconds


@given(st.floats(0, 9e9))
def test_a_number_is_seconds(seconds: float) -> None:
    """A number stands for seconds."""
    assert parse_duration(seconds) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "5", "5 m", "-5s", "1.s", ".5s", "5M", "5mo", "1y", "\u0665s", "1e3s", "99999999999w"),
        *(True, -1, 1e10, float("nan"), float("inf")),
    ],
)
def test_what_is_no_duration(text: str | float) -> None:
    """Texts without a unit, other units, negative, endless and foreign numbers are refused."""
    assert parse_duration(text) is None


@given(st.text(max_size=12))
def test_no_text_breaks_reading_a_time(text: str) -> None:
    """Any text is a time or is none; what is one can be waited for."""
    if is_time(text):
        seconds, due = compute_wait(text, "2027-01-04T09:00:00.000Z")
        assert seconds >= 0
        assert datetime.fromisoformat(due).tzinfo is not None


# -- times of day ------------------------------------------------------------------------------------


@given(moments, st.integers(0, 23), st.integers(0, 59), st.none() | offsets)
@example(datetime(2028, 2, 28, 23, 59, tzinfo=UTC), 0, 0, None)
@example(datetime(2027, 12, 31, 23, 30, tzinfo=UTC), 23, 45, timedelta(hours=-14))
def test_a_time_of_day_is_its_next_occurrence(
    now: datetime, hour: int, minute: int, offset: timedelta | None
) -> None:
    """It lies within the next day, later than now, and shows that time on a clock with that offset."""
    text = f"{hour:02}:{minute:02}{write_offset(offset) if offset is not None else ''}"
    seconds, due = compute_wait(text, write_now(now))
    moment = datetime.fromisoformat(due)
    assert now < moment <= now + timedelta(days=1)
    assert abs((moment - now).total_seconds() - seconds) < 0.001
    shown = moment.astimezone(timezone(offset or timedelta()))
    assert (shown.hour, shown.minute, shown.second) == (hour, minute, 0)


@pytest.mark.parametrize("text", ["24:00", "12:60", "9:00", "09:00 PM", "09:00+2", "25:00+01:00", "09:00:61"])
def test_what_is_no_time_of_day(text: str) -> None:
    """Times that no clock shows are refused when the chart is loaded."""
    assert not is_time(text)


# -- dates -------------------------------------------------------------------------------------------


@given(moments, moments, st.none() | offsets)
def test_a_date_is_that_moment_and_a_past_one_is_due_at_once(
    now: datetime, moment: datetime, offset: timedelta | None
) -> None:
    """A moment is the same in every offset; one in the past has no time left."""
    moment = moment.replace(second=0, microsecond=0)
    local = moment.astimezone(timezone(offset or timedelta()))
    text = local.strftime("%Y-%m-%dT%H:%M") + (write_offset(offset) if offset is not None else "")
    seconds, due = compute_wait(text, write_now(now))
    assert datetime.fromisoformat(due) == max(now, moment)
    assert seconds == pytest.approx(max(0.0, (moment - now).total_seconds()))


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("2028-02-29", "2028-02-29T00:00:00.000Z"),
        ("2028-02-29T12:00+05:30", "2028-02-29T06:30:00.000Z"),
        ("2028-03-26T02:30+01:00", "2028-03-26T01:30:00.000Z"),
        ("2028-03-26T03:30+02:00", "2028-03-26T01:30:00.000Z"),
        ("2028-12-31 23:59:59Z", "2028-12-31T23:59:59.000Z"),
    ],
)
def test_leap_days_and_daylight_offsets(text: str, due: str) -> None:
    """The 29th of February counts; on a day of a clock change both offsets name their own moment."""
    assert compute_wait(text, "2027-01-04T09:00:00Z")[1] == due


@pytest.mark.parametrize(
    "text",
    ["2027-02-29", "2027-13-01", "2027-1-1", "20270101", "2027-W05", "tomorrow", "9999-12-31T23:59-14:00"],
)
def test_what_is_no_date(text: str) -> None:
    """Days that no calendar has, and other spellings, are refused when the chart is loaded."""
    assert not is_time(text)


# -- due ---------------------------------------------------------------------------------------------


@given(moments, st.integers(0, 10**12))
def test_the_due_time_is_now_and_the_duration(now: datetime, ms: int) -> None:
    """`due` keeps milliseconds, over leap days and years."""
    due = datetime.fromisoformat(format_due(write_now(now), ms / 1000))
    assert abs((due - now) - timedelta(milliseconds=ms)) <= timedelta(milliseconds=1)


def test_without_a_time_nothing_is_due() -> None:
    """A core that was not told the time knows how long to wait and not until when."""
    assert compute_wait("2h", "") == (7200.0, "")
    assert compute_wait("02:00", "") == (7200.0, "")


# -- in charts ---------------------------------------------------------------------------------------

CHART = """
name: x
effects: {{tick: {{wait: {wait}}}}}
states:
  a:
    initial: true
    enter: tick
    after: {{{after}: b}}
    transitions: [{{event: elapsed.tick, target: b}}]
  b: {{final: true}}
"""


@pytest.mark.parametrize(
    "time", ["24h", "17:00", '"17:00"', "17:00+02:00", "2027-01-31T09:00Z", "2027-01-31"]
)
def test_times_in_a_chart(time: str) -> None:
    """Every kind of time stands in `wait` and in `after`."""
    effects = parse_chart(CHART.format(wait=time, after=time), source="x").effects
    assert effects == {"tick": {"wait": time.strip('"')}, "timer_a": {"wait": {"time": time.strip('"')}}}


@pytest.mark.parametrize(
    ("wait", "after", "words"),
    [
        ("soon", "1h", "'soon' is no time"),
        ("1h", "soon", "'soon' is no time"),
        ("!!timestamp 2027-01-31", "1h", "holds no date"),
        ("-5", "1h", "is no time"),
    ],
)
def test_what_is_no_time_is_refused_where_it_stands(wait: str, after: str, words: str) -> None:
    """The error names the line."""
    with pytest.raises(SpecError, match=words) as refusal:
        parse_chart(CHART.format(wait=wait, after=after), source="x")
    assert refusal.value.line in (3, 8)
