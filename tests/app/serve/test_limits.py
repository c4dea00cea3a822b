"""The limits of a server: named on the command line, and in docs/serve.md, whose table this file generates.

`python tests/app/serve/test_limits.py` writes the table.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import make_site, make_value, open_client

from toolchart.app.server.site import Limits, read_limits
from toolchart.states.errors import SpecError

DOC = Path(__file__).parents[3] / "docs" / "serve.md"
TABLE = re.compile(r"(<!-- limits: [^>]*-->\n).*?(<!-- end of limits -->)", re.DOTALL)
FIELDS = msgspec.structs.fields(Limits)


def write_table() -> str:
    """The table of all limits, from the class."""
    (class_node,) = ast.parse(inspect.getsource(Limits)).body
    assert isinstance(class_node, ast.ClassDef)
    sentences = [
        " ".join(node.value.value.split())
        for node in class_node.body[1:]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    rows = [
        f"| `{field.name}` | {field.default:,} | {sentence} |"
        for field, sentence in zip(FIELDS, sentences, strict=True)
    ]
    return "\n".join(["| limit | default | what |", "|---|---|---|", *rows, ""])


def fill_table(text: str) -> str:
    """The document with the table as it should be."""
    return TABLE.sub(lambda match: f"{match[1]}\n{write_table()}\n{match[2]}", text)


def test_the_document_has_every_limit() -> None:
    """docs/serve.md names each limit with its default."""
    text = DOC.read_text()
    assert TABLE.search(text)
    assert fill_table(text) == text


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_each_limit_can_be_changed(name: str) -> None:
    """Each limit takes another value by its name, and leaves the others."""
    assert read_limits([f"{name}=7"]) == msgspec.structs.replace(Limits(), **{name: 7})


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("trns=5", ("there is no limit 'trns'", "did you mean 'turns'?")),
        ("turns", ("a whole number above 0",)),
        ("turns=many", ("a whole number above 0",)),
        ("turns=1.5", ("a whole number above 0",)),
        ("turns=0", ("a whole number above 0",)),
        ("check_s=-1", ("a number above 0",)),
        ("check_s=nan", ("a number above 0",)),
        ("check_s=inf", ("a number above 0",)),
    ],
)
def test_a_wrong_limit_is_refused(word: str, words: tuple[str, ...]) -> None:
    """A name that no limit has is refused with the nearest one, and a value that cannot be its own."""
    with pytest.raises(SpecError) as caught:
        read_limits([word])
    assert all(text in str(caught.value) for text in words)


def test_the_command_refuses_a_misspelt_limit(run_cli: Callable[..., Any]) -> None:
    """`serve --limit` says so before anything listens."""
    result = run_cli("serve", "quickstart", "--limit", "trns=5")
    assert (result.code, "did you mean" in result.err) == (2, True)


@pytest.mark.parametrize(("most", "count"), [(2, 2), (4, 3)])
@pytest.mark.parametrize("query", [{}, {"limit": "100"}])
async def test_a_page_holds_no_more_than_its_limit(most: int, count: int, query: dict[str, str]) -> None:
    """`page` and `record_page` bound what one answer lists, whatever its request asks for or leaves out."""
    engine = make_engine(["hello"] * 3)
    for name in ("c1", "c2", "c3"):
        await engine.arun("hi", conversation=name)
    async with open_client(make_site(engine, limits=Limits(page=most, record_page=most))) as client:
        listed = (await client.get("/api/conversations", params=query)).json()
        records = (await client.get("/api/conversations/c1/records", params=query)).json()
    assert (len(listed["conversations"]), len(records["records"])) == (count, count)


async def test_a_key_has_its_limit() -> None:
    """`key_characters` bounds an `Idempotency-Key`: one of that length is taken, a longer one is refused."""
    statuses = []
    async with open_client(make_site(limits=Limits(key_characters=5))) as client:
        for key in ("12345", "123456"):
            headers = {"Idempotency-Key": key}
            answer = await client.post("/api/conversations", json={"message": "hi"}, headers=headers)
            statuses.append((answer.is_success, "at most 5 characters" in answer.text))
    assert statuses == [(True, False), (False, True)]


@pytest.mark.parametrize(("most", "status"), [(1, 303), (2, 200)])
async def test_a_further_browser_ends_the_oldest_session(most: int, status: int) -> None:
    """`sessions` bounds the browsers that are signed in, and `session_s` says how long each one is."""
    site = make_site(limits=Limits(sessions=most, session_s=7.0))
    async with open_client(site, None) as client:
        first = await client.post("/sign-in", data={"token": make_value("owner")})
        client.cookies.clear()
        await client.post("/sign-in", data={"token": make_value("owner")})
        client.cookies.clear()
        cookie = first.headers["set-cookie"]
        answer = await client.get("/conversations", headers={"Cookie": cookie.partition(";")[0]})
    assert "Max-Age=7;" in cookie
    assert answer.status_code == status


if __name__ == "__main__":
    DOC.write_text(fill_table(DOC.read_text()))
