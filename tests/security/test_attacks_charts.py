"""Attacks on editing charts: other folders, links, devices, forged requests, large, deep, endless texts."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

import httpx
from served import bearer, make_site, open_client

from toolchart.app.server.answers import Refusal
from toolchart.app.server.charts.folder import MAX_FILE_BYTES, ChartFolder
from toolchart.app.server.charts.work import ChartText, examine_chart
from toolchart.app.server.charts.workbench import find_workbench
from toolchart.app.server.site import Limits, Site, SiteSettings
from toolchart.specs.charts import read_shipped_chart
from toolchart.specs.secrets import remember_secret
from toolchart.states.chart.yaml_document import CHART_LIMITS
from toolchart.states.errors import SpecError

TOOL_LOOP = read_shipped_chart("tool_loop")
SECRET = "what-nobody-outside-may-read: 17"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of charts beside a file that is none of anybody's business."""
    (tmp_path / "outside.yaml").write_text(f"# {SECRET}\n{TOOL_LOOP}")
    path = tmp_path / "charts"
    path.mkdir()
    (path / "mine.yaml").write_text(TOOL_LOOP)
    return path


def make_editing_site(folder: Path, **limits: Any) -> Site:
    """A site that saves charts to a folder."""
    return make_site(limits=Limits(**limits), settings=SiteSettings(edit_folder=str(folder)))


NAMES = [
    *(
        "..",
        ".",
        "",
        " ",
        "mine",
        "mine.txt",
        ".hidden.yaml",
        "a/b.yaml",
        "../outside.yaml",
        "..\\outside.yaml",
    ),
    *(
        "/etc/passwd",
        "mine.yaml/",
        "mine.yaml\0",
        "mine.yaml\n",
        "m\u0131ne.yaml",
        "-.yaml",
        "a..yaml",
        "~.yaml",
    ),
    *("a" * 200 + ".yaml", "CON:.yaml", "$(id).yaml", "%2e%2e%2foutside.yaml", "\u202emine.yaml"),
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_the_folder(folder: Path, name: str) -> None:
    """A name that is not plain is refused before anything is opened, for reading and for saving."""
    charts = ChartFolder(folder)
    for act in (lambda: charts.read(name), lambda: charts.save(name, TOOL_LOOP, base="", by="eve")):
        with pytest.raises(Refusal) as refused:
            act()
        assert refused.value.status == 400
    assert sorted(os.listdir(folder.parent)) == ["charts", "outside.yaml"]
    assert os.listdir(folder) == ["mine.yaml"]


@pytest.mark.parametrize(
    "path",
    ["..%2foutside.yaml", "%2e%2e%2foutside.yaml", "..%5coutside.yaml", "%2fetc%2fpasswd", "mine.yaml%00"],
)
async def test_no_path_of_a_request_leads_out_of_the_folder(folder: Path, path: str) -> None:
    """Neither the API nor a page opens what an encoded path names."""
    async with open_client(make_editing_site(folder)) as client:
        for address in (f"/api/charts/files/{path}", f"/charts/files/{path}", f"/charts/edit?file={path}"):
            answer = await client.get(address)
            assert answer.status_code in (400, 404)
            assert SECRET not in answer.text


def test_links_and_devices_are_neither_read_nor_written(folder: Path) -> None:
    """A link to a file, a link to nothing, a folder, a pipe: each is refused at once, none is followed,
    replaced or waited for. A hard link is parted: what it shared keeps its text."""
    outside = folder.parent / "outside.yaml"
    (folder / "link.yaml").symlink_to(outside)
    (folder / "nowhere.yaml").symlink_to(folder.parent / "new.yaml")
    (folder / "folder.yaml").mkdir()
    os.mkfifo(folder / "pipe.yaml")
    charts = ChartFolder(folder)
    assert charts.list_names() == (["mine.yaml"], True)
    for name in ("link.yaml", "nowhere.yaml", "folder.yaml", "pipe.yaml"):
        for act in (charts.read, lambda name: charts.save(name, TOOL_LOOP, base="", by="eve")):
            with pytest.raises(Refusal) as refused:
                act(name)
            assert refused.value.status == 409
    assert not (folder.parent / "new.yaml").exists()
    assert SECRET in outside.read_text()
    os.link(outside, folder / "hard.yaml")
    charts.save("hard.yaml", TOOL_LOOP, base=charts.read("hard.yaml").digest, by="eve")
    assert SECRET in outside.read_text()


def test_an_exchanged_folder_is_not_followed(folder: Path) -> None:
    """When the folder's name comes to mean another place, saves still go to the folder that was meant."""
    charts = ChartFolder(folder)
    folder.rename(folder.parent / "moved")
    other = folder.parent / "other"
    other.mkdir()
    folder.symlink_to(other)
    charts.save("new.yaml", TOOL_LOOP, base="", by="eve")
    assert os.listdir(other) == []
    assert (folder.parent / "moved" / "new.yaml").read_text() == TOOL_LOOP


def test_a_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    """A folder that is not there, or a file, is an error of the option, with what to do."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(SpecError, match="name a folder that exists"):
            ChartFolder(path)


def test_a_save_that_fails_leaves_the_old_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails in the middle, the file has its old text, and no draft of ours stays."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    charts = ChartFolder(folder)
    digest = charts.read("mine.yaml").digest
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(Refusal, match="No space left"):
        charts.save("mine.yaml", TOOL_LOOP + "# more\n", base=digest, by="eve")
    assert (folder / "mine.yaml").read_text() == TOOL_LOOP
    assert os.listdir(folder) == ["mine.yaml"]


@pytest.mark.parametrize("name", ["viewer", "talker", "decider"])
async def test_only_the_role_edit_checks_and_saves(folder: Path, name: str) -> None:
    """Other tokens read charts, and nothing else."""
    async with open_client(make_editing_site(folder), name) as client:
        assert (await client.get("/api/charts/files/mine.yaml")).status_code == 200
        for path in ("check", "replay", "files/new.yaml"):
            answer = await client.post(f"/api/charts/{path}", json={"yaml": TOOL_LOOP, "finding": 0})
            assert answer.status_code == 403
            assert "'edit'" in answer.json()["error"]
    assert os.listdir(folder) == ["mine.yaml"]


async def test_forged_requests_save_nothing(folder: Path) -> None:
    """Without a token, from a foreign origin, under a foreign name, with a cookie and no origin, or as a form
    of another site: refused, and nothing is written."""
    body = {"yaml": TOOL_LOOP, "base": ""}
    attacks: list[tuple[int, dict[str, str], dict[str, Any]]] = [
        (401, {}, {"json": body}),
        (403, {**bearer(), "Origin": "https://evil.example"}, {"json": body}),
        (403, {**bearer(), "Origin": "null"}, {"json": body}),
        (403, {**bearer(), "Cookie": "toolchart-8765=x"}, {"json": body}),
        (421, {**bearer(), "Host": "evil.example"}, {"json": body}),
        (415, bearer(), {"data": {"yaml": "x"}}),
    ]
    async with open_client(make_editing_site(folder), None) as client:
        for status, headers, content in attacks:
            answer = await client.post("/api/charts/files/new.yaml", headers=headers, **content)
            assert answer.status_code == status, headers
    assert os.listdir(folder) == ["mine.yaml"]


async def test_large_and_deep_texts_are_refused(folder: Path) -> None:
    """A text beyond the size of a chart is 413; one that nests deeply, repeats itself by aliases or is no
    text is a problem with its line; a file that is too large or no text is not opened."""
    too_long = "x" * (CHART_LIMITS.characters + 1)
    letters = "abcdefghijklmnopqrst"
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(letters))
    (folder / "large.yaml").write_bytes(b"states:\n" + b"#" * MAX_FILE_BYTES)
    (folder / "latin.yaml").write_bytes(b"states: \xff\n")
    async with open_client(make_editing_site(folder)) as client:

        async def check(text: str) -> httpx.Response:
            return await client.post("/api/charts/check", json={"yaml": text})

        assert (await check(too_long)).status_code == 413
        for text in ("[" * 5_000, bomb, "\0", "\ud7ff\x07", "- &a [*a]", "? [x]\n: y"):
            assert (await check(text)).json()["problem"]["line"] is not None
        answer = await client.post("/api/charts/files/n.yaml", json={"yaml": too_long})
        assert answer.status_code == 413
        for name, part in (("large.yaml", "larger than"), ("latin.yaml", "UTF-8")):
            answer = await client.get(f"/api/charts/files/{name}")
            assert (answer.status_code, part in answer.json()["error"]) == (409, True)


async def test_half_characters_are_not_saved(folder: Path) -> None:
    """A lone surrogate, which no file can hold, is refused; nothing is written."""
    async with open_client(make_editing_site(folder)) as client:
        body = b'{"yaml": "# \\ud800\\nextends: tool_loop\\n"}'
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/api/charts/files/n.yaml", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert os.listdir(folder) == ["mine.yaml"]


def test_a_text_imports_nothing_and_reads_no_other_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`extends` finds shipped charts and files of the folder; a path, a link or another file is not opened. A
    function, a class, an agent or an attachment that a text names is not looked up."""
    (folder / "link.yaml").symlink_to(folder.parent / "outside.yaml")
    (folder / "trap.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(folder))
    for name in (
        "../outside.yaml",
        str(folder.parent / "outside.yaml"),
        "link.yaml",
        "trap.py",
        "/etc/passwd",
    ):
        answer = examine_chart(ChartText(yaml=f"extends: {name}\n", source="x.yaml", folder=str(folder)))
        assert answer["problem"]["line"] == 1
        assert SECRET not in str(answer)
    found = examine_chart(ChartText(yaml="extends: mine.yaml\n", source="x.yaml", folder=str(folder)))
    assert found["problem"] is None
    alone = examine_chart(ChartText(yaml="extends: mine.yaml\n", source="x.yaml"))
    assert "--edit" in alone["problem"]["message"]
    text = """
extends: tool_loop
states: {prompting: {enter: %s}}
effects:
  f: {call_function: {function: "trap:f", as: x}}
  m: {call_model: {prompt: hi, as: y, schema: "trap:Model"}}
  a: {run_agent: {spec: /etc/passwd, message: hi, as: z}}
  p: {call_model: {prompt: hi, as: w, attach: [/etc/passwd]}}
"""
    for name in "fmap":
        examine_chart(ChartText(yaml=text % name, source="x.yaml", folder=str(folder)))


async def test_a_check_that_takes_too_long_is_ended(folder: Path) -> None:
    """Work beyond its time is killed; the answer says so and what to do, the drawing's time is its own, and
    the next text is checked."""
    site = make_editing_site(folder, check_s=0.001)
    async with open_client(site) as client:
        answer = (await client.post("/api/charts/check", json={"yaml": TOOL_LOOP})).json()
        assert "not ready after 0.001 s" in answer["problem"]["message"]
        assert "toolchart check" in answer["problem"]["hint"]
        replay = await client.post("/api/charts/replay", json={"yaml": TOOL_LOOP, "finding": 0})
        assert (replay.status_code, "not ready" in replay.json()["error"]) == (422, True)
        saved = await client.post("/api/charts/files/new.yaml", json={"yaml": TOOL_LOOP})
        assert saved.status_code == 422
        assert os.listdir(folder) == ["mine.yaml"]


async def test_only_so_many_charts_are_checked_at_once(folder: Path) -> None:
    """Beyond the limit the answer is 429 with the time to wait; nothing is queued."""
    site = make_editing_site(folder, checks=1)
    async with open_client(site) as client:
        with find_workbench(site)._slots.hold():
            answer = await client.post("/api/charts/check", json={"yaml": TOOL_LOOP})
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1


async def test_a_file_that_holds_a_secret_is_not_shown(folder: Path) -> None:
    """A known key in a file is neither sent nor replaced by a save: the answer says to take it out."""
    key = "sk-planted-in-a-chart-for-this-test"
    remember_secret(key)
    (folder / "mine.yaml").write_text(f"# {key}\n{TOOL_LOOP}")
    async with open_client(make_editing_site(folder)) as client:
        for path in ("/api/charts/files/mine.yaml", "/charts/files/mine.yaml", "/charts/edit?file=mine.yaml"):
            answer = await client.get(path)
            assert answer.status_code == 409
            assert key not in answer.text


async def test_hostile_texts_of_a_chart_stay_texts(folder: Path) -> None:
    """Markup in names, comments and guards of a file is never part of a page or of a drawing."""
    text = (
        '# </textarea><script>alert(1)</script>\nname: "<b>x</b>"\nextends: tool_loop\n'
        "states:\n  lost: {final: true, enter: answer}\n"
    )
    async with open_client(make_editing_site(folder)) as client:
        for path in ("/charts/files/mine.yaml", "/charts/edit?file=mine.yaml"):
            page = (await client.get(path)).text
            assert "<script>alert" not in page
            assert "<b>x" not in page
        drawing = (await client.post("/api/charts/check", json={"yaml": text})).json()["svg"]
    assert "<b>" not in drawing
