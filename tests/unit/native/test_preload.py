"""Libraries are opened before they are imported, by a thread that needs nothing of Python."""

import os
import platform
import subprocess
import sys

import pytest

from kafkacore._fast.base.preload import Preload

# In a process of its own: this one has imported them long since.
OPENS = """
import sys
from kafkacore.tools import ahead

def mapped(name):
    with open("/proc/self/maps") as maps:
        return f"/_fast/{name}." in maps.read()

assert not mapped("plane/plane")
libraries = ahead.open_libraries()
libraries.wait()
libraries.wait()
assert mapped("plane/plane") and mapped("log/log"), "they were not opened"
assert not mapped("world/simulated_network"), "what only tests load was opened"
assert "kafkacore._fast.plane.plane" not in sys.modules
import kafkacore._fast.plane.plane
"""


# Objects of many sizes, more than there is room for where memory was touched; then they go, and their arenas with them.
ALLOCATES = """
import gc, resource, sys
from kafkacore._fast.base.preload import Preload

MIB = 1 << 20
Preload([], 8 * MIB).wait()
Preload([], 8 * MIB).wait()  # the first one counts

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def filled(size_bytes):
    return [bytes(200 + number % 200) for number in range(size_bytes // 300)]

filled(2 * MIB)
before = faults()
first = filled(6 * MIB)
took = faults() - before
more = filled(30 * MIB)
assert sum(map(len, first)) > 5 * MIB and not any(map(any, more))
del first, more
gc.collect()
again = filled(30 * MIB)
print(took)
"""


def test_objects_lie_where_memory_was_touched_before():
    """Of 1,500 pages few are new, but for those of lists and of what else is no small object."""
    release = tuple(map(int, platform.release().split(".")[:2]))
    if release < (5, 14):
        pytest.skip(f"Linux {platform.release()} touches no memory when it is asked to (MADV_POPULATE_WRITE, 5.14)")
    if "PYTHONMALLOC" in os.environ:
        pytest.skip("PYTHONMALLOC is set: its allocator has no arenas")
    done = subprocess.run([sys.executable, "-c", ALLOCATES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500


def test_a_start_finds_its_libraries_open():
    done = subprocess.run([sys.executable, "-c", OPENS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_opened_is_passed_over(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    for paths in ([], [str(tmp_path / "nowhere.so"), str(broken)]):
        Preload(paths).wait()
        Preload(paths)  # and its end is waited for when nobody does
