"""Runs a node in the foreground of a process, until a signal arrives or the parent process ends."""

from __future__ import annotations

import gc
import select
import signal
import socket
import sys
from collections.abc import Callable

from kafkacore.inspection.codecs import log_codecs
from kafkacore.runtime import open_files
from kafkacore.runtime.collecting import LOOK_EVERY_MS, FullCollections
from kafkacore.server.node import Node

# While a handler runs Python code, the event loop of another thread waits for the GIL, for about this time in seconds.
# Python's default is 5 ms.
SWITCH_INTERVAL_S = 0.0001


def run(node: Node, announce: Callable[[Node], None], *, parent: int = -1) -> None:
    """Starts the node, calls `announce` when it is ready, and stops it cleanly on SIGTERM, SIGINT or SIGHUP.

    `parent` is a descriptor that becomes readable or hangs up when the parent process ends. Then the node also stops.
    Raises the errors of `Node.start`, and NodeFailed if the node fails later.
    """
    open_files.raise_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)

    def end(error: BaseException) -> None:
        wake.send(b"!")

    node.on_fault = end
    try:
        node.start()
        # The modules and the node live as long as the process, so the garbage collector need not scan them again.
        gc.freeze()
        collections = FullCollections()
        collections.postpone()
        announce(node)
        log_codecs()  # last, so that clients need not wait for the node while this opens the codecs' libraries
        waits = select.poll()
        waits.register(ended, select.POLLIN)
        if parent >= 0:
            waits.register(parent, select.POLLIN)
        while not waits.poll(LOOK_EVERY_MS):
            collections.look()
        node.raise_fault()
    finally:
        node.stop()
        signal.set_wakeup_fd(-1)
        wake.close()
        ended.close()
