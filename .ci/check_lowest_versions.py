"""Exits with an error where the lowest version that `pyproject.toml` names is not the one that is installed.

Run it in an environment of the lowest versions: a lower bound that no resolution can reach was never tried.
"""

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

GROUPS_LEFT_OUT = ("dev", "docs")
project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
requirements = [
    *project["dependencies"],
    *(line for name, lines in extras.items() if name not in GROUPS_LEFT_OUT for line in lines),
]
wrong = []
for requirement in dict.fromkeys(requirements):
    match = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([^,; ]+)", requirement)
    if match is None:
        wrong.append(f"{requirement}: it names no lowest version")
    elif not f"{version(match[1])}.".startswith(f"{match[2]}."):
        wrong.append(f"{requirement}: the lowest version that fits all others is {version(match[1])}")
sys.exit("\n".join(wrong) or None)
