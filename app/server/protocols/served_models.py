"""The models that protocols offer: the agent itself, and each of its handlers with a name."""

from __future__ import annotations

from pathlib import Path

import msgspec

from toolchart.app.server.answers import Refusal
from toolchart.specs.models import AgentSpec


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One name that a request may ask for."""

    name: str
    handler: str | None
    """The handler that answers; None lets the spec choose by `match`."""
    description: str


def list_models(spec: AgentSpec) -> list[ServedModel]:
    """The agent under its own name, then its handlers; a handler with the agent's name is left out."""
    own = spec.name or (Path(spec.source).stem if spec.source else "agent")
    models = [ServedModel(name=own, handler=None, description=f"The agent {own}.")]
    for handler in spec.responses:
        if handler.name and handler.name != own:
            text = f"The handler {handler.name} of the agent {own}."
            models.append(ServedModel(name=handler.name, handler=handler.name, description=text))
    return models


def find_model(spec: AgentSpec, name: str) -> ServedModel:
    """The model with a name.

    Raises:
        Refusal: 404; there is none. The message lists those there are.
    """
    models = list_models(spec)
    for model in models:
        if model.name == name:
            return model
    model_names = ", ".join(model.name for model in models)
    raise Refusal(404, f"the model {name!r} does not exist; this server has: {model_names}")
