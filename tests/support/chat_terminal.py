"""Types into `toolchart chat` at a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path


class ChatTerminal:
    """A chat with an agent at a pseudo-terminal.

    Args:
        agent: text of the agent spec, which is written into the folder.
    """

    def __init__(self, folder: Path, agent: str) -> None:
        (folder / "agent.yaml").write_text(agent, "utf-8")
        self._own, theirs = pty.openpty()
        words = [sys.executable, "-m", "toolchart", "chat", "agent.yaml", "--conversation", "c"]
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""

    def type(self, text: str) -> None:
        """Type text once the prompt has been redrawn, as a person would."""
        time.sleep(0.25)
        os.write(self._own, text.encode())

    def wait_for(self, words: str, seconds: float = 30) -> None:
        """Wait until new output contains the words."""
        limit = time.monotonic() + seconds
        while words not in self.screen:
            assert time.monotonic() < limit, f"{words!r} was not shown in:\n{self.screen}"
            if select.select([self._own], [], [], 0.1)[0]:
                self.screen += re.sub(
                    r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._own, 4096).decode("utf-8", "replace")
                )
        self.screen = self.screen.split(words, 1)[1]

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._own)
