"""AWS's side of a call: signatures (SigV4) checked and event streams written, as its documents say.

Nothing here uses botocore, which is what the product signs and reads with.

Sources: docs.aws.amazon.com, IAM User Guide, Create a signed AWS API request; Amazon Transcribe Developer
Guide, Event stream encoding.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import struct
import zlib
from typing import Any
from urllib.parse import parse_qsl, quote


def check_signature(request: dict[str, Any], secret_key: str) -> dict[str, str]:
    """Sign a request that a server got, by the document, and compare.

    Args:
        request: `method`, `path` with its query, `headers` and `body`.

    Returns:
        The parts of its scope: `access_key`, `date`, `region`, `service`.

    Raises:
        AssertionError: the request is not signed, or by another key, or was changed.
    """
    headers = {name.lower(): " ".join(value.split()) for name, value in request["headers"].items()}
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/(\w+)/aws4_request, "
        r"SignedHeaders=([\w;-]+), Signature=([0-9a-f]{64})",
        headers.get("authorization", ""),
    )
    assert found, headers.get("authorization")
    access_key, date, region, service, names, signature = found.groups()
    assert {"host", "x-amz-date"} <= set(names.split(";"))
    path, _, query = request["path"].partition("?")
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(query))
    canonical_request = "\n".join(
        [
            request["method"],
            quote(path, safe="/-_.~"),  # the path on the wire, quoted once more
            "&".join(f"{key}={value}" for key, value in pairs),
            *(f"{name}:{headers[name]}" for name in names.split(";")),
            "",
            names,
            hashlib.sha256(request["body"]).hexdigest(),
        ]
    )
    scope = f"{date}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical_request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request", text):
        key = hmac.digest(key, part.encode(), "sha256")
    assert key.hex() == signature
    return {"access_key": access_key, "date": date, "region": region, "service": service}


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of an event stream: lengths, their checksum, headers, payload, checksum of all."""
    head = b"".join(_encode_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", len(head) + len(payload) + 16, len(head))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _encode_header(name: str, value: str) -> bytes:
    """A header of the type 7, a text."""
    data = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(data)) + data


def encode_event(name: str, value: Any, kind: str = "event") -> bytes:
    """An event, or an exception, with JSON as its payload."""
    headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return encode_frame(headers, json.dumps(value).encode())


def encode_events(events: list[dict[str, Any]]) -> bytes:
    """A stream of events, each a mapping with one name."""
    return b"".join(encode_event(name, value) for event in events for name, value in event.items())
