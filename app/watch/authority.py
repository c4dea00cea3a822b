"""Makes the certificates with which named hosts are seen, and the variables by which a program trusts them.

The key of the authority signs one certificate, for the named hosts, and is then forgotten: it is in no file,
and nothing can be signed with it afterwards. The key of that certificate is in a file of mode 0600 only while
`ssl` reads it. What stays in the folder until the end holds no secret: certificates, and lists of them. After
`kill -9` the folder stays; the next watch makes its own and does not care.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from toolchart.states.errors import SpecError

_VALID = timedelta(days=1)

_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
"""What a key can be allowed to be used for. Source: RFC 5280, 4.2.1.3."""

_SYSTEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)
"""Where systems keep the authorities that they trust, if not where OpenSSL looks."""

_BUNDLES = {
    "SSL_CERT_FILE": ("SSL_CERT_FILE",),
    "REQUESTS_CA_BUNDLE": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}
"""Variables that name all that is trusted, and which ones clients read for it so far."""

_ADDED = ("NODE_EXTRA_CA_CERTS",)
"""Variables that name what is trusted beside that."""


class Authority(NamedTuple):
    """What an authority has made."""

    context: ssl.SSLContext
    """Serves as each of the named hosts, with HTTP/1.1."""
    settings: dict[str, str]
    """The variables by which a program trusts these certificates too."""


@contextmanager
def open_authority(names: Collection[str], environment: Mapping[str, str]) -> Iterator[Authority]:
    """An authority for these hosts and no others; its folder is gone after the block.

    Args:
        environment: that of the program, where it may trust authorities of its own already.

    Raises:
        SpecError: a file that the environment names cannot be read, or the folder cannot be written.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="toolchart-watch-"))  # of mode 0700
    except OSError as error:
        raise SpecError(f"the certificates of --https cannot be written: {error}") from None
    try:
        key, signed = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        certificate = build_authority(names, key)
        leaf = build_leaf(names, signed.public_key(), certificate, key)
        del key
        context = _load(folder / "host.pem", leaf, signed)
        yield Authority(context, _write_bundles(folder, _encode(certificate), environment))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_authority(names: Collection[str], key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """The certificate of an authority whose signature counts for these DNS names alone, and no address."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "toolchart watch, of this run alone")])
    permitted = [x509.DNSName(each) for each in names]
    excluded = [x509.IPAddress(ip_network(each)) for each in ("0.0.0.0/0", "::/0")]
    usage = dict.fromkeys(_USES, False) | {"key_cert_sign": True}
    return (
        _begin(name, name, key.public_key(), key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.NameConstraints(permitted, excluded), critical=True)
        .sign(key, hashes.SHA256())
    )


def build_leaf(
    names: Collection[str],
    public_key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate for hosts, signed with the key of an authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "toolchart watch")])
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        _begin(subject, authority.subject, public_key, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(server, critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _load(path: Path, leaf: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    """The context of a server with this certificate. `ssl` reads keys from files alone."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(*form) + _encode(leaf))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(path)
    path.unlink()
    return context


def _encode(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_bundles(folder: Path, own: bytes, environment: Mapping[str, str]) -> dict[str, str]:
    """Write what is trusted into files, and give the variables that name them."""
    settings: dict[str, str] = {}
    folders = [part for part in environment.get("SSL_CERT_DIR", "").split(os.pathsep) if os.path.isdir(part)]
    for variable, sources in {**_BUNDLES, **{name: (name,) for name in _ADDED}}.items():
        source = next((name for name in sources if environment.get(name)), None)
        default = b"" if variable in _ADDED else _read_defaults()
        path = folder / f"{variable.lower()}.pem"
        parts = [_read(source, environment[source]) if source else default]
        if variable == "SSL_CERT_FILE":  # some clients read the folders only where there is no such file
            parts += [_read("SSL_CERT_DIR", each) for each in folders]
        path.write_bytes(b"\n".join([*parts, own]))
        settings[variable] = str(path)
    if environment.get("CURL_CA_BUNDLE"):  # else curl reads the first one
        settings["CURL_CA_BUNDLE"] = settings["REQUESTS_CA_BUNDLE"]
    return settings


def _read(variable: str, name: str) -> bytes:
    path = Path(name)
    try:  # `requests` takes a folder too
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        return b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise SpecError(f"{variable} names {name}, which cannot be read: {error.strerror}") from None


def _read_defaults() -> bytes:
    """What programs of this machine trust: authorities of the system, and of the package certifi."""
    files = [ssl.get_default_verify_paths().openssl_cafile, *_SYSTEM_FILES]
    parts = [Path(file).read_bytes() for file in files if os.path.isfile(file)][:1]
    try:
        import certifi
    except ImportError:
        pass
    else:
        parts.append(Path(certifi.where()).read_bytes())
    return b"\n".join(parts)
