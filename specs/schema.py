"""The published JSON Schema of the agent spec."""

from __future__ import annotations

from typing import Any

from toolchart.specs.models import AgentSpec


def spec_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) that every agent spec fits; made from the models themselves."""
    schema = AgentSpec.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Toolchart agent spec",
    }
