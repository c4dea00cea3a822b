"""Benchmark of encryption: what it costs for each record, beside bare AES-GCM and beside a plain append.

    python benchmarks/secrecy.py [--records 2000]

In one run, as medians of five rounds, in microseconds of processor time: to encrypt and to decrypt a record
of a tool loop; the floor, one AES-GCM call with a fixed key over the same bytes; an append at `normal` to
SQLite, plain and encrypted; the salt that each record has for erasing; and the bytes of both files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_urlsafe

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from log import record_turn

from toolchart.engine.log.secrecy.envelopes import decrypt, encrypt_record
from toolchart.engine.log.secrecy.keys import LogKeys
from toolchart.engine.log.stores import open_store

ROUNDS = 5
KEYS = LogKeys([os.urandom(32)])


def measure_us(work: Callable[[int, bytes], object], lines: Sequence[bytes]) -> float:
    """The median of microseconds for one line."""
    rounds = []
    for _ in range(ROUNDS):
        start_s = time.process_time()
        for seq, line in enumerate(lines):
            work(seq, line)
        rounds.append((time.process_time() - start_s) / len(lines) * 1e6)
    return statistics.median(rounds)


def measure_append(lines: Sequence[bytes], keys: LogKeys | None) -> tuple[float, int]:
    """Median of microseconds of an append, and bytes of the file."""
    rounds, size = [], 0
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.db"
            store = open_store(path, durable=False, keys=keys or False)
            start_s = time.process_time()
            for seq, line in enumerate(lines):
                store.append("c", seq, [line])
            rounds.append((time.process_time() - start_s) / len(lines) * 1e6)
            store.close()
            size = path.stat().st_size
    return statistics.median(rounds), size


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2000)
    lines = record_turn(parser.parse_args().records // 4)[1:]
    envelopes = [encrypt_record(KEYS, "c", seq, line) for seq, line in enumerate(lines)]
    cipher, nonce = AESGCM(os.urandom(32)), os.urandom(12)
    floor = measure_us(lambda seq, line: cipher.encrypt(nonce, line, None), lines)
    encrypting = measure_us(lambda seq, line: encrypt_record(KEYS, "c", seq, line), lines)
    decrypting = measure_us(lambda seq, line: decrypt(KEYS, "record", "c", seq, line), envelopes)
    plain, plain_bytes = measure_append(lines, None)
    encrypted, encrypted_bytes = measure_append(lines, KEYS)
    print(f"{len(lines)} records of {statistics.mean(map(len, lines)):.0f} bytes")
    print(f"bare AES-GCM          {floor:7.1f} us a record (floor)")
    print(f"encrypt               {encrypting:7.1f} us, {encrypting / floor:.1f} times the floor")
    print(f"decrypt               {decrypting:7.1f} us, {decrypting / floor:.1f} times the floor")
    print(f"salt of a record      {measure_us(lambda seq, line: token_urlsafe(16), lines):7.1f} us")
    print(f"append, plain         {plain:7.1f} us, {plain_bytes / len(lines):.0f} bytes a record in the file")
    size, ratio = encrypted_bytes / len(lines), encrypted / plain
    print(f"append, encrypted     {encrypted:7.1f} us, {size:.0f} bytes, {ratio:.2f} times plain")


if __name__ == "__main__":
    main()
