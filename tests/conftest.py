"""Makes a clean clone importable as `toolchart`, and real provider traffic impossible."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SUPPORT = str(Path(__file__).resolve().parent / "support")
if SUPPORT not in sys.path:  # a script that imports this file; pytest has it there
    sys.path.insert(0, SUPPORT)
import adopt_checkout  # noqa: E402, F401
import postgres_database  # noqa: E402


def pytest_configure() -> None:
    """Whether a change may land depends on the change alone: same examples each time, nothing timed.

    `TOOLCHART_EXPLORE=1` looks for new examples instead; one that fails belongs into the test as an
    `@example`.
    """
    # A shell starts what runs in its background deaf to these, and children would inherit that.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

    from hypothesis import HealthCheck, settings
    from hypothesis.internal.conjecture import providers

    explores = os.environ.get("TOOLCHART_EXPLORE") == "1"
    if not explores:
        # Hypothesis also draws constants of the modules that are loaded: examples would depend on which tests
        # ran before in the same process. There is no setting for that.
        vars(providers)["_get_local_constants"] = providers.Constants
    settings.register_profile(
        "toolchart", deadline=None, derandomize=not explores, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("toolchart")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """What is collected stays until the end, so looking for garbage in it costs half of the time."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The tests' own garbage is collected as ever, without reading what was collected here once more."""
    gc.enable()
    gc.collect()  # what is frozen is never collected, garbage neither
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than processors: many tests wait for processes, deadlines and files."""
    return (os.cpu_count() or 1) + 1


_LOOPBACK = ("127.", "::1", "localhost")
_AUTHORITIES = (ssl.get_default_verify_paths().openssl_cafile, "/etc/ssl/certs/ca-certificates.crt")


class TrafficRefused(OSError):
    """A test tried to reach something that is not on this machine."""


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test leaves the machine unless TOOLCHART_REAL_TRAFFIC=1 allows it."""
    if os.environ.get("TOOLCHART_REAL_TRAFFIC") == "1":
        return
    connect = socket.socket.connect
    connect_ex = socket.socket.connect_ex
    resolve = socket.getaddrinfo

    def allowed(address: Any) -> bool:
        host = address[0] if isinstance(address, tuple) else address
        return not isinstance(address, tuple) or str(host).startswith(_LOOPBACK)

    def guarded(self: socket.socket, address: Any) -> None:
        if not allowed(address):
            raise TrafficRefused(f"tests stay on loopback, not {address!r}")
        connect(self, address)

    def guarded_ex(self: socket.socket, address: Any) -> int:
        if not allowed(address):
            raise TrafficRefused(f"tests stay on loopback, not {address!r}")
        return connect_ex(self, address)

    def resolving(host: Any, *rest: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name and not str(name).startswith(_LOOPBACK):
            raise socket.gaierror(f"tests stay on loopback, not {name!r}")
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_ex)
    monkeypatch.setattr(socket, "getaddrinfo", resolving)


@pytest.fixture(scope="session", autouse=True)
def _no_public_authorities() -> Iterator[None]:
    """No client of a test reads the certificates of all public authorities: nobody is there to show one.

    To read them takes longer than most tests, and some SDKs read them three times for each client.
    """
    if os.environ.get("TOOLCHART_REAL_TRAFFIC") == "1":
        yield
        return
    import certifi

    load = ssl.SSLContext.load_verify_locations
    public = {os.path.realpath(path) for path in (*_AUTHORITIES, certifi.where())}

    def load_own(context: ssl.SSLContext, cafile: Any = None, *more: Any, **options: Any) -> None:
        if not isinstance(cafile, str) or os.path.realpath(cafile) not in public:
            load(context, cafile, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", load_own)
        yield


@pytest.fixture(autouse=True)
def _no_ambient_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own keys and addresses never reach a test."""
    for name in list(os.environ):
        ours = name.startswith(("OPENAI_", "OLLAMA_", "GOOGLE_", "GEMINI_", "TOOLCHART_"))
        if ours and name != "TOOLCHART_REAL_TRAFFIC":
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """A key that a test plants is struck in this test alone: any text of another one may hold it."""
    before = dict(_list_known_secrets())
    yield
    known = _list_known_secrets()
    known.clear()
    known.update(before)


@pytest.fixture(autouse=True)
def _no_stream_of_other_tests() -> Iterator[None]:
    """DBOS logs to the standard error that it first sees. A test that captures it closes it at its end."""
    yield
    logging.getLogger("dbos").handlers.clear()


def _list_known_secrets() -> dict[str, bytes]:
    """Those of this process, as they are kept; a new mapping where the module is not loaded yet."""
    module = sys.modules.get("toolchart.specs.secrets")
    return module._known_spellings if module is not None else {}


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A real PostgreSQL server of the session's own, from a pip package; the address of its database."""
    with postgres_database.run_server() as server:
        yield server.get_uri()
