"""Removes what no process loads, such as debug symbols, from extension modules: ``strip.py DIR``.

The base image has no binutils.
"""  # noqa: INP001 -- a script beside manifests, no package

from __future__ import annotations

import struct
import sys
from pathlib import Path

for path in Path(sys.argv[1]).rglob("*.so"):
    file = bytearray(path.read_bytes())
    if file[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        continue
    (table,) = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    segments = [
        struct.unpack_from("<IIQQQQ", file, table + size * number) for number in range(count)
    ]
    end = max(offset + length for _, _, offset, _, _, length in segments)
    # Sections are for linkers and debuggers, segments for loaders.
    struct.pack_into("<Q", file, 40, 0)
    struct.pack_into("<HH", file, 60, 0, 0)
    path.write_bytes(file[:end])
