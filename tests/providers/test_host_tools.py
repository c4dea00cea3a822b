"""Tools that a host runs itself, declared once: what each host gets, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from toolchart import SpecError
from toolchart.providers.shared.host_tools import HOST_TOOLS, encode_host_tools, list_forms

HOSTS = [
    ("responses", "openai"),
    ("responses", "xai"),
    ("messages", "anthropic"),
    ("gemini", "gemini"),
    ("chat", "groq"),
    ("chat", "openrouter"),
    ("chat", "mistral"),
    ("converse", ""),
    ("ollama", ""),
]

PARAMETERS: dict[str, dict[str, Any]] = {
    "file_search": {"stores": ["s1"]},
    "mcp": {"name": "tides", "url": "https://tides.test/mcp", "trust": "trusted"},
}


@pytest.mark.parametrize("tool", HOST_TOOLS)
@pytest.mark.parametrize(("wire", "host"), HOSTS)
def test_each_tool_is_written_for_its_host_or_refused(wire: str, host: str, tool: str) -> None:
    """A host gets a tool in its own words; one that has no such tool is refused, and the error says which
    tools it has."""
    declared = [{tool: PARAMETERS.get(tool, {})}]
    forms = list_forms((wire,), host)
    if tool not in forms:
        with pytest.raises(SpecError, match=f"has no '{tool}'") as caught:
            encode_host_tools(declared, (wire,), host)
        assert all(other in (caught.value.hint or "") for other in forms)
        return
    (entry,) = encode_host_tools(declared, (wire,), host)
    assert tool not in entry
    with pytest.raises(SpecError, match="takes no 'colour'"):
        encode_host_tools([{tool: {"colour": "red"}}], (wire,), host)


@pytest.mark.parametrize("tool", ["web_search", "web_fetch", "code_execution"])
def test_anthropic_takes_what_is_written(tool: str) -> None:
    """The entries are valid by the SDK's own types."""
    from anthropic.types import ToolUnionParam
    from pydantic import TypeAdapter

    (entry,) = encode_host_tools([{tool: {}}], ("messages",), "anthropic")
    TypeAdapter(ToolUnionParam).validate_python(entry)


@pytest.mark.parametrize("tool", [tool for tool in HOST_TOOLS if tool != "web_fetch"])
def test_responses_take_what_is_written(tool: str) -> None:
    """The entries are valid by the SDK's own types."""
    from openai.types.responses import ToolParam
    from pydantic import TypeAdapter

    (entry,) = encode_host_tools([{tool: PARAMETERS.get(tool, {})}], ("responses",), "openai")
    TypeAdapter(ToolParam).validate_python(entry)


@pytest.mark.parametrize("host", ["openai", "xai"])
@pytest.mark.parametrize("trust", [{}, {"trust": "untrusted"}], ids=["unsaid", "untrusted"])
def test_a_host_calls_a_remote_server_unasked_only_where_the_operator_trusts_it(
    host: str, trust: dict[str, str]
) -> None:
    """The host calls the tools of the server without our approvals: that is never set silently. The error
    says which word allows it, and the word itself never goes to the host."""
    server = {"name": "tides", "url": "https://tides.test/mcp"}
    with pytest.raises(SpecError, match="without an approval") as caught:
        encode_host_tools([{"mcp": {**server, **trust}}], ("responses",), host)
    assert "trust: trusted" in (caught.value.hint or "")
    (entry,) = encode_host_tools([{"mcp": {**server, "trust": "trusted"}}], ("responses",), host)
    assert "trust" not in entry
    assert entry.get("require_approval") == ("never" if host == "openai" else None)


def test_the_words_of_a_host_go_out_as_they_stand() -> None:
    """What a handler declares in a host's own words is never rewritten."""
    own = [{"type": "web_search"}, {"googleSearch": {}}, {"type": "mcp", "server_label": "x"}]
    assert encode_host_tools(own, ("chat",), "mistral") == own
