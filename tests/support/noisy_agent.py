"""An agent whose tool, and whose module when it is imported, print in every way that there is."""

from __future__ import annotations

from pathlib import Path

NOISY_MODULE = """\
import os, subprocess, sys
print("NOISE of the import")
def noisy():
    "Prints in every way that there is."
    print("NOISE by print")
    sys.stdout.write("NOISE by a stream\\n")
    sys.__stdout__.buffer.write(b"NOISE by a buffer\\n")
    os.write(1, b"NOISE by a descriptor\\n")
    os.system("echo NOISE of a shell")
    subprocess.run([sys.executable, "-c", "print('NOISE of a program')"])
    return "fine"
def judge(recorded, rerun):
    print("NOISE of a judge")
    return True
"""

NOISY_AGENT = """\
name: noisy
chart: tool_loop
llms: {a: {provider: scripted, model: m, replies: [{tool_calls: [{name: noisy, arguments: {}}]}, done]}}
responses: [{llm: a, tools: {enabled: true}}]
tools:
  registry:
    - {name: noisy, description: Noisy., idempotent: true, parameters: {type: object, properties: {}},
       isolation: MODE, implementation: {type: python, handler: "noisy_tools:noisy"}}
"""


def write_noisy_agent(folder: Path, mode: str = "thread") -> None:
    """Write `agent.yaml` and its module into a folder.

    Args:
        mode: the isolation of its tool.
    """
    (folder / "noisy_tools.py").write_text(NOISY_MODULE)
    (folder / "agent.yaml").write_text(NOISY_AGENT.replace("MODE", mode))
