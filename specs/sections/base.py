"""The base class of every section of an agent spec."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """The base class of every section of a spec."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    comment: Any = None
    """Text for readers; ignored."""
