"""What a server frees is its machine's again, not its C library's."""

import subprocess
import sys

import pytest

# Blocks too small to be mapped one by one; one after them in the heap keeps it from shrinking.
PROGRAM = """
import ctypes
import os
from tfps.cluster import resources


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
blocks = [library.malloc(10_000) for _ in range(10_000)]
for block in blocks:
    ctypes.memset(block, 1, 10_000)
for block in blocks[:-1]:
    library.free(block)
before = resident()
print(resources.trim_memory(), before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other C libraries give it back")
def test_what_is_freed_between_pieces_in_use_is_given_back() -> None:
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    done, given_back = program.stdout.split()
    assert done == "True"
    assert int(given_back) > 80e6  # of 100e6
