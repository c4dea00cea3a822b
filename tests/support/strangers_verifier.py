"""A verifier that a stranger could write from `docs/log-format.md`, with the standard library alone.

    python strangers_verifier.py FILE

FILE is what `toolchart export --format jsonl` wrote. What is wrong raises `ValueError`.
"""

import base64
import hashlib
import json
import sys

P = 2**255 - 19  # Ed25519, RFC 8032, section 5.1
D = -121665 * pow(121666, -1, P) % P


def sha256(data):
    return hashlib.sha256(data).digest()


def require(condition, problem):
    if not condition:
        raise ValueError(problem)


def check_records(lines):
    """The chain of one conversation."""
    prev = "0" * 64
    for seq, line in enumerate(lines):
        record, rest, tail = json.loads(line), line[:-75], line[-75:]
        expected = b',"hash":"%b"}' % sha256(rest + b"}").hex().encode()
        require(tail == expected, f"record {seq} was changed")
        require((record["seq"], record["prev"]) == (seq, prev), f"record {seq} does not follow")
        prev = record["hash"]
    require(lines, "no records")


def add(a, b):
    """Two points (x, y) of the curve."""
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + product, -1, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P) % P


def multiply(number, point):
    half = multiply(number // 2, add(point, point)) if number > 1 else (0, 1)
    return add(half, point) if number & 1 else half


def decode_point(data):
    y, sign = int.from_bytes(data, "little") & ((1 << 255) - 1), data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    roots = [x for x in (root, root * pow(2, (P - 1) // 4, P) % P) if (x * x - square) % P == 0]
    require(roots, "no point of the curve")
    return (P - roots[0] if roots[0] & 1 != sign else roots[0]), y


def is_signed(key, signature, data):
    number = int.from_bytes(hashlib.sha512(signature[:32] + key + data).digest(), "little")
    right = add(decode_point(signature[:32]), multiply(number, decode_point(key)))
    return multiply(int.from_bytes(signature[32:], "little"), decode_point(b"\x58" + b"\x66" * 31)) == right


def encode(value):
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def check_decision(lines, seq, conversation, key):
    """The signature of the decision in record `seq` of a conversation, by `docs/approvals.md`."""
    records = [json.loads(line) for line in lines]
    event = records[seq]["event"]
    signature, definition, public = event["signature"], event.get("definition"), base64.b64decode(key[8:])
    asked = [one for one in records if any(ask["id"] == event["effect"] for ask in one.get("asks", []))]
    replies = [one["event"]["reply"] for one in records[:seq] if one["event"]["type"] == "replied"]
    ids = next(one["calls"] for one in reversed(records[:seq]) if one.get("calls"))
    call = replies[-1]["tool_calls"][ids.index(event["call_id"])]
    require(asked and asked[-1]["hash"] == signature["asked"], "another question")
    arguments = event.get("arguments", call["arguments"])
    require(sha256(encode(arguments)).hex() == signature["arguments"], "other arguments")
    require(event.get("shown_digest", "") == signature["shown"], "another text")
    names = ("asked", "arguments", "at", "shown")
    statement = {
        **{name: signature[name] for name in names},
        "approved": event["approved"],
        "approver": event["by"],
        "call": event["call_id"],
        "conversation": conversation,
        "definition": sha256(encode(definition)).hex()[:32] if definition is not None else "",
        "effect": event["effect"],
        "expires_at": signature.get("expires_at", ""),
        "tool": call["name"],
    }
    value = base64.b64decode(signature["value"])
    require(is_signed(public, value, b"toolchart decision 3\n" + encode(statement)), "the signature is wrong")


def check_seal(line, logs, key=None):
    """A seal: it is signed with the key of the operator, or nobody wants it signed; each log has its head."""
    head, _, tail = line.strip().rpartition(b',"signature":"')
    body, signature = head + b"}", base64.b64decode(tail[:-2], validate=True)
    seal = json.loads(body)
    if key:
        public = base64.b64decode(key.removeprefix("ed25519:"))
        require(seal.get("key") == "ed25519:" + sha256(public).hex()[:16], "another key")
        require(is_signed(public, signature, b"toolchart seal\n" + body), "the signature is wrong")
    for name, count, newest in seal["heads"]:
        lines = logs.get(name, [])
        is_there = len(lines) >= count and json.loads(lines[count - 1])["hash"] == newest
        require(is_there, f"{name} is not what was sealed")


def check_file(path):
    """A file of conversations, each behind a line with its number of records and its newest hash."""
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    require(lines, "no conversation")
    while lines:
        heading = json.loads(lines[0])
        records, lines = lines[1 : heading["records"] + 1], lines[heading["records"] + 1 :]
        check_records(records)
        newest = len(records), json.loads(records[-1])["hash"]
        require(newest == (heading["records"], heading["head"]), "records are missing")


if __name__ == "__main__":
    check_file(sys.argv[1])
    print("ok")
