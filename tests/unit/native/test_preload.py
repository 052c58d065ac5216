"""Libraries are opened before they are imported, by a thread that needs nothing of Python."""

import subprocess
import sys

from kafkacore._fast.preload import Preload

# In a process of its own: this one has imported them long since.
OPENS = """
import sys
from kafkacore.tools import ahead

def mapped(name):
    with open("/proc/self/maps") as maps:
        return f"/_fast/{name}." in maps.read()

assert not mapped("plane")
libraries = ahead.open_libraries()
libraries.wait()
libraries.wait()
assert mapped("plane") and mapped("log"), "they were not opened"
assert not mapped("simnet"), "what only tests load was opened"
assert "kafkacore._fast.plane" not in sys.modules
import kafkacore._fast.plane
"""


def test_a_start_finds_its_libraries_open():
    done = subprocess.run([sys.executable, "-c", OPENS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_opened_is_passed_over(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    for paths in ([], [str(tmp_path / "nowhere.so"), str(broken)]):
        Preload(paths).wait()
        Preload(paths)  # and its end is waited for when nobody does
