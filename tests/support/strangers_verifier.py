"""A verifier that a stranger could write from `docs/log-format.md`, with the standard library alone.

python strangers_verifier.py FILE... [--key ed25519:BASE64 | --secret TEXT]

Each file is an export of records, a seal journal, or evidence. Raises `ValueError` for what is wrong.
"""

import base64
import hashlib
import hmac
import json
import sys


def sha256(data):
    return hashlib.sha256(data).digest()


def require(condition, problem):
    if not condition:
        raise ValueError(problem)


def check_records(lines):
    """The chain of one conversation; its number of records and its head."""
    prev = "0" * 64
    for seq, line in enumerate(lines):
        body, tail = line[:-75], line[-75:]
        record = json.loads(line)
        require(tail == b',"hash":"%b"}' % sha256(body + b"}").hex().encode(), f"record {seq} was changed")
        require((record["seq"], record["prev"]) == (seq, prev), f"record {seq} does not follow")
        prev = record["hash"]
    require(lines, "no records")
    return len(lines), prev


def encode_leaf(conversation, records, head):
    return json.dumps([conversation, records, head], separators=(",", ":")).encode()


def compute_root(leaves):
    """RFC 9162, section 2.1.1."""
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0])
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + compute_root(leaves[:split]) + compute_root(leaves[split:]))


def compute_root_from_proof(leaf, index, size, proof):
    """RFC 9162, section 2.1.3.2."""
    node, last = sha256(b"\0" + leaf), size - 1
    for neighbour in proof:
        require(last, "the proof is too long")
        if index & 1 or index == last:
            node = sha256(b"\1" + neighbour + node)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            node = sha256(b"\1" + node + neighbour)
        index, last = index >> 1, last >> 1
    require(not last, "the proof is too short")
    return node


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def add(a, b):
    """Two points of the curve of Ed25519 (x, y); RFC 8032, section 5.1.4."""
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + product, -1, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P) % P


def multiply(number, point):
    result = (0, 1)
    while number:
        if number & 1:
            result = add(result, point)
        point, number = add(point, point), number >> 1
    return result


def decode_point(data):
    y, sign = int.from_bytes(data, "little") & ((1 << 255) - 1), data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    require((x * x - square) % P == 0, "no point of the curve")
    return (P - x if x & 1 != sign else x), y


def verify_ed25519(key, signature, data):
    base = decode_point(bytes([0x58]) + b"\x66" * 31)
    number = int.from_bytes(hashlib.sha512(signature[:32] + key + data).digest(), "little")
    right = add(decode_point(signature[:32]), multiply(number, decode_point(key)))
    return multiply(int.from_bytes(signature[32:], "little"), base) == right


def check_signature(line, entry, key, secret):
    """An entry is signed with the key of the operator, or nobody wants it signed."""
    data = b"toolchart seal\n" + line[: line.rfind(b',"signature":"')] + b"}"
    signature = base64.b64decode(entry["signature"])
    if key is not None:
        public = base64.b64decode(key.removeprefix("ed25519:"))
        require(entry.get("key") == "ed25519:" + sha256(public).hex()[:16], "another key")
        require(verify_ed25519(public, signature, data), "the signature is wrong")
    elif secret is not None:
        require(hmac.digest(secret, data, "sha256") == signature, "the signature is wrong")
    else:
        require(not entry.get("key"), "the key is missing")


def check_journal(lines, key=None, secret=None):
    """Chain, roots and signatures of a seal journal; the newest leaf of each conversation."""
    previous, leaves = "0" * 64, {}
    for line in lines:
        entry = json.loads(line)
        require(entry["previous"] == previous, "an entry is missing")
        check_signature(line, entry, key, secret)
        leaves.update({leaf[0]: leaf for leaf in entry["leaves"]})
        root = compute_root(sorted(encode_leaf(*leaf) for leaf in leaves.values()))
        require((entry["size"], entry["root"]) == (len(leaves), root.hex()), "the root is wrong")
        previous = sha256(line).hex()
    require(lines, "no seal")
    return leaves


def check_evidence(evidence, key=None, secret=None):
    """The chains of all conversations, and the proof that the seal covers the one in question."""
    for lines in evidence["conversations"].values():
        check_records([line.encode() for line in lines])
    seal = evidence["seal"]
    if seal is None:
        return
    entry = json.loads(seal["entry"])
    check_signature(seal["entry"].encode(), entry, key, secret)
    names = [leaf["leaf"][0] for leaf in seal["leaves"]]
    require(evidence["conversation"] in names, "the seal does not cover it")
    for leaf in seal["leaves"]:
        name, count, head = leaf["leaf"]
        sealed_line = evidence["conversations"][name][count - 1]
        require(json.loads(sealed_line)["hash"] == head, f"{name} is not what was sealed")
        nodes = [bytes.fromhex(node) for node in leaf["proof"]]
        root = compute_root_from_proof(encode_leaf(name, count, head), leaf["index"], entry["size"], nodes)
        require(root.hex() == entry["root"], f"the seal does not cover {name}")


def check_file(path, key=None, secret=None):
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(b'{"seal"'):
        check_journal(data.splitlines(), key, secret)
    elif data.startswith(b'{"seq"') or b'"prev":' in data[-400:]:
        check_records(data.splitlines())
    else:
        check_evidence(json.loads(data), key, secret)


if __name__ == "__main__":
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    secret = options["--secret"].encode() if "--secret" in options else None
    paths = [
        word
        for word in sys.argv[1:]
        if not word.startswith("--") and word not in (options.get("--key"), options.get("--secret"))
    ]
    for path in paths:
        check_file(path, options.get("--key"), secret)
        print(path, "ok")
