"""The base class of every section of an agent spec."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Section(BaseModel):
    """The base class of every section of a spec.

    The string below a field describes it in the JSON Schema. It is read from the source when a schema is
    made: pydantic's own option reads it when the class is made, which is most of a start.
    """

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    comment: Any = None
    """Text for readers; ignored."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        reference = handler(core_schema)
        properties = handler.resolve_ref_schema(reference)["properties"]
        for base in reversed(cls.__mro__[: cls.__mro__.index(BaseModel)]):
            for name, text in _read_descriptions(base).items():
                properties[name].setdefault("description", text)
        return reference


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
