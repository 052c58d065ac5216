"""Real processes for tests: log files that remain after a failure, and waits with a time limit."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".peers"
POLL_S = 0.02
# Builds with assertions and sanitizers are slower (ci/sanitize.sh). This factor extends the time limits of waits.
PATIENCE = float(os.environ.get("KAFKACORE_PATIENCE", "1"))


def wait_until(condition, timeout_s=30.0, what="the condition", seen=None):
    """Returns the first true value of `condition()`. If `timeout_s` seconds, times PATIENCE, pass without one, raises
    TimeoutError, whose message contains `what` and the state that `seen()` describes."""
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            instead = f"\n{seen()}" if seen is not None else ""
            raise TimeoutError(f"waited {timeout_s} s in vain for: {what}{instead}")
        time.sleep(POLL_S)
    return value


def accepts(address):
    """Returns whether a process accepts connections at `host:port`."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def rss_bytes(pid):
    """Returns the resident set size of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def thread_files(pid, *names):
    """Returns the texts of these files in /proc for each thread of a process. Leaves out a thread that ends
    meanwhile."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            texts = [(thread / name).read_text() for name in names]
            yield texts


def need(present, how):
    """Skips the test if `present` is false. `how` says how to install what is missing. With CI=true the test fails
    instead, because nobody reads skips there."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(how, pytrace=False)
    pytest.skip(how)


def need_matplotlib():
    """Skips the test if a benchmark cannot draw its figures."""
    need(importlib.util.find_spec("matplotlib") is not None, "no matplotlib: pip install kafkacore[bench]")


class Child:
    """A process in its own session, so that its children can be ended with it. Writes its output to the file `log`."""

    def __init__(self, command, log, **options):
        self.log = Path(log)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command], stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
                **{"stdout": output, **options},
            )  # fmt: skip

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def wait_ready(self, condition, timeout_s, what):
        def ready():
            if not self.alive():
                raise RuntimeError(f"{what}: exited with {self.process.returncode}\n{self.tail()}")
            return condition()

        try:
            return wait_until(ready, timeout_s, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.tail()}") from None

    def terminate(self, timeout_s=30.0):
        """Sends SIGTERM, and if the process does not end in time, sends SIGKILL to the whole session. Returns the exit
        status."""
        if self.alive():
            self.process.terminate()
        try:
            return self.process.wait(timeout_s * PATIENCE)
        except subprocess.TimeoutExpired:
            print(f"{self.log}: still running {timeout_s * PATIENCE} s after SIGTERM", file=sys.stderr)
            return self.kill()
        finally:
            self.close()

    def pause(self):
        """Stops the process with SIGSTOP. Returns when every thread has stopped: only one thread receives the signal,
        and on a busy machine the others go on until that thread gets a core."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: set(self.thread_states()) <= {"T", "Z"}, 30, f"all threads of {self.pid} to stop")

    def thread_states(self):
        """Returns the state of each thread as one letter of `/proc/PID/stat`, such as T for a stopped thread."""
        for (stat,) in thread_files(self.pid, "stat"):
            yield stat.rpartition(") ")[2][0]

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """Sends SIGKILL to the whole session. Returns the exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()
        return self.process.wait(30)

    def close(self):
        if self.process.stdout:
            self.process.stdout.close()

    def tail(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
