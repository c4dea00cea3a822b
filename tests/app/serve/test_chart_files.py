"""Saving charts writes charts only: what is an agent, or anything else, stays as it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import make_site, open_client

from toolchart.app.server.answers import Refusal
from toolchart.app.server.charts.folder import ChartFolder
from toolchart.app.server.charts.workbench import find_workbench
from toolchart.app.server.site import SiteSettings
from toolchart.engine import Engine
from toolchart.specs.charts import read_shipped_chart

TOOL_LOOP = read_shipped_chart("tool_loop")

AGENT = """\
llms: {m: {provider: scripted, model: m, replies: [hello]}}
responses: [{llm: m, prompt: p}]
"""
CHART = "states:\n  a: {initial: true}\n"

NO_CHARTS: dict[str, bytes] = {
    "an agent": AGENT.encode(),
    "an agent with a chart inside": f"{AGENT}chart:\n  states: {{}}\n".encode(),
    "an agent that looks like a chart": f"{AGENT}{CHART}".encode(),
    "JSON": b'{"states": {}, "llms": {}, "responses": []}',
    "flow style over lines": b"{states: {}, # a\n llms: {}}\n",
    "another key style": f'"\\x6clms": {{}}\n{CHART}'.encode(),
    "an explicit key": f"? llms\n: {{}}\n{CHART}".encode(),
    "a tag": f"!!str llms: {{}}\n{CHART}".encode(),
    "an anchor": f"&a llms: {{}}\n{CHART}".encode(),
    "a byte order mark": b"\xef\xbb\xbfllms: {}\n" + CHART.encode(),
    "old line ends": f"x: 1\rllms: {{}}\r{CHART}".encode().replace(b"\n", b"\r"),
    "indented": b" states: {}\n llms: {}\n",
    "a merge": b"x: &x {llms: {}}\nstates: {}\n<<: *x\n",
    "only a chart's name": b"responses: []\nextends: tool_loop\n",
    "no YAML": b"states: [\n",
    "another document": b"services:\n  web: {image: x}\n",
    "two documents": f"{CHART}---\n{AGENT}".encode(),
    "no text": b"states:\xff\n",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", NO_CHARTS)
def test_no_other_file_is_written_over(tmp_path: Path, kind: str) -> None:
    """Issue 25: a file that is no chart by its content stays as it is, also for whoever knows its digest."""
    path, data = tmp_path / "mine.yaml", NO_CHARTS[kind]
    path.write_bytes(data)
    with pytest.raises(Refusal) as refused:
        ChartFolder(tmp_path).save("mine.yaml", TOOL_LOOP, base=hashlib.sha256(data).hexdigest(), by="eve")
    assert refused.value.status == 409
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["mine.yaml"]


@pytest.mark.parametrize("kind", [kind for kind in NO_CHARTS if "llms" in NO_CHARTS[kind].decode("latin-1")])
def test_no_agent_is_written(tmp_path: Path, kind: str) -> None:
    """A text that would load as an agent is not saved, however it is spelt, and such a file is not shown."""
    charts, data = ChartFolder(tmp_path), NO_CHARTS[kind]
    with pytest.raises(Refusal):
        charts.save("new.yaml", data.decode(), base="", by="eve")
    assert os.listdir(tmp_path) == []
    (tmp_path / "agent.yaml").write_bytes(data)
    with pytest.raises(Refusal):
        charts.read("agent.yaml")


@pytest.mark.parametrize("name", ["agent.yml", "Agent.yaml", "AGENT.yml"])
def test_a_new_chart_takes_no_name_of_another_file(tmp_path: Path, name: str) -> None:
    """Beside `agent.yaml` no chart gets its name with the other end or in other letters: on some file systems
    these are one file."""
    (tmp_path / "agent.yaml").write_text(AGENT)
    with pytest.raises(Refusal, match="the name of an agent"):
        ChartFolder(tmp_path).save(name, TOOL_LOOP, base="", by="eve")
    assert os.listdir(tmp_path) == ["agent.yaml"]


async def test_a_new_chart_takes_no_name_of_a_served_agent(tmp_path: Path) -> None:
    """The agent that is served may lie elsewhere: a chart of its name in the folder could be loaded in its
    place. A chart that has such a name already is saved."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "charts"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "served.yaml").write_text(AGENT)
    (folder / "served.yml").write_text(TOOL_LOOP)
    engine = Engine(str(elsewhere / "served.yaml"), log="memory")
    async with open_client(make_site(engine, settings=SiteSettings(edit_folder=str(folder)))) as client:
        refused = await client.post("/api/charts/files/served.yaml", json={"yaml": TOOL_LOOP})
        opened = (await client.get("/api/charts/files/served.yml")).json()
        body = {"yaml": TOOL_LOOP + "# more\n", "base": opened["digest"]}
        saved = await client.post("/api/charts/files/served.yml", json=body)
    assert (refused.status_code, saved.status_code) == (409, 200)
    assert "the name of an agent" in refused.json()["error"]


def test_agents_that_a_chart_runs_are_known(tmp_path: Path) -> None:
    """The names of the specs of `run_agent` are not given to new charts."""
    from child_agents import make_parent_chart

    (tmp_path / "clerk.yaml").write_text(AGENT)
    child = {"spec": str(tmp_path / "clerk.yaml"), "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    folder = tmp_path / "charts"
    folder.mkdir()
    engine = make_engine([], chart=make_parent_chart(), effects=effects)
    bench = find_workbench(make_site(engine, settings=SiteSettings(edit_folder=str(folder))))
    with pytest.raises(Refusal, match="the name of an agent"):
        bench.require_folder().save("clerk.yml", TOOL_LOOP, base="", by="eve")


def test_what_changes_during_a_save_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that another program writes while the text goes to the disk is not replaced."""
    path, charts = tmp_path / "mine.yaml", ChartFolder(tmp_path)
    path.write_text(TOOL_LOOP)
    digest = charts.read("mine.yaml").digest
    really_sync = os.fsync

    def sync(descriptor: int) -> None:
        path.write_text(AGENT)
        really_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(Refusal) as refused:
        charts.save("mine.yaml", TOOL_LOOP + "# more\n", base=digest, by="eve")
    assert refused.value.status == 409
    assert path.read_text() == AGENT
    assert os.listdir(tmp_path) == ["mine.yaml"]


def test_a_hidden_file_is_no_chart(tmp_path: Path) -> None:
    """A name that begins with a dot is refused, whatever stands there."""
    (tmp_path / ".agent.yaml").write_text(TOOL_LOOP)
    charts: Any = ChartFolder(tmp_path)
    with pytest.raises(Refusal) as refused:
        charts.save(".agent.yaml", TOOL_LOOP, base=hashlib.sha256(TOOL_LOOP.encode()).hexdigest(), by="eve")
    assert refused.value.status == 400
