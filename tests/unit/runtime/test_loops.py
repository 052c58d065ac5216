"""Event loops on separate threads. A process can end while such a loop still runs."""

from __future__ import annotations

import subprocess
import sys

# The C function on_exit registers a function that runs after the interpreter has ended. That function waits for a
# second, and the loop's timer is due within this second.
PROGRAM = """
import asyncio, atexit, ctypes, sys
def too_late():
    try:
        left_open.run(later())
    except RuntimeError as error:
        print(error)
    left_open.stop()
atexit.register(too_late)  # registered before the loop's handler, so it runs after that handler
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
    told = "loop left-open has ended with the process: close everything that uses the loop before the process ends"
    assert (done.returncode, done.stdout.strip(), done.stderr) == (1, told, "")
