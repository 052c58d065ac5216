"""Real processes for tests: free ports, logs that survive a failure, waiting for the thing itself with a limit."""

import contextlib
import itertools
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
# Below what the kernel gives to whoever does not care: nobody is given one between its choice here and its use. Each
# process of tests begins far from where its neighbours do, and takes none twice before it has had all.
PORTS = range(16_384, 32_768)
_FIRST = int(os.getpid() * 0.618 * len(PORTS)) % len(PORTS)
_NEXT_PORTS = itertools.cycle([*PORTS[_FIRST:], *PORTS[:_FIRST]])


def free_ports(count):
    """Ports that nobody listens on."""
    found = list(itertools.islice(filter(is_free, itertools.islice(_NEXT_PORTS, len(PORTS))), count))
    assert len(found) == count, f"only {len(found)} of {PORTS} are free"
    return found


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as whoever is to listen there does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until(condition, timeout_s=30.0, what="the condition"):
    """Returns the first true value of `condition()`; raises TimeoutError naming `what` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s} s")
        time.sleep(POLL_S)
    return value


def accepts(address):
    """Whether somebody listens at `host:port`."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def rss_bytes(pid):
    """Resident set of one process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def need(present, how):
    """Skips with one line on how to get what is missing; a failure where CI=true, since nobody reads its skips."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(how, pytrace=False)
    pytest.skip(how)


class Child:
    """A process in a session of its own, so that what it started ends with it; its output goes to `log`."""

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
        """SIGTERM, and SIGKILL to the whole session when that is not enough; returns the exit status."""
        if self.alive():
            self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            print(f"{self.log}: no end after SIGTERM in {timeout_s} s", file=sys.stderr)
            return self.kill()
        finally:
            self.close()

    def kill(self):
        """SIGKILL to the whole session; returns the exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()
        return self.process.wait(30)

    def close(self):
        if self.process.stdout:
            self.process.stdout.close()

    def tail(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
