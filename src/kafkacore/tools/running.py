"""Runs a node in the foreground of a process, until a signal arrives or the parent process ends."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kafkacore.inspection.codecs import log_codecs
from kafkacore.runtime import open_files
from kafkacore.runtime.collecting import LOOK_EVERY_MS, FullCollections
from kafkacore.server.node import Node, StartAbandoned

LOG: Final = logging.getLogger("kafkacore.server")
# Python's switch interval, in seconds. While a handler runs Python code, another thread's event loop waits about this
# long for the GIL. Python's default is 5 ms.
SWITCH_INTERVAL_S = 0.0001


def run(node: Node, announce: Callable[[Node], None], *, parent: int = -1) -> None:
    """Starts the node, calls `announce` when it is ready, and stops it cleanly on SIGTERM, SIGINT or SIGHUP.

    `parent` is a descriptor that becomes readable or hangs up when the parent process ends. Then the node also stops.
    A node that is still starting stops without an announcement. Raises the errors of `Node.start`, and NodeFailed if
    the node fails later.
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
    signs = [ended.fileno()] if parent < 0 else [ended.fileno(), parent]
    try:
        with _abandoning_start(node, signs):
            node.start()
        # The modules and the node live as long as the process, so the garbage collector need not scan them again.
        gc.freeze()
        collections = FullCollections()
        collections.postpone()
        announce(node)
        log_codecs()
        waits = _poll_of(signs)
        while not waits.poll(LOOK_EVERY_MS):
            collections.look()
        node.raise_fault()
    except StartAbandoned:
        LOG.info("node %d was stopped before it was ready", node.config.node_id)
    finally:
        node.stop()
        signal.set_wakeup_fd(-1)
        wake.close()
        ended.close()


@contextmanager
def _abandoning_start(node: Node, signs: Iterable[int]) -> Iterator[None]:
    """Abandons the node's start if one of the descriptors `signs` becomes readable while the block runs. A thread
    watches the descriptors, because the main thread waits inside the start, for example for a quorum."""
    over = os.eventfd(0)
    waits = _poll_of([*signs, over])

    def watch() -> None:
        if any(descriptor != over for descriptor, _ in waits.poll()):
            node.abandon_start()

    watcher = threading.Thread(target=watch, name="kafkacore-start", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.eventfd_write(over, 1)
        watcher.join()
        os.close(over)


def _poll_of(descriptors: Iterable[int]) -> select.poll:
    waits = select.poll()
    for each in descriptors:
        waits.register(each, select.POLLIN)
    return waits
