"""A node in the foreground of a process: until a signal, or until its parent is gone."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacore.server.node import Node

# Python's default of 5 ms is how long one handler could keep another loop waiting for the GIL.
SWITCH_INTERVAL_S = 0.0001
# After which a node that started is left alone: it then imports what its first topic needs, some 6 ms, rather than
# have whoever asks for one wait for that.
SETTLED_MS = 1000
_OF_TOPICS = ("kafkacore.controller.quorum.topics", "kafkacore.config.sources", "kafkacore._fast.schema.columns")


def run(node: Node, announce: Callable[[Node], None], *, parent: int = -1, alone: bool = True) -> None:
    """Starts the node, calls `announce` when it is ready, and stops it cleanly on SIGTERM, SIGINT or SIGHUP.

    Also when the descriptor `parent` is readable or hangs up: it belongs to the process that started this one. Where
    this is a part of that one and not `alone`, the signals are that one's to answer, whoever else gets them. Raises
    what `Node.start` raises, NodeFailed also later.
    """
    import gc
    import sys

    from kafkacore.runtime import open_files

    open_files.raise_limit()
    # A start makes objects that stay: looking for garbage among them again and again is a tenth of its time.
    gc.disable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, (lambda *_: None) if alone else signal.SIG_IGN)

    def end(error: BaseException) -> None:
        wake.send(b"!")

    node.on_fault = end
    try:
        node.start()
        from kafkacore.runtime.collecting import LOOK_EVERY_MS, FullCollections  # clients are served by now

        # What was imported and built by now lives as long as the process: the collector need not look at it again.
        gc.freeze()
        collections = FullCollections()
        collections.postpone()
        gc.enable()
        announce(node)
        waits = select.poll()
        waits.register(ended, select.POLLIN)
        if parent >= 0:
            waits.register(parent, select.POLLIN)
        if not waits.poll(SETTLED_MS):
            for name in _OF_TOPICS if "controller" in node.config.process_roles else ():
                import_module(name)
            while not waits.poll(LOOK_EVERY_MS):
                collections.look()
        node.raise_fault()
    finally:
        node.stop()
        signal.set_wakeup_fd(-1)
        wake.close()
        ended.close()
