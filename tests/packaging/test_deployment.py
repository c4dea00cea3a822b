"""The files of `deploy/` fit each other and the commands that they run.

tests/app/test_deployed_fleet.py runs these.
"""

from __future__ import annotations

import configparser
import fnmatch
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from deployment import (
    DEPLOY,
    ROOT,
    StrictLoader,
    list_variables,
    parse_command,
    read_compose,
    read_example,
    read_instructions,
    read_seconds,
    read_unit,
    split_exec_start,
)

from toolchart.specs.loader import load_spec

VARIABLES = {name: value or f"value-of-{name.lower()}" for name, value in read_example().items()}

UNITS = sorted((DEPLOY / "systemd").iterdir())

PROGRAMS = ("upgrade", "server", "worker", "supervisor")
"""The services that run Toolchart."""

SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "env_file", "environment", "healthcheck", "image", "init",
    "networks", "ports", "read_only", "restart", "security_opt", "shm_size", "stop_grace_period", "tmpfs",
    "volumes",
}  # fmt: skip
"""Keys of a service in the Compose specification that are used here."""


@pytest.fixture
def compose() -> dict[str, Any]:
    """The compose file with the variables of `.env.example`."""
    return read_compose(VARIABLES)


def parse_service(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """The command of a service, parsed with its environment."""
    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TOOLCHART_")]:
            patch.delenv(name)
        for name, value in service.get("environment", {}).items():
            patch.setenv(name, value)
        return parse_command(service["command"])


# -- compose ---------------------------------------------------------------------------------------


def test_the_compose_file_has_keys_that_there_are(compose: dict[str, Any]) -> None:
    """No key stands twice or is misspelt, and each network, volume and service that is named is declared."""
    assert {key for key in compose if not key.startswith("x-")} == {"name", "services", "networks", "volumes"}
    services = compose["services"]
    assert set(services) == {"database", *PROGRAMS}
    volumes: set[str] = set()
    for name, service in services.items():
        assert set(service) <= SERVICE_KEYS, name
        assert set(service["networks"]) <= set(compose["networks"]), name
        volumes |= {volume.split(":")[0] for volume in service["volumes"] if volume[0] not in "./"}
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), volume
        for needed, condition in service.get("depends_on", {}).items():
            other = services[needed]
            match condition:
                case {"condition": "service_healthy"}:
                    assert "healthcheck" in other, (name, needed)
                case {"condition": "service_completed_successfully"}:
                    assert other["restart"] == "no", (name, needed)
                case _:
                    pytest.fail(f"{name} waits for {needed} in a way that is not known: {condition}")
    assert volumes == set(compose["volumes"])


def test_each_service_runs_a_command_that_there_is(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner upgrades; all others run as the role that it is told of, in the same database and on the same
    agent."""
    parsed = {name: parse_service(compose["services"][name], monkeypatch) for name in PROGRAMS}
    assert {name: command for name, (command, _) in parsed.items()} == {
        "upgrade": "database upgrade",
        "server": "serve",
        "worker": "worker",
        "supervisor": "worker",
    }
    upgrade, server = parsed["upgrade"][1], parsed["server"][1]
    bot = upgrade["log"].replace("//owner@", f"//{upgrade['role']}@")
    assert bot != upgrade["log"]
    assert (server["queue_address"], server["log"], server["spec"]) == (bot, bot, "agent.yaml")
    assert (server["host"], server["allow_plain_http"]) == ("0.0.0.0", True)
    workers = [parsed[name][1] for name in ("worker", "supervisor")]
    assert [worker["supervises"] for worker in workers] == [False, True]
    for worker in workers:
        assert (worker["dsn"], worker["log"], worker["spec"]) == (bot, bot, "agent.yaml")
    assert workers[0]["concurrency"] == workers[1]["concurrency"]
    assert ":" not in bot.partition("//")[2], "an address has no password"


def test_a_wrong_command_is_found() -> None:
    """What these tests parse commands with refuses what the command line refuses."""
    for words in (
        ["work"],
        ["worker", "agent.yaml", "--dsn", "postgresql://bot@db/bot", "--supervised"],
        ["worker", "--dsn", "postgresql://bot@db/bot"],
        ["serve", "agent.yaml", "--port", "many"],
        ["database", "downgrade"],
    ):
        with pytest.raises(click.ClickException):
            parse_command(words)


def test_a_key_that_stands_twice_is_found() -> None:
    """YAML that most readers take is refused here."""
    with pytest.raises(yaml.YAMLError, match="stands twice"):
        yaml.load("{restart: always, restart: 'no'}", StrictLoader)


def test_nothing_of_the_database_is_published(compose: dict[str, Any]) -> None:
    """The server is published on this machine only, and the network of the database has no way out."""
    services = compose["services"]
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == {
        "server": ["127.0.0.1:8765:8765"]
    }
    assert services["server"]["command"][services["server"]["command"].index("--port") + 1] == "8765"
    assert compose["networks"]["database"] == {"internal": True}
    assert services["database"]["networks"] == services["upgrade"]["networks"] == ["database"]


def test_the_health_checks_ask_where_the_commands_listen(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each service that goes on has one, of a program that its image has."""
    services = compose["services"]
    for name, path in (("server", "/readyz"), ("worker", "/metrics"), ("supervisor", "/metrics")):
        mark, program, option, code = services[name]["healthcheck"]["test"]
        assert (mark, program, option) == ("CMD", "python", "-c")
        compile(code, name, "exec")
        parameters = parse_service(services[name], monkeypatch)[1]
        place = parameters.get("metrics_address") or f"127.0.0.1:{parameters['port']}"
        assert f'"http://{place}{path}"' in code
    ports = {services[name]["command"][-1] for name in ("worker", "supervisor")}
    assert len(ports) == 2, "two workers may also run on one machine"
    for service in services.values():
        for key in ("interval", "timeout", "start_period"):
            assert "healthcheck" not in service or read_seconds(service["healthcheck"][key]) > 0


def test_a_stop_takes_no_longer_than_it_may(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A container is killed later than its command gives up what runs; what ends by itself comes again."""
    for name in ("server", "worker", "supervisor"):
        service = compose["services"][name]
        grace_s = parse_service(service, monkeypatch)[1]["grace_s"]
        assert read_seconds(service["stop_grace_period"]) >= grace_s + 10, name
        assert (service["restart"], service["init"]) == ("unless-stopped", True)


def test_each_variable_is_explained(compose: dict[str, Any]) -> None:
    """`.env.example` has exactly the variables of the compose file, with their defaults, and no secret. Git
    ignores the files with secrets."""
    assert {name: value or None for name, value in read_example().items()} == list_variables()
    with pytest.raises(KeyError):
        read_compose({})
    lines = (DEPLOY / ".env.example").read_text("utf-8").splitlines()
    for name in read_example():
        (number,) = (n for n, line in enumerate(lines) if line.startswith(f"{name}="))
        assert any(line.startswith("#") for line in lines[max(0, number - 2) : number]), name
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    (keys,) = compose["services"]["worker"]["env_file"]
    assert keys == {"path": "keys.env", "required": False}
    assert {"/deploy/.env", f"/deploy/{keys['path']}"} <= set(ignored)


def test_the_roles_are_those_of_the_commands(compose: dict[str, Any]) -> None:
    """The script of the database makes the roles and the database that the addresses name, with passwords
    from its environment."""
    script = (DEPLOY / "roles.sql").read_text("utf-8")
    (log,) = (word for word in compose["services"]["upgrade"]["command"] if word.startswith("postgresql:"))
    assert re.findall(r"CREATE ROLE (\w+)", script) == ["owner", "bot"]
    assert re.findall(r"CREATE DATABASE (\w+) OWNER (\w+)", script) == [(log.rpartition("/")[2], "owner")]
    database = compose["services"]["database"]["environment"]
    assert set(re.findall(r"\\getenv \w+ (\w+)", script)) == set(database) - {"POSTGRES_PASSWORD"}
    assert any(volume.endswith(":/docker-entrypoint-initdb.d/roles.sql:ro") for volume in
               compose["services"]["database"]["volumes"])  # fmt: skip


# -- the image -------------------------------------------------------------------------------------


def test_the_image_is_small_and_runs_as_nobody(compose: dict[str, Any]) -> None:
    """Bases have a version, the process is no root and gets signals itself, and no cache stays."""
    instructions = read_instructions()
    bases = [words.split()[0] for name, words in instructions if name == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim-bookworm", base) for base in bases), bases
    last = instructions[max(n for n, row in enumerate(instructions) if row[0] == "FROM") :]
    values = dict(last)
    assert values["USER"].isdigit()
    assert int(values["USER"]) > 0
    assert json.loads(values["ENTRYPOINT"]) == ["toolchart"]
    assert json.loads(values["CMD"]) == ["--help"]
    assert (values["STOPSIGNAL"], values["WORKDIR"]) == ("SIGTERM", "/srv/agent")
    assert not [words for name, words in instructions if name == "ADD"]
    installs = [words for name, words in instructions if name == "RUN" and "pip install" in words]
    assert all("--no-cache-dir" in words for words in installs)
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", installs[0])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"serve", "durable", "metrics"} <= set(extras.split(",")) <= set(project["optional-dependencies"])
    service = compose["services"]["server"]
    assert service["image"] == f"toolchart:{project['version']}"
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert any(volume.endswith(f":{values['WORKDIR']}:ro") for volume in service["volumes"])
    for other in compose["services"].values():
        tag = other["image"].partition(":")[2]
        assert tag, other
        assert tag != "latest"


def test_the_build_gets_what_the_package_is_made_of() -> None:
    """The list of what is left out keeps all that setuptools reads, and neither secrets nor history."""
    lines = (DEPLOY / "Containerfile.dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = settings["tool"]["setuptools"]["packages"]
    rooms = {package.split(".")[1] for package in packages if package.count(".") == 1}
    assert kept == rooms | {
        "LICENSE", "README.md", "pyproject.toml", "setup.py", "*.py", "py.typed", "docs/man/toolchart.1",
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in kept if "*" not in name)
    assert "**/.env" in rules


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="builds without a network")
def test_what_the_build_gets_makes_the_package(tmp_path: Path) -> None:
    """A wheel that is made of the kept files alone has every module of the tree."""
    source = tmp_path / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and is_kept(name)]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(tmp_path), str(source)], check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    built = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("toolchart/")}
    modules = {f"toolchart/{name}" for name in names if name.endswith(".py")} - {"toolchart/setup.py"}
    assert {name for name in built if name.endswith(".py")} == modules


def is_kept(name: str) -> bool:
    """Whether the list leaves a file of the repository in what the build gets."""
    lines = (DEPLOY / "Containerfile.dockerignore").read_text("utf-8").splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    return any(
        name.startswith(f"{rule}/") or (("/" not in name or "/" in rule) and fnmatch.fnmatch(name, rule))
        for rule in kept
    )


# -- systemd ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_that_there_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It parses, is stopped later than its command gives up what runs, and may do little beside."""
    unit = read_unit(path)
    service = unit["Service"]
    monkeypatch.setenv("TOOLCHART_DSN", "postgresql://bot@db/bot")
    program, *words = [os.path.expandvars(word) for word in split_exec_start(unit)]
    assert program == "/opt/toolchart/bin/toolchart"
    command, parameters = parse_command(words)
    assert command == {"toolchart-server.service": "serve", "toolchart-worker@.service": "worker"}[path.name]
    assert (parameters.get("queue_address") or parameters["dsn"]) == "postgresql://bot@db/bot"
    assert read_seconds(service["TimeoutStopSec"]) >= parameters["grace_s"] + 10
    assert (service["KillSignal"], service["Restart"]) == ("SIGTERM", "on-failure")
    for key in ("NoNewPrivileges", "DynamicUser", "ProtectHome", "PrivateTmp"):
        assert service[key] == "yes"
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
    assert service["WorkingDirectory"] == f"%S/{service['StateDirectory']}"
    assert "DSN" not in service.get("Environment", ""), "secrets stand in a file of root"


def test_the_units_differ_in_what_they_run_only() -> None:
    """What one of them may not do, the other may not do either."""
    server, worker = (dict(read_unit(path)["Service"]) for path in UNITS)
    differing = {key for key in server | worker if server.get(key) != worker.get(key)}
    assert differing == {
        "EnvironmentFile", "ExecStart", "StateDirectory", "TimeoutStopSec", "WorkingDirectory",
    }  # fmt: skip


def test_a_unit_with_a_key_twice_is_found(tmp_path: Path) -> None:
    """What these tests read units with refuses it."""
    (tmp_path / "a.service").write_text("[Service]\nUser=a\nUser=b\n")
    with pytest.raises(configparser.DuplicateOptionError):
        read_unit(tmp_path / "a.service")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_a_unit(path: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` says nothing, with a program that this machine has."""
    copy = tmp_path / path.name
    copy.write_text(path.read_text("utf-8").replace("/opt/toolchart/bin/toolchart", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


# -- what they run ---------------------------------------------------------------------------------


def test_the_agent_needs_no_key() -> None:
    """It loads, and its models are scripts."""
    spec = load_spec(DEPLOY / "agent" / "agent.yaml")
    assert {llm.provider for llm in spec.llms.values()} == {"scripted"}


def test_the_files_are_no_part_of_the_package() -> None:
    """No package of the distribution lies in the folder, and no data of it comes from there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    assert "deploy" not in json.dumps(settings)
    assert not list(DEPLOY.rglob("*.py"))
