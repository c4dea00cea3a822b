"""The base class of every section of an agent spec."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Container
from difflib import get_close_matches
from textwrap import dedent
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

IS_CHECKED = "toolchart.is_checked"
"""Key of a validation's context: the keys of the document were checked before."""


class Section(BaseModel):
    """The base class of every section of a spec.

    The string below a field describes it in the JSON Schema. It is read from the source when a schema is
    made: pydantic's own option reads it when the class is made, which is most of a start.
    """

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    misspelt_cutoff: ClassVar[float] = 0.7
    """How similar an unknown key is to a known one that was meant: 1 for the same."""

    comment: Any = None
    """Text for readers; ignored."""

    @classmethod
    def has_key(cls, key: str) -> bool:
        """Whether the section has a key of this name."""
        return key in cls.model_fields

    @model_validator(mode="before")
    @classmethod
    def _refuse_misspelt_keys(cls, data: Any, info: ValidationInfo) -> Any:
        """Refuse keys that are nearly those of the section, in a section that a program makes.

        Files are checked by the loader, which knows their lines.
        """
        if isinstance(data, dict) and not (info.context or {}).get(IS_CHECKED):
            for key in data:
                nearest = find_misspelt_key(cls, str(key), data)
                if nearest is not None:
                    raise PydanticCustomError(
                        "misspelt_key",
                        "unknown key {key}: did you mean {nearest}?",
                        {"key": repr(str(key)), "nearest": repr(nearest)},
                    )
        return data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        reference = handler(core_schema)
        properties = handler.resolve_ref_schema(reference)["properties"]
        for base in reversed(cls.__mro__[: cls.__mro__.index(BaseModel)]):
            for name, text in _read_descriptions(base).items():
                if name in properties:
                    properties[name].setdefault("description", text)
        return reference


def find_misspelt_key(section: type[Section], key: str, data: Container[str]) -> str | None:
    """The key of a section that an unknown one was meant to be; None where it is known, or like no other.

    Args:
        data: the keys that the section has; none of them was meant.
    """
    if section.has_key(key) or key.startswith(("_", "$")):
        return None
    names = sorted(name for name in section.model_fields if name not in data)
    close = get_close_matches(key, names, n=1, cutoff=section.misspelt_cutoff)
    return close[0] if close else None


def _read_descriptions(section: type) -> dict[str, str]:
    """The strings that stand below the fields of a class, by field."""
    tree = ast.parse(dedent(inspect.getsource(section))).body[0]
    assert isinstance(tree, ast.ClassDef)
    descriptions: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            descriptions[field.target.id] = inspect.cleandoc(str(below.value.value))
    return descriptions
