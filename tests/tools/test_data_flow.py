"""`check` follows words of strangers: shipped flows keep them from risky tools; one changed row does not."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from effort import choose_count
from msgspec.structs import replace
from random_data_flows import make_random_agent

from toolchart import Agent, Engine, tool
from toolchart.app.cli.commands.charts.check import command as check_command
from toolchart.specs.flows import list_shipped_flows, read_flow_text
from toolchart.specs.loader import list_shipped_agents, load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.machine import get_machine
from toolchart.states.proofs.check import CheckReport, check
from toolchart.states.proofs.dataflow.analysis import follow_data
from toolchart.states.proofs.dataflow.carriers import allows_free_text, path_allows_free_text
from toolchart.states.proofs.exploration import explore_chart
from toolchart.states.proofs.findings import Finding
from toolchart.testing import ScriptedModel
from toolchart.testing.counterexamples.flow_search import FlowSearch
from toolchart.testing.counterexamples.replaying import replay_counterexample
from toolchart.tools.data_flow import describe_agent_chart, describe_data_flow


def find_flows(source: Any) -> list[Finding]:
    """The findings about the data flow of an agent."""
    spec = load_spec(source)
    chart = load_agent_chart(spec)
    return [*follow_data(describe_data_flow(spec, chart), explore_chart(get_machine(chart)))]


def check_engine(engine: Engine) -> CheckReport:
    """The report about an agent with the tools of its program."""
    chart, options = describe_agent_chart(engine.spec, engine.tools.functions)
    return check(chart, **options)


# -- the flows that ship ---------------------------------------------------------------------------

CHANGED_ROWS = {
    "action_selector": ("history: none, prompt", "history: all, prompt"),
    "plan_then_execute": ("handler: worker, chart: action_selector,", "handler: worker, chart: tool_loop,"),
    "dual_model": ("topic: {enum: [complaint, question, other]}", "topic: {type: string}"),
    "context_minimisation": ("about {{query.topic}} of", "about {{user_message}} of"),
    "map_reduce": ("File it under {{summary.shelf}}.", "File it under {{summary.text}}."),
}
"""By flow that resists injection: the row on which it rests, and what it is changed to."""


@pytest.mark.parametrize("name", sorted({*list_shipped_agents()} - {*list_shipped_flows()}))
def test_no_shipped_agent_leads_words_of_strangers_to_a_risky_tool(name: str) -> None:
    """DESIGN 6: shipped agents have no finding about data flow; the tests of shipped flows say so of them."""
    assert find_flows(name) == []


@pytest.mark.parametrize("name", CHANGED_ROWS)
def test_a_flow_that_resists_injection_loses_it_by_one_changed_row(name: str, tmp_path: Path) -> None:
    """The proof is about something: one changed row leads words of strangers to the risky tool, and the
    finding names source, hops with their lines, and sink."""
    before, after = CHANGED_ROWS[name]
    text = read_flow_text(name)
    assert text.count(before) == 1
    path = tmp_path / "agent.yaml"
    path.write_text(text.replace(before, after))
    (finding, *_) = find_flows(path)
    assert f"{path}:" in finding.message
    assert " -> " in finding.message
    assert finding.line is not None
    assert finding.run[0] == "turn_started"
    assert finding.change


@pytest.mark.parametrize("name", CHANGED_ROWS)
def test_the_engine_hands_the_order_of_a_stranger_to_the_tool(name: str) -> None:
    """With the changed row, the real engine in a world of gullible models does as the finding says."""
    before, after = CHANGED_ROWS[name]
    spec = load_spec(yaml.safe_load(read_flow_text(name).replace(before, after)))
    chart = load_agent_chart(spec)
    agent = describe_data_flow(spec, chart)
    (finding, *_) = follow_data(agent, explore_chart(get_machine(chart)))
    replay = replay_counterexample(chart, finding, agent)
    assert replay.outcome == "confirmed", str(replay)
    assert replay.events[0].startswith("turn_started")


@pytest.mark.parametrize("name", CHANGED_ROWS)
def test_no_order_of_a_stranger_reaches_the_tool_of_a_shipped_flow(name: str) -> None:
    """In a world of gullible models, no order arrives at a tool of high risk in a flow as it ships."""
    spec = load_spec(name)
    chart = load_agent_chart(spec)
    search = FlowSearch(describe_data_flow(spec, chart), max_situations=choose_count(short=150, long=5_000))
    assert [run.sink for run in search.iterate_runs()] == []


def test_clean_agents_stand_against_gullible_models() -> None:
    """What the analysis calls clean is: in random agents an order reaches no tool or function of high risk
    for which there is no `data flow` finding. It reaches most of those for which there is one."""
    seen, findings = 0, 0
    for seed in range(choose_count(short=12, long=1_000)):
        agent = make_random_agent(seed)
        everything = follow_data(agent, explore_chart(get_machine(agent.chart)))
        found = [finding for finding in everything if finding.kind == "data flow"]
        reached_sinks = set()
        for run in FlowSearch(agent, max_situations=choose_count(short=150, long=800)).iterate_runs():
            assert any(f.state == run.state and run.sink in f.message for f in found), (seed, run.sink)
            reached_sinks.add((run.sink, run.state))
        seen, findings = seen + len(reached_sinks), findings + len(found)
    assert seen * 2 >= findings > 0


def test_an_agent_without_findings_is_safe_whatever_its_undeclared_code_returns() -> None:
    """Where everything that declares nothing returns words of strangers too, an order reaches a tool or a
    function of high risk only where a finding names it, or where something undeclared is named. It does reach
    some that no `data flow` finding names."""
    only_undeclared = set()
    for seed in (*range(choose_count(short=6, long=1_000)), 53):
        agent = make_random_agent(seed)
        found = follow_data(agent, explore_chart(get_machine(agent.chart)))
        named = [finding for finding in found if finding.kind == "data flow"]
        world = replace(agent, distrusts=lambda source: True)
        for run in FlowSearch(world, max_situations=choose_count(short=150, long=800)).iterate_runs():
            if not any(f.state == run.state and run.sink in f.message for f in named):
                assert len(found) > len(named), (seed, run.sink)
                only_undeclared.add((seed, run.sink, run.state))
    assert only_undeclared


@pytest.mark.parametrize("name", CHANGED_ROWS)
def test_the_proof_of_a_flow_rests_on_its_sources_and_sinks(name: str) -> None:
    """Each of these flows has a source that strangers write and a tool of high risk that nobody approves."""
    document = yaml.safe_load(read_flow_text(name))
    entries = document["tools"]["registry"]
    assert document.get("message_trust") == "untrusted" or "untrusted" in [e.get("trust") for e in entries]
    (risky,) = [entry["name"] for entry in entries if entry.get("risk") == "high"]
    assert {"tools": risky, "decision": "always"} in document["approval"]


# -- sources, sinks and what ends a trail ----------------------------------------------------------

PAGE = {"name": "fetch_page", "implementation": {"type": "http", "url": "https://pages.example/x"}}
MAIL = {
    "name": "send_mail",
    "trust": "trusted",
    "implementation": {"type": "http", "method": "POST", "url": "https://mail.example/"},
}


def make_agent(*tools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An agent with the tool loop and these tools; changes replace keys of its spec."""
    return {
        "chart": "tool_loop",
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "tools": {"registry": list(tools)},
        "responses": [{"llm": "m", "tools": {"enabled": True}}],
        **changes,
    }


def test_a_page_that_a_model_reads_may_order_a_mail() -> None:
    """HTTP results are untrusted and a POST is of high risk where nothing is declared: the finding shows the
    way from one to the other, and the shortest run."""
    (finding,) = find_flows(make_agent(PAGE, MAIL))
    hops = ["'fetch_page'", "tool_finished", "replied.call_model", "run_tools", "'send_mail'"]
    positions = [finding.message.rindex(hop) for hop in hops]
    assert positions == sorted(positions)
    assert finding.run[-1] == "reviewed.review_calls"
    assert finding.run.count("tool_finished.run_tools") == 1


@pytest.mark.parametrize(
    ("page", "mail", "changes"),
    [
        ({"trust": "trusted"}, {}, {}),
        ({}, {"risk": "low"}, {}),
        ({}, {"risk": "medium"}, {}),
        ({}, {"risk": "high"}, {}),
        ({}, {"requires_approval": True}, {}),
        ({}, {}, {"approval": [{"tools": "send_*", "decision": "ask"}]}),
        ({}, {}, {"approval": {"default": "ask"}}),
        (
            {},
            {},
            {"approval": [{"tools": "*", "when": {"to": "me"}, "decision": "never"}, {"decision": "ask"}]},
        ),
        ({}, {}, {"responses": [{"llm": "m", "tools": {"enabled": True, "allowed_tools": ["fetch_*"]}}]}),
        ({}, {}, {"responses": [{"llm": "m"}]}),
    ],
)
def test_a_statement_or_an_approval_ends_the_finding(
    page: dict[str, Any], mail: dict[str, Any], changes: dict[str, Any]
) -> None:
    """What is declared trusted or harmless, is not offered, or is decided by a person each time is clean."""
    assert find_flows(make_agent({**PAGE, **page}, {**MAIL, **mail}, **changes)) == []


@pytest.mark.parametrize(
    "approval",
    [
        [{"tools": "send_mail", "decision": "always"}],
        [{"tools": "send_mail", "when": {"to": {"glob": "*@example.com"}}, "decision": "always"}],
        [{"tools": "send_mail", "when": {"to": {"glob": "*@example.com"}}, "decision": "ask"}],
        [{"tools": "other", "decision": "ask"}],
    ],
)
def test_an_approval_that_may_not_ask_is_none(approval: Any) -> None:
    """A rule that lets calls through, asks for some arguments only, or names another tool covers nothing."""
    assert find_flows(make_agent(PAGE, MAIL, approval=approval))


@pytest.mark.parametrize(
    ("tool", "is_source", "is_sink"),
    [
        ({"name": "calculator"}, False, False),
        ({"name": "read_file", "root": "."}, True, False),
        ({"name": "search_documents", "folder": "."}, True, False),
        ({"name": "m", "implementation": {"type": "mock", "mock_response": 1}}, False, False),
        (
            {"name": "basename", "implementation": {"type": "python", "handler": "posixpath:basename"}},
            True,
            True,
        ),
        (PAGE, True, False),
        ({**PAGE, "implementation": {**PAGE["implementation"], "method": "DELETE"}}, True, True),  # type: ignore[dict-item]
    ],
    ids=lambda value: value.get("name") if isinstance(value, dict) else None,
)
def test_tools_have_safe_defaults(tool: dict[str, Any], is_source: bool, is_sink: bool) -> None:
    """HTTP, files and documents are untrusted; what may write and says nothing is of high risk."""
    sink = {**MAIL, "name": "sink"}
    source = {**PAGE, "name": "source"}
    assert bool(find_flows(make_agent(tool, sink))) is is_source
    assert (
        "'" + tool["name"] + "'"
        in str([f.message.split("without")[0] for f in find_flows(make_agent(source, tool))])
    ) is is_sink


@pytest.mark.parametrize(
    ("server", "approval", "is_clean"),
    [
        ({}, [{"tools": "*", "decision": "always"}], False),
        ({}, None, True),
        ({"trust": "trusted"}, None, True),
        ({"risk": "high"}, None, True),
        ({"risk": "low"}, [{"tools": "*", "decision": "always"}], True),
    ],
)
def test_tools_of_a_server_ask_unless_a_rule_lets_them_run(
    server: dict[str, Any], approval: Any, is_clean: bool
) -> None:
    """Every tool of an MCP server asks where the spec says nothing of its risk. A rule that lets them run is
    the operator's own word, and then they are a sink. Nothing is started."""
    tools = {"registry": [], "mcp": {"wiki": {"command": "no-such-program", **server}}}
    changes = {"approval": approval} if approval else {}
    assert (find_flows(make_agent(tools=tools, **changes)) == []) is is_clean


def test_the_user_is_trusted_unless_the_spec_says_otherwise() -> None:
    """The agent works for the user; where strangers write the messages, they are a source."""
    assert find_flows(make_agent(MAIL)) == []
    (finding,) = find_flows(make_agent(MAIL, message_trust="untrusted"))
    assert finding.run == ("turn_started", "replied.call_model", "reviewed.review_calls")


def test_documents_in_a_prompt_are_a_source() -> None:
    """`{{rag_context}}` shows documents to the model; they are trusted where the search is."""
    responses = [
        {
            "llm": "m",
            "prompt": "Use {{rag_context}}.",
            "tools": {"enabled": True, "allowed_tools": ["send_*"]},
        }
    ]
    sink, search = MAIL, {"name": "search_documents", "folder": "."}
    assert find_flows(make_agent(sink, search, responses=responses))
    assert find_flows(make_agent(sink, {**search, "trust": "trusted"}, responses=responses)) == []


TRUSTED_SEARCH = {"name": "search_documents", "folder": ".", "trust": "trusted"}
SHOWN_DOCUMENTS = {
    "a form": {"call_model": {"prompt": "Sum up: {{rag_context}}", "as": "text"}},
    "a system prompt": {"call_model": {"prompt": "Sum up.", "system": "{{rag_context}}", "as": "text"}},
    "an agent": {"run_agent": {"chart": "tool_loop", "message": "Sum up: {{rag_context}}", "as": "text"}},
    "a function": {
        "call_function": {"function": "posixpath:split", "arguments": {"p": "{{rag_context}}"}, "as": "text"}
    },
}


@pytest.mark.parametrize("shown", SHOWN_DOCUMENTS)
def test_documents_are_followed_from_any_template(shown: str) -> None:
    """`{{rag_context}}` brings words of strangers into a declared effect as it does into a handler's prompt,
    and on to the effect that reads its result. Trusted documents do not, unless there are `rag_services`."""
    last = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{text}}"}}}
    flow = make_flow({"first": SHOWN_DOCUMENTS[shown], "last": last}, message_trust="trusted")
    if shown == "a function":
        flow["effects"]["first"]["call_function"] |= {"risk": "low", "trust": "trusted"}
    finding = find_flows(flow)[-1]
    assert "untrusted documents ({{rag_context}})" in finding.message
    flow["tools"] = {"registry": [TRUSTED_SEARCH]}
    assert find_flows(flow) == []
    flow["rag_services"] = {"manuals": {"url": "http://127.0.0.1:1/"}}
    assert find_flows(flow)


def test_a_topic_is_as_trusted_as_the_messages(tmp_path: Path) -> None:
    """Where a model finds the topic, `{{topic}}` repeats what the messages say; a caller's topic is trusted.
    A child is handed on what its agent has found."""
    last = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{topic}}"}}}
    assert find_flows(make_flow({"last": last})) == []
    topic = {"provider": {"llm": "m"}}
    flow = make_flow({"last": last}, topic=topic)
    assert find_flows(flow)
    assert find_flows({**flow, "message_trust": "trusted"}) == []
    handler = {"llm": "m", "prompt": "About {{topic}}.", "tools": {"enabled": True}}
    path = tmp_path / "child.yaml"
    path.write_text(yaml.safe_dump(make_agent(MAIL, responses=[handler])))
    run = {"run_agent": {"spec": str(path), "message": "Go.", "as": "said"}}
    assert find_flows(make_flow({"last": run})) == []
    (finding, *_) = find_flows(make_flow({"last": run}, topic=topic))
    assert "the topic, which a model has found in the messages" in finding.message


def test_descriptions_of_foreign_tools_are_a_source() -> None:
    """A model that never sees a result still reads what a server writes about its tools."""
    document = yaml.safe_load(read_flow_text("action_selector"))
    document["tools"]["mcp"] = {"wiki": {"command": "no-such-program", "risk": "high"}}
    (finding, *_) = find_flows(document)
    assert "the descriptions of the tools 'wiki__*'" in finding.message
    document["tools"]["mcp"]["wiki"]["trust"] = "trusted"
    assert find_flows(document) == []


def test_a_prompt_that_shows_the_message_is_a_source() -> None:
    """The prompt of the turn carries the user's message into requests without history."""
    document = yaml.safe_load(read_flow_text("dual_model"))
    document["responses"][0]["prompt"] = "The message was: {{user_message}}"
    assert find_flows(document)


def test_messages_carry_words_of_strangers_into_the_next_turn() -> None:
    """A chart that ends after its tools have run still leaks: the next turn reads their results."""
    document = yaml.safe_load(read_flow_text("action_selector"))
    chart = document["chart"]
    chart["states"]["choosing"]["enter"] = "call_model"
    (finding, *_) = find_flows({**document, "chart": chart})
    assert finding.run.count("turn_started") == 2


READ = {
    "name": "basename",
    "risk": "low",
    "implementation": {"type": "python", "handler": "posixpath:basename"},
}
PAY = {"name": "pay", "risk": "high", "implementation": {"type": "mock", "mock_response": 1}}
FREE = {"rules": [{"tools": ["pay"], "decision": "always"}]}
"""No person is asked about `pay`."""


@pytest.mark.parametrize(
    ("tool", "source"),
    [
        (READ, "the tool 'basename'"),
        ({"name": "orders", "risk": "low", "implementation": {"type": "internal"}}, "the tool 'orders'"),
        ({**READ, "trust": "trusted"}, ""),
        ({"name": "m", "implementation": {"type": "mock", "mock_response": 1}}, ""),
        ({"name": "calculator"}, ""),
        ({**PAGE, "trust": "trusted"}, ""),
    ],
)
def test_undeclared_code_beside_a_tool_of_high_risk_is_never_clean(
    tool: dict[str, Any], source: str, tmp_path: Path
) -> None:
    """A Python tool or a service of the program of which nothing says who writes its results, beside a tool
    that pays: one finding with its place, the tool that it would reach and one step, and exit code 1. What
    declares its trust, or has a source that does, is clean."""
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(make_agent(tool, PAY, approval=FREE)))
    result = CliRunner().invoke(check_command, [str(path)], standalone_mode=False)
    report = CliRunner().invoke(check_command, [str(path), "--json"], standalone_mode=False).output
    findings = json.loads(report)["findings"]
    if source:
        assert result.return_value == 1
        (finding,) = findings
        assert finding["kind"] == "undeclared"
        assert f"what {source} ({path}:" in finding["message"]
        assert "reach the tool 'pay'" in finding["message"]
        assert "write `trust: trusted` there" in finding["change"]
        assert [line.split(":")[0] for line in result.output.splitlines() if line.startswith(" ")] == [
            "    change"
        ]
        assert "tool_loop: 1 finding;" in result.output
    else:
        assert (result.return_value, findings) == (0, [])
        assert "clean;" in result.output


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
def test_undeclared_code_is_settled_by_one_word(trust: str) -> None:
    """With `trust: trusted` nothing is left; with `trust: untrusted` the same way is a `data flow`."""
    kinds = [finding.kind for finding in find_flows(make_agent({**READ, "trust": trust}, PAY, approval=FREE))]
    assert kinds == (["data flow"] if trust == "untrusted" else [])


def test_undeclared_code_that_can_reach_nothing_is_clean() -> None:
    """Without a tool of high risk, and with one whose calls a person decides, there is nothing to declare."""
    assert find_flows(make_agent(READ)) == []
    assert find_flows(make_agent(READ, PAY)) == []


def test_a_sink_that_a_declared_source_reaches_is_named_once() -> None:
    """Where a declared source reaches the sink already, undeclared ones add no line."""
    (finding,) = find_flows(make_agent(PAGE, READ, PAY, approval=FREE))
    assert finding.kind == "data flow"


def test_the_engine_hands_words_of_undeclared_code_to_the_tool() -> None:
    """The finding is confirmed by the engine in a world where strangers write what the tool returns."""
    spec = load_spec(make_agent(READ, PAY, approval=FREE))
    chart = load_agent_chart(spec)
    agent = describe_data_flow(spec, chart)
    (finding,) = follow_data(agent, explore_chart(get_machine(chart)))
    assert replay_counterexample(chart, finding, agent).outcome == "confirmed"


def test_what_a_tool_says_counts_where_its_module_lies_beside_the_spec(tmp_path: Path) -> None:
    """The options of `@tool` in a module beside the spec are read, wherever `check` was started."""
    module = "from toolchart import tool\n\n\n@tool(trust='trusted', risk='low')\ndef look(): 'Look.'\n"
    (tmp_path / "tools_beside_the_spec.py").write_text(module)
    entry = {"name": "look", "implementation": {"type": "python", "handler": "tools_beside_the_spec:look"}}
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(make_agent(PAGE, entry)))
    result = CliRunner().invoke(check_command, [str(path)], standalone_mode=False)
    assert (result.return_value, "clean;" in result.output) == (0, True), result.output


def test_a_function_that_says_nothing_is_a_source_too(tmp_path: Path) -> None:
    """What `call_function` calls is code of the program, also in an agent that another one runs: undeclared,
    what it returns is followed into a function of high risk."""
    fetch = {"function": "posixpath:split", "arguments": {"p": "x"}, "as": "page"}
    send = {"function": "posixpath:basename", "arguments": {"p": "{{page}}"}, "as": "sent"}
    effects: dict[str, Any] = {"fetch_page": {"call_function": fetch}, "send_page": {"call_function": send}}
    child = tmp_path / "child.yaml"
    child.write_text(yaml.safe_dump(make_flow(effects), sort_keys=False))
    runs = {"first": {"run_agent": {"spec": str(child), "message": "Go.", "as": "said"}}}
    for flow in (make_flow(effects), make_flow(runs)):
        (finding,) = find_flows(flow)
        assert finding.kind == "undeclared"
        assert "what the function 'posixpath:split'" in finding.message
        assert "reach the function 'posixpath:basename'" in finding.message
    effects["fetch_page"] = {"call_function": {**fetch, "trust": "trusted"}}
    assert find_flows(make_flow(effects)) == []


def fetch_page(address: str) -> str:
    """Fetch a page."""
    return address


@tool(trust="untrusted", risk="low")
def read_mail() -> str:
    """Read a mail."""
    return ""


@tool(trust="trusted")
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


def test_tools_of_the_program_are_looked_at() -> None:
    """Tools that a program passes to the engine and the spec does not name are sources and sinks as well."""
    spec = make_agent(tools={"apply_globally": True, "registry": []})
    with Engine(spec, log="memory", functions=[fetch_page]) as engine:
        report = check_engine(engine)
    assert (report.verdict, report.findings[0].kind) == ("1 finding", "undeclared")
    with Engine(spec, log="memory", functions=[fetch_page, read_mail]) as engine:
        report = check_engine(engine)
    (finding,) = report.findings
    assert "the result of the untrusted tool 'read_mail'" in finding.message
    assert "the tool 'fetch_page', whose risk is high" in finding.message


def make_weather(**options: Any) -> Any:
    """A harmless tool, marked by `@tool` where there are options."""

    def get_weather() -> str:
        """The weather."""
        return "fair"

    return tool(**options)(get_weather) if options else get_weather


@pytest.mark.parametrize(
    ("tools", "kinds"),
    [
        ([make_weather()], ["undeclared"]),
        ([make_weather(risk="low")], []),
        ([make_weather(trust="trusted")], []),
        ([make_weather(), pay], ["undeclared"]),
        ([read_mail, pay], ["data flow"]),
        ([read_mail, make_weather(trust="trusted", risk="high")], []),
        ([pay], []),
    ],
)
def test_what_the_decorator_says_counts_for_a_typed_agent_too(tools: list[Any], kinds: list[str]) -> None:
    """The tools that an `Agent` makes of its functions are what `@tool` says of them, and sources and sinks
    where it says nothing; one tool that says neither is one finding, and either word settles it."""
    findings = Agent(ScriptedModel(), tools=tools).check().findings
    assert [finding.kind for finding in findings] == kinds
    assert all(f"{__file__}:" in finding.message for finding in findings)


def test_a_tool_that_reaches_only_itself_is_said_to() -> None:
    """The finding of one undeclared tool alone names no second tool, and asks for one word at one place."""
    (alone,) = Agent(ScriptedModel(), tools=[make_weather()]).check().findings
    assert alone.message.count("get_weather") == 1
    assert "words in it can order its next call" in alone.message
    assert "`risk: low` there if no call" in (alone.change or "")
    (beside,) = Agent(ScriptedModel(), tools=[make_weather(), pay]).check().findings
    assert "words in it reach the tool 'pay'" in beside.message
    assert "`risk: low` at the tool 'pay' if" in (beside.change or "")


def test_the_command_reports_a_leak_and_what_the_engine_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check AGENT` ends with 1 where words of strangers reach a risky tool, with file and line of source
    and sink; with `--replay-counterexample` it says that the engine did so."""
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(make_agent(PAGE, MAIL), sort_keys=False))
    lines = path.read_text().splitlines()
    places = [f"{path}:{1 + lines.index('  - name: ' + name)}" for name in (PAGE["name"], MAIL["name"])]
    assert check_command.main([str(path), "--replay-counterexample"], standalone_mode=False) == 1
    out = capsys.readouterr().out
    assert [place in out for place in places] == [True, True]
    assert "    replay: the engine did as the finding says: turn_started" in out
    path.write_text(yaml.safe_dump(make_agent(PAGE, {**MAIL, "requires_approval": True})))
    assert check_command.main([str(path)], standalone_mode=False) == 0


# -- functions, agents and results -----------------------------------------------------------------


def make_flow(effects: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A flow of three effects, `first`, `second` and `last`, one after the other."""
    kinds = {
        "call_model": "replied",
        "summarise_result": "replied",
        "call_function": "returned",
        "run_agent": "agent_finished",
        "ask_person": "answered",
    }
    events = {name: kinds[next(iter(body))] for name, body in effects.items()}
    names = [*effects, "finished"]
    states: dict[str, Any] = {
        f"s_{name}": {
            "enter": name,
            "transitions": [
                {"event": events[name], "target": f"s_{after}" if after in effects else after},
                {"event": "failed agent_failed cancelled", "target": "finished"},
            ],
        }
        for name, after in pairwise(names)
    }
    states["finished"] = {"final": True, "enter": "answer_with_error"}
    return make_agent(
        **{"chart": {"states": states}, "effects": effects, "message_trust": "untrusted", **changes}
    )


def make_call(prompt: str, name: str, **properties: Any) -> dict[str, Any]:
    """A model call with a result, under a schema where properties are given."""
    schema = {"schema": {"type": "object", "required": [*properties], "properties": properties}}
    return {"call_model": {"prompt": prompt, "as": name, **(schema if properties else {})}}


FUNCTION = "posixpath:basename"


@pytest.mark.parametrize(
    ("value", "is_clean"),
    [
        ("{{form.topic}}", True),
        ("{{form.size}}", True),
        ("{{form.count}}", True),
        ("{{form.text}}", False),
        ("{{form}}", False),
        ("{{form.error}}", False),
        ("{{user_message}}", False),
    ],
)
def test_a_function_gets_only_fields_without_free_text(value: str, is_clean: bool) -> None:
    """An enum or a bounded number ends the trail; a text, the whole object and the message do not."""
    form = make_call(
        "{{user_message}}",
        "form",
        topic={"enum": ["a", "b"]},
        text={"type": "string"},
        size={"type": "integer", "minimum": 0, "maximum": 9},
    )
    effects = {"first": form, "last": {"call_function": {"function": FUNCTION, "arguments": {"p": value}}}}
    assert (find_flows(make_flow(effects)) == []) is is_clean


def test_a_summary_of_a_result_carries_words_of_strangers() -> None:
    """A summary is from the messages of the conversation, whatever its prompt shows."""
    first = {"summarise_result": {"as": "summary", "prompt": "Sum up: {{item.result}}"}}
    last = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{summary}}"}}}
    assert find_flows(make_flow({"first": first, "last": last}))
    assert find_flows(make_flow({"first": first, "last": last}, message_trust="trusted")) == []


def test_a_function_may_be_declared_harmless_or_untrusted() -> None:
    """`risk: low` is no sink; what a function with `trust: untrusted` returns is a source."""
    call = {"function": FUNCTION, "arguments": {"p": "{{user_message}}"}}
    assert find_flows(make_flow({"last": {"call_function": call}}))
    assert find_flows(make_flow({"last": {"call_function": {**call, "risk": "low"}}})) == []
    first = {
        "call_function": {"function": FUNCTION, "arguments": {"p": "x"}, "as": "page", "trust": "untrusted"}
    }
    last = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{page.title}}"}}}
    assert find_flows(make_flow({"first": first, "last": last}, message_trust="trusted"))


def test_a_new_value_replaces_the_old_one() -> None:
    """A result that is written again from clean values is clean; the words of a person are."""
    first, second = make_call("{{user_message}}", "text"), make_call("Say hello.", "text")
    last = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{text}}"}}}
    assert find_flows(make_flow({"first": first, "last": last}))
    assert find_flows(make_flow({"first": first, "second": second, "last": last})) == []
    question = {"ask_person": {"question": "{{text}}?", "as": "words"}}
    told = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{words.content}}"}}}
    assert find_flows(make_flow({"first": first, "second": question, "last": told})) == []


@pytest.mark.parametrize("history", ["none", "all"])
@pytest.mark.parametrize("message", ["Tell me.", "About {{user_message}}"])
def test_agents_pass_on_what_they_were_told(history: str, message: str) -> None:
    """A child that is shown words of strangers, in its message or its history, brings them back, and so do
    its tools."""
    child = {"run_agent": {"chart": "tool_loop", "message": message, "history": history, "as": "report"}}
    last = {"call_function": {"function": FUNCTION, "arguments": {"p": "{{report}}"}}}
    is_clean = history == "none" and message == "Tell me."
    assert (find_flows(make_flow({"first": child, "last": last})) == []) is is_clean
    tools = {"registry": [PAGE]}
    assert find_flows(make_flow({"first": child, "last": last}, tools=tools))


# -- schemas ---------------------------------------------------------------------------------------

BOUNDED = {"type": "integer", "minimum": 0, "maximum": 9}


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        ({"type": "boolean"}, False),
        ({"const": "a long text"}, False),
        ({"enum": ["a", 1, None]}, False),
        (BOUNDED, False),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, False),
        ({"type": ["boolean", "null"]}, False),
        ({"type": "integer", "minimum": 0}, True),
        ({"type": "string", "maxLength": 3}, True),
        ({"type": "string", "format": "date"}, True),
        ({"type": ["boolean", "string"]}, True),
        ({}, True),
        (True, True),
        (None, True),
        ({"type": "array", "items": BOUNDED, "maxItems": 3}, False),
        ({"type": "array", "items": BOUNDED}, True),
        ({"type": "array", "maxItems": 3}, True),
        ({"type": "object", "properties": {"a": BOUNDED}}, True),
        ({"type": "object", "properties": {"a": BOUNDED}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}, True),
        ({"anyOf": [BOUNDED, {"type": "null"}]}, False),
        ({"anyOf": [BOUNDED, {"type": "string"}]}, True),
        ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": BOUNDED}}, False),
        ({"$ref": "#/$defs/b", "$defs": {"a": BOUNDED}}, True),
        ({"$ref": "other.json"}, True),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, True),
    ],
)
def test_a_schema_leaves_room_for_free_text(schema: Any, is_open: bool) -> None:
    """Booleans, enums and bounded numbers leave none, nor do bounded lists and closed objects of them."""
    assert allows_free_text(schema) is is_open


def test_a_path_leads_to_the_schema_of_a_field() -> None:
    """A field has its own schema; one that a schema does not name is open, unless the object is closed."""
    steps = {"type": "array", "items": {"type": "object", "properties": {"kind": {"enum": ["a"]}}}}
    schema = {"type": "object", "properties": {"steps": steps}}
    assert not path_allows_free_text(schema, ["steps", "0", "kind"])
    assert path_allows_free_text(schema, ["steps", "0", "name"])
    assert path_allows_free_text(schema, ["steps"])
    assert path_allows_free_text(schema, ["other"])
    assert not path_allows_free_text({**schema, "additionalProperties": False}, ["other"])
