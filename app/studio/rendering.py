"""The list of pages, and their templates: every value is escaped, and known secrets are struck out."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from toolchart.specs.secrets import strike_secrets

FOLDER = Path(__file__).resolve().parent


class PageLink(msgspec.Struct, frozen=True, kw_only=True):
    """One page in the navigation."""

    path: str
    title: str


PAGES = (
    PageLink(path="/conversations", title="Runs"),
    PageLink(path="/chat", title="Chat"),
    PageLink(path="/approvals", title="Approvals"),
    PageLink(path="/tools", title="Tools"),
    PageLink(path="/charts", title="Charts"),
    PageLink(path="/models", title="Models"),
)
"""The pages, in the order of the navigation. The first one is where `/` leads."""


def render_page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """The page of a template in `templates/`."""
    # A log may hold lone surrogates, which have no place in UTF-8.
    text = strike_secrets(render_text(template, **values))
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


def render_text(template: str, **values: Any) -> str:
    """The text of a template in `templates/`; every value is escaped that is not markup."""
    return _load_environment().get_template(template).render(**values)


@cache
def _load_environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
