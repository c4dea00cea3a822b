"""`toolchart watch --https`: programs that read no address are seen; nothing else of their HTTPS is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from enforced_programs import describe_tool, make_spec
from https_hosts import run_https, serve_forward_proxy, serve_secure
from proxied_hosts import WAIT_S, Call, serve_host
from watch_commands import ended, list_texts, make_environment, read_line, run_watch, start_watch

from toolchart.app.watch.authority import build_authority, build_leaf, open_authority
from toolchart.app.watch.client_variables import list_settings
from toolchart.app.watch.named_hosts import NamedHost, read_named_hosts
from toolchart.app.watch.tunnel import check_own_proxy
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import SpecError
from toolchart.testing.emulators import Emulator, emulate_host

OFFICIAL = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
NAMED = ["--https", "api.openai.com", "--https", "api.anthropic.com"]
NAMED += ["--https", "generativelanguage.googleapis.com"]

SDK_PROGRAM = """
import asyncio, json, sys
import anthropic, openai
from google import genai

addresses, models = json.loads(sys.argv[1]), json.loads(sys.argv[2])
turn = [{"role": "user", "content": "hello"}]
texts = []

keys = {"api_key": "key-of-program", "max_retries": 0}
client = openai.OpenAI(base_url=addresses["openai"], **keys)
texts.append(client.chat.completions.create(model=models["openai"], messages=turn).choices[0].message.content)
stream = client.chat.completions.create(model=models["openai"], messages=turn, stream=True)
texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices))
texts.append(client.responses.create(model=models["openai"], input="hello").output_text)
stream = client.responses.create(model=models["openai"], input="hello", stream=True)
texts.append("".join(event.delta for event in stream if event.type == "response.output_text.delta"))

client = anthropic.Anthropic(base_url=addresses["anthropic"], **keys)
options = {"model": models["anthropic"], "messages": turn, "max_tokens": 1000}
texts.append(client.messages.create(**options).content[-1].text)
with client.messages.stream(**options) as stream:
    texts.append(stream.get_final_text())

client = genai.Client(api_key="key-of-program", http_options={"base_url": addresses["gemini"]})
texts.append(client.models.generate_content(model=models["gemini"], contents="hello").text)
parts = client.models.generate_content_stream(model=models["gemini"], contents="hello")
texts.append("".join(part.text or "" for part in parts))

async def ask():
    async with openai.AsyncOpenAI(base_url=addresses["openai"], **keys) as client:
        replies = await asyncio.gather(*(
            client.chat.completions.create(model=models["openai"], messages=turn) for _ in range(8)))
        texts.extend(reply.choices[0].message.content for reply in replies)
asyncio.run(ask())
print(texts)
"""
"""Calls each wire by the SDK of its maker, whole and streamed, at addresses that it names in code."""

LISTING_PROGRAM = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["SSL_CERT_FILE"]).parent
files = {path.name: (path.stat().st_mode & 0o777, path.read_text()) for path in folder.iterdir()}
names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
print(json.dumps({
    "mode": folder.stat().st_mode & 0o777,
    "folder": str(folder),
    "secret": [name for name, (_, text) in files.items() if "PRIVATE" in text],
    "environment": dict(os.environ),
    "trusted": {name: pathlib.Path(os.environ[name]).read_text() for name in names},
}), flush=True)
"""

ECHO_PROGRAM = """
import hashlib, http.client, os, socket, ssl, sys
from urllib.parse import urlsplit
proxy, port, data = urlsplit(os.environ["HTTPS_PROXY"]), int(sys.argv[1]), bytes(range(256)) * 20000
for _ in range(3):
    with socket.create_connection((proxy.hostname, proxy.port)) as plain:
        plain.sendall(f"CONNECT localhost:{port} HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n".encode())
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += plain.recv(1)
        assert b" 200 " in head, head
        context = ssl.create_default_context(cafile=sys.argv[2])
        with context.wrap_socket(plain, server_hostname="localhost") as secured:
            certificate = ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True))
            secured.sendall(len(data).to_bytes(4, "big") + data)
            received = b""
            while part := secured.recv(65536):
                received += part
    assert received == data[::-1]
print(certificate, end="")
"""

CHAT_PROGRAM = """
import openai, sys
client = openai.OpenAI(api_key="key-of-program", base_url=sys.argv[1], max_retries=0)
tool = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {}}}}
reply = client.chat.completions.create(
    model="gpt-4.1", messages=[{"role": "user", "content": sys.argv[2]}], tools=[tool])
message = reply.choices[0].message
print([call.function.name for call in message.tool_calls or []], message.content)
"""


@pytest.fixture
def emulators() -> Iterator[dict[str, Emulator]]:
    """A host for each SDK."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(emulate_host(name)) for name in OFFICIAL}


def list_urls(emulators: dict[str, Emulator]) -> dict[str, str]:
    """Their addresses, as their SDKs take them."""
    urls = {name: f"http://127.0.0.1:{host.port}" for name, host in emulators.items()}
    return {**urls, "openai": urls["openai"] + "/v1"}


def list_folders(folder: Path) -> list[str]:
    """What is left of authorities in a temporary folder."""
    return [path.name for path in folder.iterdir() if path.name.startswith("toolchart-watch-")]


def test_sdks_with_addresses_in_code_are_seen(tmp_path: Path, emulators: dict[str, Emulator]) -> None:
    """The SDKs of OpenAI, Anthropic and Google print what they print without a watch, whole, streamed and
    beside each other; each exchange is in the log, and no key is."""
    urls = list_urls(emulators)
    models = json.dumps({name: host.model for name, host in emulators.items()})
    alone = subprocess.run(
        [sys.executable, "-c", SDK_PROGRAM, json.dumps(urls), models],
        env=make_environment(),
        capture_output=True,
        timeout=WAIT_S,
    )
    assert alone.returncode == 0, alone.stderr.decode()
    options = [word for name, url in urls.items() for word in (f"--{name}", url)]
    command = (sys.executable, "-c", SDK_PROGRAM, json.dumps(OFFICIAL), models)
    code, out, err = run_watch(
        "--log", "log.db", *options, *NAMED, "--", *command, cwd=tmp_path, TMPDIR=str(tmp_path)
    )
    assert (code, out) == (0, alone.stdout), err
    lines = err.splitlines()
    start = lines.index("toolchart: 16 exchanges with model hosts")
    assert lines[start + 1 : start + 6] == [
        f"  chat at {urls['openai']}: 10",
        f"  gemini at {urls['gemini']}: 2",
        f"  messages at {urls['anthropic']}: 2",
        f"  responses at {urls['openai']}: 2",
        "  16 model calls in 16 conversations",
    ]
    assert list_folders(tmp_path) == []
    with closing(open_store(str(tmp_path / "log.db"))) as store:
        assert [list_texts(store, name) for name in store.list_conversations()] == [["hello", "Done."]] * 16
        assert all(isinstance(each, VerifiedConversation) for each in verify_store(store))
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file()) + err.encode()
    assert b"key-of-program" not in written
    assert b"PRIVATE KEY" not in written


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_an_exchange_passes_byte_for_byte(is_streamed: bool) -> None:
    """Path, query, headers and body inside TLS go to the host, and its answer comes back, in chunks."""
    gate = asyncio.Event()

    async def answer(call: Call) -> None:
        if not is_streamed:
            await call.send_whole("201 Odd", call.body[::-1], "X-Own: 1")
            return
        await call.begin_stream()
        await call.send_chunk(b"data: 1\n\n")
        await gate.wait()
        await call.send_chunk(b"data: 2\n\n")
        await call.send_chunk(b"")

    async with (
        serve_host(answer) as host,
        run_https("api.openai.com", openai=f"{host.url}/v1") as watch,
        httpx2.AsyncClient(proxy=watch.url, verify=watch.context, timeout=WAIT_S) as client,
        client.stream("POST", "https://api.openai.com/v1/responses?a=%41", content=b"\0abc") as passed,
    ):
        assert passed.http_version == "HTTP/1.1"
        chunks = []
        async for chunk in passed.aiter_raw():
            chunks.append(chunk)
            gate.set()
    assert (host.calls[0].target, host.calls[0].body) == ("/v1/responses?a=%41", b"\0abc")
    assert host.calls[0].find("host") == [host.url.removeprefix("http://")]
    if is_streamed:
        assert chunks == [b"data: 1\n\n", b"data: 2\n\n"]
    else:
        assert (passed.status_code, passed.headers["x-own"], chunks) == (201, "1", [b"cba\0"])
    (exchange,) = watch.sink.exchanges
    assert (exchange.wire, exchange.host, exchange.path) == (
        "responses",
        f"{host.url}/v1",
        "/v1/responses?a=%41",
    )


async def test_a_host_that_breaks_off_is_cut_inside_tls_too() -> None:
    """A program does not take a part of an answer for all of it."""

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await call.send_chunk(b"data: 1\n\n")
        raise OSError

    async with (
        serve_host(answer) as host,
        run_https("api.openai.com", openai=f"{host.url}/v1") as watch,
        httpx2.AsyncClient(proxy=watch.url, verify=watch.context, timeout=WAIT_S) as client,
    ):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post("https://api.openai.com/v1/responses", json={})
    assert [exchange.is_cut for exchange in watch.sink.exchanges] == [True]


async def test_a_cut_answer_looks_cut_to_an_old_client_inside_tls() -> None:
    """HTTP/1.0 tells the end of an answer by that of the connection: it is torn down, not ended."""

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await call.send_chunk(b"data: 1\n\n")
        raise OSError

    async with (
        serve_host(answer) as host,
        run_https("api.openai.com", openai=f"{host.url}/v1") as watch,
        asyncio.timeout(WAIT_S),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", watch.port)
        writer.write(b"CONNECT api.openai.com:443 HTTP/1.0\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(watch.context, server_hostname="api.openai.com")
        writer.write(b"POST /v1/responses HTTP/1.0\r\nHost: api.openai.com\r\nContent-Length: 0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
    assert [exchange.is_cut for exchange in watch.sink.exchanges] == [True]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "API.OpenAI.com:443"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
async def test_the_name_must_be_that_of_the_connection(headers: dict[str, str], status: int) -> None:
    """Inside a connection with a named host, requests for other hosts and of pages are refused."""

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", b"{}")

    async with (
        serve_host(answer) as host,
        run_https("api.openai.com", openai=f"{host.url}/v1") as watch,
        httpx2.AsyncClient(proxy=watch.url, verify=watch.context, timeout=WAIT_S) as client,
    ):
        passed = await client.get("https://api.openai.com/v1/models", headers=headers)
    assert (passed.status_code, len(host.calls)) == (status, int(status == 200))


@pytest.mark.parametrize(
    "request_line",
    [
        "GET http://example.com/ HTTP/1.1",
        "CONNECT example.com HTTP/1.1",
        "CONNECT a\x1b[1m:443 HTTP/1.1",
        "CONNECT 127.0.0.1:99999 HTTP/1.1",
        "",
    ],
)
async def test_what_is_no_connect_is_refused_in_words(request_line: str) -> None:
    """Plain HTTP to any address, and what no host is, gets 501; no such word comes to the summary."""
    async with run_https("api.openai.com", openai="http://127.0.0.1:1/v1") as watch:
        reader, writer = await asyncio.open_connection("127.0.0.1", watch.port)
        writer.write(f"{request_line}\r\nHost: example.com\r\n\r\n".encode())
        got = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
    assert got.startswith(b"HTTP/1.1 501 ")
    assert b"CONNECT alone" in got
    assert list(watch.counts.list_lines()) == []


@pytest.mark.parametrize("name", ["127.0.0.1:1", "[::1]:1", "a..b:1"])
async def test_a_host_that_cannot_be_reached_is_said_so(name: str) -> None:
    """The program gets 502, and the host is counted, with its port where that is not 443."""
    async with run_https("api.openai.com", openai="http://127.0.0.1:1/v1") as watch:
        reader, writer = await asyncio.open_connection("127.0.0.1", watch.port)
        writer.write(f"CONNECT {name} HTTP/1.1\r\n\r\n".encode())
        got = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
    assert got.startswith(b"HTTP/1.1 502 ")
    assert list(watch.counts.list_lines()) == [f"tunnelled, not seen: {name} 1"]


async def test_a_host_that_speaks_first_is_heard() -> None:
    """What a host sends at once, and its end, reach the program, however soon they come."""

    def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with run_https("api.openai.com", openai="http://127.0.0.1:1/v1") as watch, asyncio.timeout(WAIT_S):
        for _ in range(50):
            reader, writer = await asyncio.open_connection("127.0.0.1", watch.port)
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            assert (await reader.read()).partition(b"\r\n\r\n")[2] == b"hello"
            writer.close()
    server.close()


async def test_a_client_that_trusts_others_alone_is_named() -> None:
    """A program that does not take the certificate gets none of its requests through, and the summary says
    which host it was."""
    async with run_https("api.openai.com", openai="http://127.0.0.1:1/v1") as watch:
        async with httpx2.AsyncClient(proxy=watch.url, verify=ssl.create_default_context()) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get("https://api.openai.com/v1/models")
        async with asyncio.timeout(WAIT_S):
            while not watch.counts.distrusted:  # noqa: ASYNC110  nobody tells of it
                await asyncio.sleep(0.01)
    assert list(watch.counts.list_lines()) == [
        "no TLS, its client may not read SSL_CERT_FILE: api.openai.com 1"
    ]


def test_other_hosts_pass_unread(tmp_path: Path) -> None:
    """A host that is not named shows the program its own certificate; bytes pass both ways, and the summary
    names it although no exchange was seen."""
    with serve_secure("localhost", tmp_path, lambda data: data[::-1]) as host:
        words = (sys.executable, "-c", ECHO_PROGRAM, str(host.port), str(host.certificate))
        code, out, err = run_watch("--https", "api.openai.com", "--", *words, cwd=tmp_path)
    assert (code, out.decode()) == (0, host.certificate.read_text()), err
    assert "no exchange with a model host was seen" in err
    assert err.endswith(f"\n  tunnelled, not seen: localhost:{host.port} 3\n")


def test_the_operator_s_proxy_and_authorities_stay(tmp_path: Path) -> None:
    """Named hosts and others are asked by the proxy that the environment had, with its password, and what
    the program trusted before is trusted still."""
    answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "far"}}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    asked: list[bytes] = []

    def reply(data: bytes) -> bytes:
        asked.append(data)
        return head + b"Content-Length: %d\r\n\r\n" % len(answer) + answer

    program = """
import httpx2, sys
for url in sys.argv[1:]:
    print(httpx2.post(url, json={"model": "m", "messages": []}, timeout=50).json()["choices"][0]["message"])
"""
    with (
        serve_secure("api.example.com", tmp_path, reply) as named,
        serve_secure("other.example.com", tmp_path, reply) as other,
        serve_forward_proxy(
            {"api.example.com:443": named.port, "other.example.com:443": other.port}
        ) as forward,
    ):
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(named.certificate.read_text() + other.certificate.read_text())
        urls = ("https://api.example.com/x/v1/chat/completions", "https://other.example.com/y")
        environment = {
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), f"http://me:secret@127.0.0.1:{forward.port}"),
            "SSL_CERT_FILE": str(trusted),
            "NO_PROXY": "own.example",
        }
        words = ("--https", "api.example.com=openai", "--log", "log.db", "--")
        code, out, err = run_watch(*words, sys.executable, "-c", program, *urls, cwd=tmp_path, **environment)
    assert (code, out.decode().count("far")) == (0, 2), err
    assert [data.split(b" ")[1] for data in asked] == [b"/x/v1/chat/completions", b"/y"]
    assert b"\r\nhost: api.example.com\r\n" in asked[0].lower()
    assert [text.split()[1] for text in forward.heads] == ["api.example.com:443", "other.example.com:443"]
    assert all("proxy-authorization: basic bwu6c2vjcmv0" in text.lower() for text in forward.heads)
    assert "chat at https://api.example.com: 1" in err
    assert "tunnelled, not seen: other.example.com 1" in err
    assert "secret" not in err


ENDS = {"failing": "sys.exit(7)", "signal": "import time; time.sleep(60)"}


@pytest.mark.parametrize("end", ["normal", "failing", "not found", "signal"])
def test_nothing_is_left_of_an_authority(tmp_path: Path, end: str) -> None:
    """While the program runs its folder is nobody else's to read and holds no key; afterwards it is gone."""
    script = LISTING_PROGRAM + ENDS.get(end, "")
    words = ["no-such-command"] if end == "not found" else [sys.executable, "-c", script]
    extra, temporary = tmp_path / "extra.pem", tmp_path / "temporary"
    temporary.mkdir()
    extra.write_text("a certificate of before\n")
    environment = {"TMPDIR": str(temporary), "NODE_EXTRA_CA_CERTS": str(extra), "NO_PROXY": "own.example"}
    process = start_watch("--https", "api.openai.com", "--", *words, cwd=tmp_path, **environment)
    with ended(process):
        line = read_line(process.stdout) if end != "not found" else b"{}"
        if end == "signal":
            assert len(list_folders(temporary)) == 1
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_S)
    codes = {"normal": 0, "failing": 7, "not found": 127, "signal": 143}
    assert (process.returncode, out, list_folders(temporary)) == (codes[end], b"", [])
    assert b"PRIVATE" not in err
    if end == "not found":
        return
    seen = json.loads(line)
    assert (seen["mode"], seen["secret"]) == (0o700, [])
    variables = seen["environment"]
    assert variables["HTTPS_PROXY"] == variables["https_proxy"]
    assert variables["NO_PROXY"] == variables["no_proxy"] == "own.example,127.0.0.1,localhost"
    assert variables["NODE_USE_ENV_PROXY"] == "1"
    trusted = seen["trusted"]
    assert trusted["NODE_EXTRA_CA_CERTS"].startswith("a certificate of before\n")
    own = trusted["NODE_EXTRA_CA_CERTS"].partition("\n")[2].strip()
    assert own.count("BEGIN CERTIFICATE") == 1
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        assert trusted[name].rstrip().endswith(own)
        assert trusted[name].count("BEGIN CERTIFICATE") > 50


def test_a_killed_watch_leaves_no_key(tmp_path: Path) -> None:
    """After `kill -9` the folder is there and holds no secret, and the next watch makes its own."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ("--https", "api.openai.com", "--", sys.executable, "-c")
    script = LISTING_PROGRAM + "sys.stdin.read()"  # it ends with the test, not with the watch
    process = start_watch(*words, script, cwd=tmp_path, TMPDIR=str(temporary))
    with ended(process):
        left = Path(json.loads(read_line(process.stdout))["folder"])
        process.kill()
        process.communicate(timeout=WAIT_S)
    assert [path.name for path in temporary.iterdir()] == [left.name]
    assert all("PRIVATE" not in path.read_text() for path in left.iterdir())
    code, _, err = run_watch(*words, LISTING_PROGRAM, cwd=tmp_path, TMPDIR=str(temporary))
    assert code == 0, err
    assert list_folders(temporary) == [left.name]


def test_the_key_is_nobody_else_s_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The one file with a key has the mode 0600 in a folder of 0700, and is there only while `ssl` reads it;
    an error leaves nothing behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes: list[tuple[int, int]] = []
    load = ssl.SSLContext.load_cert_chain

    def note(self: ssl.SSLContext, path: Any) -> None:
        modes.append((path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777))
        assert "PRIVATE KEY" in path.read_text()
        load(self, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", note)

    def fail() -> None:
        with open_authority(["api.openai.com"], {}) as authority:
            (folder,) = tmp_path.iterdir()
            assert all("PRIVATE" not in path.read_text() for path in folder.iterdir())
            assert all(Path(value).parent == folder for value in authority.settings.values())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (modes, list(tmp_path.iterdir())) == ([(0o600, 0o700)], [])
    with pytest.raises(SpecError, match="SSL_CERT_FILE names"):
        open_authority(["a.b"], {"SSL_CERT_FILE": "no"}).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_all_that_was_trusted_is_trusted_still(tmp_path: Path) -> None:
    """Files and folders that the environment names, for each kind of client; the authority comes last."""
    for name in ("file", "curl", "node", "one/a", "two/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"trusts {name}")
    environment = {
        "SSL_CERT_FILE": str(tmp_path / "file"),
        "SSL_CERT_DIR": os.pathsep.join([str(tmp_path / "one"), "none", str(tmp_path / "two")]),
        "CURL_CA_BUNDLE": str(tmp_path / "curl"),
        "NODE_EXTRA_CA_CERTS": str(tmp_path / "node"),
    }
    with open_authority(["api.openai.com"], environment) as authority:
        texts = {name: Path(path).read_text() for name, path in authority.settings.items()}
    begun = {name: text.partition("-----BEGIN")[0].split("\n") for name, text in texts.items()}
    assert begun == {
        "SSL_CERT_FILE": ["trusts file", "trusts one/a", "trusts two/b", ""],
        "REQUESTS_CA_BUNDLE": ["trusts curl", ""],
        "CURL_CA_BUNDLE": ["trusts curl", ""],
        "NODE_EXTRA_CA_CERTS": ["trusts node", ""],
    }
    with open_authority(["api.openai.com"], {"REQUESTS_CA_BUNDLE": str(tmp_path / "one")}) as authority:
        assert Path(authority.settings["REQUESTS_CA_BUNDLE"]).read_text().startswith("trusts one/a\n-----")
        assert "CURL_CA_BUNDLE" not in authority.settings


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [("api.openai.com", True), ("example.com", False), ("openai.com", False), ("127.0.0.1", False)],
)
def test_the_authority_counts_for_its_names_alone(tmp_path: Path, name: str, is_taken: bool) -> None:
    """Even who had its key could make no certificate for another name, or an address, that is taken."""
    key, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = build_authority(["api.openai.com", "api.anthropic.com"], key)
    leaf = build_leaf([name], own.public_key(), authority, key)
    pem = serialization.Encoding.PEM
    form = (pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "leaf.pem").write_bytes(own.private_bytes(*form) + leaf.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "leaf.pem")
    client = ssl.create_default_context(cadata=authority.public_bytes(pem).decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.check_hostname = False  # so that the name constraints alone decide
    if is_taken:
        shake_hands(client, server, name)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
            shake_hands(client, server, name)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let a client and a server meet in memory.

    Raises:
        ssl.SSLError: the client refuses.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    ends[0].do_handshake()


def test_rules_are_enforced_inside_too(tmp_path: Path) -> None:
    """A call that the agent refuses does not reach a program that is seen by --https."""
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(make_spec(describe_tool("look_up"))))
    address = OFFICIAL["openai"]
    for options, seen in [((), b"['book']"), (("--chart", "agent.yaml", "--enforce"), b"[]")]:
        with emulate_host("openai") as host:
            words = ("--https", "api.openai.com", "--openai", host.base_url, *options, "--")
            program = (sys.executable, "-c", CHAT_PROGRAM, address, "book it")
            code, out, err = run_watch(*words, *program, cwd=tmp_path)
        assert (code, out[: len(seen)]) == (0, seen), err
    assert "refused: book 1" in err


def test_a_proxy_alone_prints_the_variables(tmp_path: Path) -> None:
    """With --port and no command, what leads programs to named hosts is printed too, and leads there."""
    with emulate_host("openai") as host:
        words = ("--port", "0", "--https", "api.openai.com", "--openai", host.base_url)
        process = start_watch(*words, cwd=tmp_path, TMPDIR=str(tmp_path))
        with ended(process):
            address = re.findall(r"http://127\.0\.0\.1:\d+", read_line(process.stderr).decode())[0]
            settings: dict[str, str] = {}
            while "NODE_USE_ENV_PROXY" not in settings:
                line = read_line(process.stderr).decode().strip()
                name, _, value = line.removeprefix("export ").partition("=")
                settings[name] = value
            assert settings.items() >= list_settings(address).items()
            done = subprocess.run(
                [sys.executable, "-c", CHAT_PROGRAM, OFFICIAL["openai"], "hello"],
                env={**make_environment(), **settings},
                capture_output=True,
                timeout=WAIT_S,
            )
            assert done.returncode == 0, done.stderr.decode()
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert err.decode().startswith(f"toolchart: 1 exchange with model hosts\n  chat at {host.base_url}: 1\n")
    assert list_folders(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["api.example.com"], "which API api.example.com speaks"),
        (["api.example.com=mistral"], "'mistral' is no provider"),
        (["https://api.openai.com"], "'https://api.openai.com' is no name of a host"),
        (["api.openai.com:443"], "is no name of a host"),
        (["api.openai.com/v1"], "is no name of a host"),
        (["*.example.com=openai"], "is no name of a host"),
        (["127.0.0.1=openai"], "is no name of a host"),
        ([""], "is no name of a host"),
        (["api.openai.com=gemini"], "speaks one API alone: openai, not gemini"),
        (["a.example=openai", "a.example=gemini"], "speaks one API alone: openai, not gemini"),
    ],
)
def test_hosts_that_cannot_be_seen_are_refused(words: list[str], text: str) -> None:
    """What is no host, or a host whose API is not known, is said with what to write."""
    with pytest.raises(SpecError) as caught:
        read_named_hosts(words)
    assert text in str(caught.value)


def test_names_are_those_of_hosts() -> None:
    """Providers are known for their own hosts, and said for others; letters are small."""
    assert read_named_hosts(["API.OpenAI.com", "api.example.com=anthropic", "api.openai.com=openai"]) == {
        "api.openai.com": NamedHost("openai", True),
        "api.example.com": NamedHost("anthropic", False),
    }


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "https://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_asked_is_refused(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """What is not named could not be passed on through it."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(SpecError, match="which --https cannot use"):
        check_own_proxy()


def test_mistakes_are_said_before_anything_runs(tmp_path: Path) -> None:
    """Exit code 2, in words, without a traceback, and nothing is run or left."""
    mark = tmp_path / "ran"
    for value, environment, text in [
        ("api.example.com", {}, "--https api.example.com=PROVIDER"),
        ("https://api.openai.com", {}, "is no name of a host"),
        ("api.openai.com", {"HTTPS_PROXY": "socks5://127.0.0.1:1"}, "which --https cannot use"),
        ("api.openai.com", {"SSL_CERT_FILE": str(tmp_path / "none")}, "which cannot be read"),
    ]:
        code, out, err = run_watch(
            "--https", value, "--", "touch", str(mark), cwd=tmp_path, TMPDIR=str(tmp_path), **environment
        )
        assert (code, out) == (2, b""), err
        assert text in err
        assert "Traceback" not in err
    assert not mark.exists()
    assert list_folders(tmp_path) == []
