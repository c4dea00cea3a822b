"""A real nginx that ends TLS before a server, on free ports of loopback."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def find_program() -> str:
    """The path of nginx; the test is skipped where it is not installed."""
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    return program


def write_certificate(name: str, certificate: Path, key: Path) -> None:
    """Write a certificate for a name, signed by itself, and its private key."""
    private_key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(private_key.private_bytes(serialization.Encoding.PEM, form, encryption))


class Proxy:
    """An nginx with one `server` block.

    Args:
        block: the text of the block, as an operator writes it.
        folder: for its files.
    """

    def __init__(self, block: str, folder: Path) -> None:
        self._program, self._folder = find_program(), folder
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "error.log"
        # Places that an installation has by default, and that only root may write to.
        about = subprocess.run([self._program, "-V"], capture_output=True, text=True, check=True).stderr
        optional = [name for name in ("fastcgi", "uwsgi", "scgi") if f"--without-http_{name}" not in about]
        places = [f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", *optional)]
        self._settings = folder / "nginx.conf"
        self._settings.write_text(
            f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {self.log};\n"
            f"events {{}}\nhttp {{ access_log off; {' '.join(places)}\n{block}\n}}\n"
        )

    def check(self) -> str:
        """What `nginx -t` says about the settings; an error where they are wrong."""
        words = [self._program, "-e", str(self.log), "-t", "-c", str(self._settings)]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        return checked.stderr

    def start(self, port: int) -> None:
        """Start, and return when it listens."""
        words = [self._program, "-e", str(self.log), "-c", str(self._settings)]
        self._process = subprocess.Popen(words)
        until = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                return
            assert time.monotonic() < until, "nginx does not listen"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once, with all its connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
