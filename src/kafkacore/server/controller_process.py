"""The controller of a node in a process of its own (`isolation=process`). The node starts, watches and ends it.

The two talk through Kafka's protocol, with two exceptions. The node writes the configuration to the child's standard
input and keeps that open until the child should end. So the child also ends when its parent crashes. The child writes
one line with the controller's address.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from kafkacore.config import BrokerConfig

LOG: Final = logging.getLogger("kafkacore.server")
MODULE: Final = "kafkacore.tools.isolated"
_STOP_SECONDS: Final = 30.0


class ControllerProcess:
    """Calls `on_end`, on a thread of its own, when the controller ends and the node did not ask for it."""

    def __init__(self, config: BrokerConfig, on_end: Callable[[BaseException], None]) -> None:
        self._node_id = config.node_id
        self._on_end = on_end
        self._stopping = False
        # The child gets a session of its own, so that signals from a terminal reach only the node. With -P it imports
        # nothing from the directory in which the node was started.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._input.write(json.dumps(properties(config)).encode() + b"\n")
        self._input.flush()

    def wait_ready(self, limit_ms: int) -> tuple[str, int]:
        """Waits until the controller listens, and returns its address. Raises ChildProcessError, TimeoutError."""
        deadline, line = time.monotonic() + min(limit_ms / 1000, threading.TIMEOUT_MAX), b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self._output], [], [], max(left, 0))
            if not readable:
                raise TimeoutError(f"the controller of node {self._node_id} was not ready within {limit_ms} ms")
            got = os.read(self._output.fileno(), 4096)
            if not got:
                raise ChildProcessError(
                    f"the controller of node {self._node_id} did not start: its process ended with status "
                    f"{self._process.wait()}; see its output above"
                )
            line += got
        try:
            host, port = json.loads(line)
        except ValueError:
            raise ChildProcessError(
                f"the controller of node {self._node_id} wrote {line!r} in place of its address"
            ) from None
        threading.Thread(target=self._watch, name="kafkacore-controller-process", daemon=True).start()
        return host, port

    def close_inherited(self) -> None:
        """Runs in a child process after a fork. That process must not keep the controller's input open."""
        self._input.close()
        self._output.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Shuts the controller down cleanly, and waits for that."""
        self._stopping = True
        self._input.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            LOG.warning("the controller of node %d did not end within %g s; it is killed", self._node_id, _STOP_SECONDS)
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _watch(self) -> None:
        status = self._process.wait()
        if not self._stopping:
            self._on_end(ChildProcessError(f"its controller, process {self.pid}, ended with status {status}"))


def properties(config: BrokerConfig) -> dict[str, str]:
    """The configuration of the controller alone, made from that of a node with both roles."""
    made = {
        **config.static,
        "process.roles": "controller",
        "isolation": "none",
        "listeners": ",".join(map(str, config.controller_listeners)),
        "log.dirs": config.metadata_log_dir,
        "metadata.log.dir": config.metadata_log_dir,
        "metrics.port": "-1",
    }
    for name in ("inter.broker.listener.name", "cordoned.log.dirs"):  # keys of the broker
        made.pop(name, None)
    if made.pop("advertised.listeners", None) is not None:
        told = [str(each) for each in config.advertised_controller_listeners]
        made["advertised.listeners"] = ",".join(told)
    return made
