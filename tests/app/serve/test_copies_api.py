"""What is made of recorded conversations: comparisons, exports, and whether their hashes hold."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from served import make_site, open_client

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges

ONE = "/api/conversations/c1"


async def make_two() -> Engine:
    """Two conversations: the second one calls another tool in its second reply and then goes on alike."""
    echo = reply_with_calls(("echo", {"text": "a"}))
    detour = reply_with_calls(("calculator", {"expression": "1+1"}))
    last = reply_with_calls(("echo", {"text": "z"}))
    engine = make_engine([echo, last, "done", echo, detour, last, "done"])
    await engine.arun("hi", conversation="c1")
    await engine.arun("hi", conversation="c2")
    return engine


# -- comparing -----------------------------------------------------------------------------------


async def test_two_runs_are_compared_side_by_side() -> None:
    """The steps in common are counted, the first difference is named, and the rest is aligned: after a
    detour equal steps stand beside each other again, the detour beside nothing."""
    async with open_client(make_site(await make_two()), "viewer") as client:
        answer = (await client.get(f"{ONE}/diff?with=c2")).json()
    assert (answer["is_equal"], answer["first"]["left_seq"], answer["first"]["right_seq"]) == (False, 5, 5)
    rows = answer["rows"]
    assert answer["common"] == 5
    assert [row["right"]["seq"] for row in rows if row["left"] is None] != []
    assert not [row for row in rows if row["right"] is None]
    tail = [(row["left"]["event"]["type"], row["is_equal"]) for row in rows if row["left"]][-2:]
    assert tail[-1] == ("replied", True)


async def test_a_fork_and_its_parent_are_aligned_at_the_fork() -> None:
    """The records that both share come first, as the same records of the parent; then each side has its own,
    with the conversation in which it stands and its number there. So are two forks of one parent."""
    echoes = [reply_with_calls(("echo", {"text": text})) for text in ("a", "z")]
    engine = make_engine([*echoes, "done", "other"])
    await engine.arun("hi", conversation="c1")
    changes = ForkChanges(results={"call_1_1_0": "other"})
    async with engine:
        await engine.conversation("c1").afork(changes=changes, name="f")
        await engine.conversation("c1").afork(name="late")
        async with open_client(make_site(engine), "viewer") as client:
            answer = (await client.get(f"{ONE}/diff?with=f")).json()
            forks = (await client.get("/api/conversations/f/diff?with=late")).json()
    common = answer["common_rows"]
    assert len(common) == answer["common"] == answer["shared"]
    assert all(row["left"] == row["right"] for row in common)
    shown = [row["left"]["type"] for row in common]
    assert shown[:2] + shown[-2:] == ["configured", "turn_started", "replied", "reviewed"]
    assert {row["left"]["conversation"] for row in common} == {"c1"}
    first, places = answer["rows"][0], (answer["first"]["left_seq"], answer["first"]["right_seq"])
    assert first["left"]["type"] == first["left"]["event"]["type"] == "tool_finished"
    assert (first["left"]["seq"], first["right"]["seq"]) == places
    assert (first["left"]["conversation"], first["right"]["conversation"]) == ("c1", "f")
    assert first["right"]["seq"] == 1
    sides = {(row["left"]["conversation"], row["right"]["conversation"]) for row in forks["rows"]}
    assert (forks["shared"], sides) == (answer["shared"], {("f", "c1")})


async def test_equal_runs_have_no_difference() -> None:
    """A conversation equals itself, and a page says so."""
    async with open_client(make_site(await make_two())) as client:
        answer = (await client.get(f"{ONE}/diff?with=c1")).json()
        page = await client.get("/conversations/c1/diff?with=c1")
    assert (answer["is_equal"], answer["first"], answer["rows"]) == (True, None, [])
    assert "equal" in page.text


async def test_the_page_of_a_comparison_shows_both() -> None:
    """Both sides are shown step by step in the words of the trace, and the first difference in a sentence
    with its place."""
    async with open_client(make_site(await make_two())) as client:
        page = await client.get("/conversations/c1/diff?with=c2")
    for part in (
        "The first difference",
        "The same for 5 steps, then A calls echo, and B calls calculator.",
        "/event/reply/tool_calls/0/",
        "5 steps in common",
        "only right",
        "→ calculator(expression=&#34;1+1&#34;)",
        'href="/conversations/c2#5"',
    ):
        assert part in page.text


COMPARED: dict[str, tuple[list[Any], list[Any], str]] = {
    "arguments": (
        [reply_with_calls(("echo", {"text": "a"})), "done"],
        [reply_with_calls(("echo", {"text": "b"})), "done"],
        "The same for 2 steps, then A calls echo with text a, and B with text b.",
    ),
    "an argument that is missing": (
        [reply_with_calls(("weather", {"city": "Oslo", "days": 2})), "done"],
        [reply_with_calls(("weather", {"city": "Oslo"})), "done"],
        "The same for 2 steps, then A calls weather with days 2, and B without days.",
    ),
    "answers": (["yes"], ["no"], "The same for 2 steps, then in A m says yes, and in B m says no."),
    "nothing": (["yes"], ["yes"], "Both are the same in all of their 3 steps."),
}
"""By what differs: the replies of both sides, and the sentence."""


@pytest.mark.parametrize("case", COMPARED)
async def test_a_comparison_says_in_a_sentence_what_differs(case: str) -> None:
    """The sentence names what each side did first that the other did not."""
    left, right, sentence = COMPARED[case]
    engine = make_engine(left)
    await engine.arun("hi", conversation="c1")
    other = make_engine(right, log=engine.store)
    await other.arun("hi", conversation="c2")
    async with open_client(make_site(engine)) as client:
        page = await client.get("/conversations/c1/diff?with=c2")
    assert sentence in " ".join(page.text.split())


async def test_a_run_that_goes_on_is_compared_with_one_that_has_ended() -> None:
    """The sentence says which one ends, and what the other does then."""
    engine = make_engine(["one", "two"])
    await engine.arun("hi", conversation="c1")
    await engine.conversation("c1").afork(name="f")
    await engine.arun("and then?", conversation="f")
    async with open_client(make_site(engine)) as client:
        page = await client.get("/conversations/c1/diff?with=f")
    assert "The same for 3 steps, then A ends and B goes on: turn 2 and then?." in page.text
    assert "3 steps in common, the same records" in page.text


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?with=nope", 404)])
async def test_a_comparison_names_another_conversation(query: str, status: int) -> None:
    """Without one, or with one that does not exist, the request is refused."""
    async with open_client(make_site(await make_two())) as client:
        assert (await client.get(f"{ONE}/diff{query}")).status_code == status
        assert (await client.get(f"/conversations/c1/diff{query}")).status_code == status


# -- exports -------------------------------------------------------------------------------------


async def test_each_format_is_a_file() -> None:
    """Every format comes as an attachment with a plain name; an unknown one is refused with the list."""
    async with open_client(make_site(await make_two()), "viewer") as client:
        page = await client.get("/conversations/c1")
        for form in ("openai", "calls", "jsonl"):
            answer = await client.get(f"{ONE}/export/{form}")
            assert answer.status_code == 200, form
            assert answer.headers["content-disposition"].startswith(f'attachment; filename="c1-{form}.')
            assert f"/export/{form}" in page.text
        messages = (await client.get(f"{ONE}/export/openai")).json()
        wrong = await client.get(f"{ONE}/export/pdf")
    assert [message["role"] for message in messages][:2] == ["system", "user"]
    assert (wrong.status_code, "openai" in wrong.json()["error"]) == (404, True)
