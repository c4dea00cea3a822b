"""Types into `toolchart chat` at a pseudo-terminal."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from contextlib import suppress
from pathlib import Path

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class ChatTerminal:
    """A chat with an agent at a pseudo-terminal.

    Args:
        agent: text of the agent spec, which is written into the folder.
        terminal: value of `TERM`.
        columns: width of the terminal.
    """

    def __init__(self, folder: Path, agent: str, terminal: str = "xterm", columns: int = 120) -> None:
        (folder / "agent.yaml").write_text(agent, "utf-8")
        self._own, theirs = pty.openpty()
        # As the editor sets it while it reads: nothing that is typed between two prompts is lost or echoed.
        tty.setraw(theirs)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        words = [sys.executable, "-m", "toolchart", "chat", "agent.yaml", "--conversation", "c"]
        environment = {**os.environ, "TERM": terminal, "NO_COLOR": "1", "COLUMNS": str(columns)}
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
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
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._received = ""
        self._shown = ""
        """What was received before the words that were found last, and these."""

    def type(self, text: str) -> None:
        """Type text."""
        os.write(self._own, text.encode())

    def wait_for(self, words: str) -> None:
        """Wait until new output contains the words; what was shown before is new no longer."""
        assert self._is_shown(words, 120), f"{words!r} was not shown in:\n{self._received!r}"

    def read_until(self, words: str) -> str:
        """Wait as `wait_for` does; the output up to the words, without sequences that move or colour."""
        self.wait_for(words)
        return _SEQUENCE.sub("", self._shown)

    def interrupt(self, words: str) -> None:
        """Press Ctrl-C, and wait for words.

        While the chat prints, the terminal takes the key for itself, and nothing would come of it: after a
        while it is pressed again.
        """
        for _ in range(6):
            self.type("\x03")
            if self._is_shown(words, 20):
                return
        raise AssertionError(f"{words!r} was not shown in:\n{self._received!r}")

    def leave(self) -> int:
        """Press Ctrl-D, until the chat has ended; its exit code."""
        for _ in range(6):
            self.type("\x04")
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(20)
        raise AssertionError("the chat goes on")

    def _is_shown(self, words: str, seconds: float) -> bool:
        """Whether new output contains the words within some seconds."""
        limit = time.monotonic() + seconds
        while (match := _spell(words).search(self._received)) is None:
            if time.monotonic() > limit:
                return False
            if select.select([self._own], [], [], 0.1)[0]:
                self._received += self._decoder.decode(os.read(self._own, 4096))
        self._shown, self._received = self._received[: match.end()], self._received[match.end() :]
        return True

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._own)


def _spell(words: str) -> re.Pattern[str]:
    """The words, with sequences that move or colour anywhere between their letters."""
    return re.compile(rf"(?:{_SEQUENCE.pattern})*".join(map(re.escape, words)))
