"""Event loops on threads of their own: the end of a process with a loop that still runs."""

from __future__ import annotations

import subprocess
import sys

# A function registered with C's on_exit runs after the interpreter is gone: a second in which the loop's timer is due.
PROGRAM = """
import asyncio, atexit, ctypes, sys
def too_late():
    try:
        left_open.run(later())
    except RuntimeError as error:
        print(error)
    left_open.stop()
atexit.register(too_late)  # before the loop's own, and so run after it
from kafkacore.runtime.loops import LoopThread

async def later():
    asyncio.get_running_loop().call_later(0.5, print, "called")

left_open = LoopThread("left-open")
left_open.run(later())
libc = ctypes.CDLL(None)
libc.on_exit(libc.sleep, None)
sys.exit(1)
"""


def test_process_ends_without_a_crash_while_a_loop_runs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30)
    told = "loop left-open has ended with the process: close what uses it before that"
    assert (done.returncode, done.stdout.strip(), done.stderr) == (1, told, "")
