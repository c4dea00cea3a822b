"""Charts that are edited in the browser: checked as one types, runs step by step, saved to files."""

from __future__ import annotations

import html
import logging
import re
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

import httpx
import msgspec
from agents import make_engine
from served import make_site, open_client

from toolchart.app.server import serving
from toolchart.app.server.application import build_openapi, list_endpoints
from toolchart.app.server.charts.work import (
    ChartText,
    Surroundings,
    draw_chart,
    examine_chart,
    replay_finding,
)
from toolchart.app.server.charts.workbench import describe_surroundings, write_whole_chart
from toolchart.app.server.site import Site, SiteSettings
from toolchart.engine import Engine
from toolchart.specs.charts import load_chart, read_shipped_chart
from toolchart.specs.flows import list_shipped_flows
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.chart.loading import parse_chart
from toolchart.states.proofs.check import check
from toolchart.states.vocabulary import get_facts

TOOL_LOOP = read_shipped_chart("tool_loop")

WITH_GAP = TOOL_LOOP.replace("      - {event: tool_finished, target: prompting}\n", "")
"""Nothing takes a finished tool that is the last one while iterations are left."""


def make_editing_site(folder: Path | None, engine: Engine | None = None) -> Site:
    """A site that saves charts to a folder."""
    return make_site(engine, settings=SiteSettings(edit_folder=str(folder) if folder else None))


async def save(client: httpx.AsyncClient, name: str, text: str, base: str = "") -> httpx.Response:
    """The answer to a save."""
    return await client.post(f"/api/charts/files/{name}", json={"yaml": text, "base": base})


# -- checking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tool_loop", "budgeted", "planner"])
def test_a_text_is_checked_as_on_the_command_line(name: str) -> None:
    """A shipped chart that is sent as text has the findings, the notes and the size of its check by name."""
    report = check(load_chart(name), risky=True)
    answer = examine_chart(ChartText(yaml=read_shipped_chart(name), source="x.yaml"))
    assert (answer["problem"], answer["chart"], answer["ok"]) == (None, name, not report.findings)
    assert [note["message"] for note in answer["notes"]] == [note.message for note in report.notes]
    assert (answer["places"], answer["answers"]) == (report.state_count, report.table_size)


async def test_a_finding_names_its_line_its_run_and_what_to_change() -> None:
    """A fault of a text comes with file and line, the events that lead there, what to change, and a drawing;
    the chart without the fault is clean, with the bound that the limits of the agent give."""
    line = WITH_GAP.splitlines().index("  executing:") + 1
    tools = {"registry": [{"name": "echo"}], "max_iterations": 7}
    async with open_client(make_site(make_engine(["hi"], tools=tools))) as client:
        body = {"yaml": WITH_GAP, "name": "mine.yaml"}
        faulty = (await client.post("/api/charts/check", json=body)).json()
        clean = (await client.post("/api/charts/check", json={"yaml": TOOL_LOOP})).json()
        alone = (await client.post("/api/charts/check", json={"yaml": TOOL_LOOP, "for_agent": False})).json()
    (finding,) = faulty["findings"]
    assert (finding["kind"], finding["state"], finding["place"]) == ("gap", "executing", f"mine.yaml:{line}")
    assert finding["run"][0] == "turn_started"
    assert finding["change"]
    assert 'data-state="executing"' in faulty["svg"]
    assert (clean["ok"], clean["findings"]) == (True, [])
    assert "at most 39 model calls" in clean["bound"]
    assert "at most 39 model calls" not in alone["bound"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "states"),
        ("states:\n  a: {initial: true\n", 3, "YAML"),
        ("states:\n  a:\n    initial: true\n    enter: call_modle\n", 4, "call_modle"),
        ("extends: tool_lop\n", 1, "tool_lop"),
    ],
)
def test_a_text_that_is_no_chart_says_where_and_why(text: str, line: int, says: str) -> None:
    """The problem has the line, the place and the reason; there is no drawing, and no traceback."""
    chart = ChartText(yaml=text, source="x.yaml")
    problem = examine_chart(chart)["problem"]
    assert (problem["line"], problem["place"]) == (line, f"x.yaml:{line}")
    assert says in problem["message"]
    drawing = draw_chart(chart)
    assert drawing["svg"] is None
    assert says in drawing["no_svg"]


def test_a_finding_of_the_chart_that_is_extended_has_no_line_here() -> None:
    """Lines count in the text that was sent, so an inherited row has none."""
    text = "extends: tool_loop\nstates:\n  executing:\n    transitions: null\n"
    answer = examine_chart(ChartText(yaml=text, source="x.yaml"))
    lines = {finding["line"] for finding in answer["findings"]}
    assert answer["findings"]
    assert all(line is None or line <= 4 for line in lines)


def test_the_words_of_a_chart_are_listed() -> None:
    """Effects that the chart declares and the facts of their results are in the answer, for the author."""
    chart = load_chart("reflection")
    answer = examine_chart(ChartText(yaml=write_whole_chart(chart), source="x.yaml"))
    assert answer["problem"] is None
    assert {row["name"] for row in answer["words"]["effects"]} == set(chart.effects)
    assert {row["name"] for row in answer["words"]["facts"]} == set(chart.vocabulary.result_facts)


@pytest.mark.parametrize("name", list_shipped_flows())
def test_the_chart_of_an_agent_becomes_a_file_of_its_own(name: str) -> None:
    """What is offered as a copy of an agent's chart is the same chart, with the effects that it declares."""
    chart = load_agent_chart(load_spec(name))
    assert parse_chart(write_whole_chart(chart), source="x.yaml").digest == chart.digest


def test_the_data_flow_of_the_agent_is_checked() -> None:
    """With tools and trust of an agent, a row that leads words of strangers to a tool of high risk is a
    finding with its line and a run to step; for any agent, and with the row as it ships, it is none."""
    before, after = "enum: [complaint, question, other]", "type: string"
    spec = load_spec("dual_model")
    with Engine(spec, log="memory") as engine:
        around = msgspec.structs.replace(describe_surroundings(engine), effects={})
    text = write_whole_chart(load_agent_chart(spec))
    assert before in text
    leaky = ChartText(yaml=text.replace(before, after), source="x.yaml", around=around)
    (finding,) = [item for item in examine_chart(leaky)["findings"] if item["kind"] == "data flow"]
    assert finding["place"].startswith("x.yaml:")
    assert replay_finding(leaky, 0)["outcome"] == "confirmed"
    for chart in (
        ChartText(yaml=text, source="x.yaml", around=around),
        msgspec.structs.replace(leaky, around=Surroundings()),
    ):
        assert "data flow" not in [item["kind"] for item in examine_chart(chart)["findings"]]


# -- counterexamples -----------------------------------------------------------------------------


async def test_a_counterexample_comes_step_by_step() -> None:
    """Each step has its event, where it leads, the rows that fired and the guards with their truth; the last
    one does what the finding says. A number without a finding is refused."""
    async with open_client(make_site()) as client:
        body = {"yaml": WITH_GAP, "finding": 0}
        run = (await client.post("/api/charts/replay", json=body)).json()
        missing = await client.post("/api/charts/replay", json={**body, "finding": 1})
        negative = await client.post("/api/charts/replay", json={**body, "finding": -1})
    assert run["outcome"] == "confirmed"
    first, last = run["steps"][0], run["steps"][-1]
    assert (first["event"], first["target"], first["asks"]) == ("turn_started", "prompting", ["call_model"])
    assert (last["event"], last["fired"]) == ("tool_finished.run_tools", [])
    assert last["guards"] == {"pending_calls > 0": False, "iteration >= max_iterations": False}
    assert last["active"] == ["executing"]
    assert (missing.status_code, negative.status_code) == (404, 404)
    assert "check it again" in missing.json()["error"]


def test_what_never_happens_has_no_run() -> None:
    """A state that is never entered is a finding that no run shows."""
    text = TOOL_LOOP + "  lost: {final: true, enter: answer}\n"
    run = replay_finding(ChartText(yaml=text, source="x.yaml"), 0)
    assert (run["outcome"], run["steps"]) == ("no run", [])


# -- saving --------------------------------------------------------------------------------------


async def test_a_chart_is_saved_changed_and_read_back(tmp_path: Path, caplog: Any) -> None:
    """A new file is written, its text comes back with a digest, a save from that text replaces it, and the
    answer, the file's entry and the server's messages say who saved. Its rights stay as they were."""
    with caplog.at_level(logging.WARNING, "toolchart.server"):
        async with open_client(make_editing_site(tmp_path)) as client:
            first = (await save(client, "mine.yaml", TOOL_LOOP)).json()
            (tmp_path / "mine.yaml").chmod(0o640)
            read = (await client.get("/api/charts/files/mine.yaml")).json()
            second = (await save(client, "mine.yaml", WITH_GAP, read["digest"])).json()
            listed = (await client.get("/api/charts")).json()
    assert (read["yaml"], read["digest"], read["saved_by"]) == (TOOL_LOOP, first["digest"], "owner")
    assert (first["findings"], second["findings"]) == (0, 1)
    assert (tmp_path / "mine.yaml").read_text() == WITH_GAP
    assert (tmp_path / "mine.yaml").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    assert (listed["files"], listed["may_save"]) == (["mine.yaml"], True)
    assert caplog.messages.count(f"owner saved the chart {tmp_path / 'mine.yaml'}") == 2


async def test_a_stale_save_is_refused_and_says_who_was_faster(tmp_path: Path) -> None:
    """A file that has changed since it was opened stays as it is: the answer (409) names who saved it, or
    says that it was another program, and gives the digest of what is there now. So does a file that is gone,
    and a new one whose name is taken."""
    path = tmp_path / "mine.yaml"
    async with open_client(make_editing_site(tmp_path)) as client:
        old = (await save(client, "mine.yaml", TOOL_LOOP)).json()["digest"]
        new = (await save(client, "mine.yaml", WITH_GAP, old)).json()["digest"]
        stale = await save(client, "mine.yaml", TOOL_LOOP, old)
        taken = await save(client, "mine.yaml", TOOL_LOOP)
        path.write_text(TOOL_LOOP + "# by hand\n")
        foreign = await save(client, "mine.yaml", TOOL_LOOP, new)
        by_hand = path.read_text()
        path.unlink()
        gone = await save(client, "mine.yaml", TOOL_LOOP, new)
    assert [answer.status_code for answer in (stale, taken, foreign, gone)] == [409] * 4
    assert "owner saved it at" in stale.json()["error"]
    assert (stale.json()["digest"], stale.json()["saved_by"]) == (new, "owner")
    assert "there is a file mine.yaml already" in taken.json()["error"]
    assert "another program wrote it" in foreign.json()["error"]
    assert by_hand.endswith("# by hand\n")
    assert "is gone" in gone.json()["error"]
    assert not path.exists()


async def test_what_is_no_chart_is_not_saved(tmp_path: Path) -> None:
    """A text with which no agent could start is refused with its line (422), and nothing is written; one with
    findings is saved, since it may be work in progress."""
    async with open_client(make_editing_site(tmp_path)) as client:
        refused = await save(client, "mine.yaml", "states:\n  a: {initial: true, enter: call_modle}\n")
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("nothing was saved: mine.yaml:2: states.a.enter")
    assert refused.json()["problem"]["line"] == 2
    assert list(tmp_path.iterdir()) == []


async def test_without_a_folder_saving_says_how_to_allow_it() -> None:
    """Saving is refused with the option to give; so is reading files. Checking works all the same."""
    async with open_client(make_editing_site(None)) as client:
        refused = await save(client, "mine.yaml", TOOL_LOOP)
        listed = (await client.get("/api/charts")).json()
        page = (await client.get("/charts/edit")).text
    assert refused.status_code == 409
    assert "--edit FOLDER" in refused.json()["error"]
    assert (listed["folder"], listed["files"], listed["may_save"]) == (None, [], False)
    assert "--edit FOLDER" in page
    assert re.search(r'id="save-button"[^>]* disabled', page)


async def test_line_ends_of_a_file_stay(tmp_path: Path) -> None:
    """A file with the line ends of Windows keeps them; its author works on plain ones."""
    (tmp_path / "mine.yaml").write_bytes(TOOL_LOOP.replace("\n", "\r\n").encode())
    async with open_client(make_editing_site(tmp_path)) as client:
        read = (await client.get("/api/charts/files/mine.yaml")).json()
        await save(client, "mine.yaml", read["yaml"] + "# end\n", read["digest"])
    assert read["yaml"] == TOOL_LOOP
    assert (tmp_path / "mine.yaml").read_bytes() == (TOOL_LOOP + "# end\n").replace("\n", "\r\n").encode()


def test_the_option_names_a_folder_that_exists(
    run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--edit FOLDER` reaches the site; a folder that is not there, or a file, is wrong usage."""
    sites: list[Site] = []
    monkeypatch.setattr(serving, "serve_site", lambda site, *_, **__: sites.append(site))
    monkeypatch.setattr(serving, "open_socket", lambda _: socket.create_server(("127.0.0.1", 0)))
    words = ("serve", "quickstart", "--log", "memory", "--token", "anna:edit", "--edit")
    assert run_cli(*words, str(tmp_path)).code == 0
    (site,) = sites
    assert site.settings.edit_folder == str(tmp_path)
    (tmp_path / "file").write_text("")
    for name in ("absent", "file"):
        result = run_cli(*words, str(tmp_path / name))
        assert result.code == 2
        assert name in result.err
    site.engine.close()


# -- pages ---------------------------------------------------------------------------------------


async def test_the_editor_begins_with_the_chart_that_is_named(tmp_path: Path) -> None:
    """The page of a file has its text and digest, that of a shipped chart a copy under another name, and
    without a name the agent's own chart; every fact is at hand."""
    (tmp_path / "mine.yaml").write_text("# <b>mine</b>\n" + TOOL_LOOP)
    engine = make_engine(["hi"], name="shop", chart={"extends": "tool_loop"})
    async with open_client(make_editing_site(tmp_path, engine)) as client:
        file = (await client.get("/charts/edit?file=mine.yaml")).text
        shipped = (await client.get("/charts/edit?shipped=full")).text
        own = (await client.get("/charts/edit")).text
        missing = await client.get("/charts/edit?shipped=nothing")
        digest = (await client.get("/api/charts/files/mine.yaml")).json()["digest"]
    assert f'data-base="{digest}"' in file
    assert "# &lt;b&gt;mine&lt;/b&gt;" in file
    assert html.unescape(
        re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", shipped, re.DOTALL)[0]
    ) == read_shipped_chart("full")
    assert 'data-name="my_full.yaml" data-base=""' in shipped
    assert 'data-name="shop_chart.yaml"' in own
    assert "prompting:" in own
    assert all(f">{fact.name}</button>" in shipped for fact in get_facts().values())
    assert missing.status_code == 404


async def test_the_page_of_charts_lists_and_shows_files(tmp_path: Path) -> None:
    """Charts of the folder are linked, agents and other files are not; a file is shown drawn and checked, and
    one that is no chart says what is wrong. Only who may edit sees the link to the editor."""
    (tmp_path / "mine.yaml").write_text(WITH_GAP)
    (tmp_path / "broken.yml").write_text("states: [\n")
    (tmp_path / "agent.yaml").write_text("llms: {}\nchart:\n  states: {}\nextends: x\n")
    (tmp_path / "notes.txt").write_text("states:\n")
    async with open_client(make_editing_site(tmp_path)) as client:
        page = (await client.get("/charts")).text
        mine = (await client.get("/charts/files/mine.yaml")).text
        broken = (await client.get("/charts/files/broken.yml")).text
    async with open_client(make_editing_site(tmp_path), "viewer") as client:
        seen = (await client.get("/charts/files/mine.yaml")).text
        editor = (await client.get("/charts/edit?file=mine.yaml")).text
    assert sorted(re.findall(r'href="/charts/files/([^"]+)"', page)) == ["broken.yml", "mine.yaml"]
    assert "1 finding" in mine
    assert 'data-state="executing"' in mine
    assert 'href="/charts/edit?file=mine.yaml"' in mine
    assert "not a chart" in broken
    assert "broken.yml:" in broken
    assert "/charts/edit" not in seen
    assert "lacks the role edit" in editor
    assert "readonly" in editor


async def test_the_agents_own_file_is_edited_in_place(tmp_path: Path) -> None:
    """Where the agent's chart is a file of the folder, its editor begins with that file and not with a copy;
    where it lies elsewhere, with a copy."""
    (tmp_path / "charts").mkdir()
    for path in (tmp_path / "charts" / "shop.yaml", tmp_path / "other.yaml"):
        path.write_text(TOOL_LOOP)
    for name, start in (("charts/shop.yaml", "shop.yaml"), ("other.yaml", "other_chart.yaml")):
        engine = make_engine(["hi"], chart=str(tmp_path / name))
        async with open_client(make_editing_site(tmp_path / "charts", engine)) as client:
            page = (await client.get("/charts/edit")).text
            charts = (await client.get("/charts")).text
        assert f'data-name="{start}"' in page
        assert ('href="/charts/edit?file=shop.yaml"' in charts) == (start == "shop.yaml")


async def test_signing_in_leads_back_to_the_file() -> None:
    """Whoever must sign in first comes to the chart that the address names."""
    async with open_client(make_editing_site(None), None) as client:
        answer = await client.get("/charts/edit?shipped=full")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=/charts/edit%3Fshipped%3Dfull"


def test_the_openapi_document_has_the_charts() -> None:
    """Every endpoint for charts stands in the document, those that change something with their body."""
    paths = build_openapi(list_endpoints())["paths"]
    assert set(paths["/api/charts/files/{name}"]) == {"get", "post"}
    for path in ("/api/charts/check", "/api/charts/replay", "/api/charts/files/{name}"):
        assert "requestBody" in paths[path]["post"]
        assert "`edit`" in paths[path]["post"]["description"]


def test_what_a_state_says_tells_changed_charts_apart() -> None:
    """Of each state and row a drawing has what it says, with the declared effects that it names: another
    prompt changes the state that asks for it, and no other one; rows have the numbers of the drawing."""
    text = read_shipped_chart("tool_loop").replace("enter: call_model", "enter: ask")
    effect = '\neffects:\n  ask: {call_model: {llm: model, prompt: "%s"}}\n'
    one, two = (draw_chart(ChartText(yaml=text + effect % word, source="x.yaml")) for word in ("Hi", "Ho"))
    changed = [name for name, state in one["states"].items() if state != two["states"][name]]
    assert changed == ["prompting"]
    rows = one["states"]["prompting"]["rows"]
    assert rows[1]["text"] == "replied [finish_reason == 'stop'] → finished"
    assert rows[-1]["text"] == "user_said stays"
    for number in range(len(rows)):
        assert f'data-source="prompting" data-row="{number}"' in one["svg"]
