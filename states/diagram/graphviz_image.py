"""Pictures, made by Graphviz where it is installed."""

from __future__ import annotations

import shutil
import subprocess

from toolchart.states.errors import SpecError

_SECONDS = 60


def render(source: str, form: str) -> bytes:
    """The picture of a DOT text.

    Raises:
        SpecError: Graphviz is not installed, or it failed; says what to do instead.
    """
    program = shutil.which("dot")
    if program is None:
        raise SpecError(
            f"{form} needs Graphviz, whose `dot` is not on the path",
            hint="install it (Debian: apt-get install graphviz; macOS: brew install graphviz), "
            "or draw --format mermaid",
        )
    try:
        done = subprocess.run(
            [program, f"-T{form}"], input=source.encode(), capture_output=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"Graphviz could not draw it: {error}") from None
    if done.returncode:
        raise SpecError(
            f"Graphviz could not draw it: {done.stderr.decode(errors='replace').strip()}"
        )
    return done.stdout
