# read_encrypted.py
#   Read encrypted trail files by what src/trail/layer.h says of them, with
#   another library's AES and HKDF.
#
#   read_encrypted.py KEYS FILE: writes what is in the blocks, one behind the
#   other, to standard output, and to standard error a line for each segment:
#   its salt, and the number of its blocks.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def derive(key, length, salt, info):
    return HKDF(SHA256(), length, salt, info).derive(key)


def find_key(path, wanted):
    with open(path, encoding="ascii") as file:
        for line in file:
            key = bytes.fromhex(line.strip())
            if derive(key, 8, b"", b"pg_audit_queue key id") == wanted:
                return key
    raise ValueError(f"no key {wanted.hex()}")


def main(keys, path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"PAQTRAIL" and data[8] == 1
    length = {1: 16, 2: 32}[data[9]]
    name_len = int.from_bytes(data[10:12], "little")
    header = data[:52 + name_len]
    name = header[52:]
    assert name == os.path.basename(path).encode()
    key = find_key(keys, header[12:20])
    assert len(key) == length
    file_key = derive(key, length, header[20:52],
                      b"pg_audit_queue file\0" + bytes([data[9]]) + name)
    pos, tag, cipher, blocks = len(header), bytes(16), None, []
    while pos < len(data):
        if data[pos:pos + 4] == b"PAQS":
            salt = data[pos + 4:pos + 20]
            cipher = AESGCM(derive(file_key, length, salt, b"pg_audit_queue segment"))
            sent = data[pos + 20:pos + 36]
            cipher.decrypt(bytes(12), sent, data[pos:pos + 20] + header + tag)
            tag, pos = sent, pos + 36
            blocks.append([salt.hex(), 0])
            continue
        assert data[pos:pos + 4] == b"PAQB"
        size = int.from_bytes(data[pos + 4:pos + 8], "little")
        blocks[-1][1] += 1
        sealed = data[pos + 8:pos + 8 + size + 16]
        sys.stdout.buffer.write(
            cipher.decrypt(blocks[-1][1].to_bytes(12, "big"), sealed, data[pos:pos + 8]))
        tag, pos = sealed[-16:], pos + 8 + size + 16
    for salt, count in blocks:
        print(salt, count, file=sys.stderr)


main(*sys.argv[1:])
