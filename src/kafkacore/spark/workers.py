"""Makes Spark's Python processes quick: a program that a local Spark starts as `python`, and functions for tasks."""

import atexit
import gc
import os
import shlex
import socket
import sys
import tempfile
from contextlib import suppress
from typing import Final

_exempt_in: Final[dict[str, int]] = {}


def quick_python() -> str:
    """Returns the path of a program that runs this Python, which then finds PySpark in its own site-packages. The file
    is deleted when this process ends.

    Spark puts its pyspark.zip first on the path of each Python process. That archive contains no bytecode, so each
    process compiles PySpark again. It then needs 1.5 s of CPU time to start instead of 0.2 s. A data source in
    Python needs two such processes for each `load`.
    """
    handle, path = tempfile.mkstemp(prefix="kafkacore-python-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        own = shlex.quote(os.environ.get("PYTHONPATH", ""))
        file.write(f'#!/bin/sh\nPYTHONPATH={own} exec {shlex.quote(sys.executable)} "$@"\n')
    os.chmod(path, 0o700)
    atexit.register(_remove, path)
    return path


def exempt_modules_from_collection() -> None:
    """Makes the garbage collector ignore all objects that exist when this process runs its first task.

    Spark's worker collects all garbage after each task. Most of the objects belong to imported modules.
    Visiting these objects takes 20 ms, longer than a small task.
    """
    if _exempt_in.get("pid") != os.getpid():  # a worker may be a fork of a process that has called this function
        gc.collect()
        gc.freeze()
        _exempt_in["pid"] = os.getpid()


def acknowledge_at_once() -> None:
    """Makes the kernel acknowledge at once all data that this process has received over TCP.

    Spark's JVM sends a task to a worker in two writes, over a socket without TCP_NODELAY. The second write waits for
    the acknowledgement of the first, which Linux delays by 40 ms because the worker has nothing to send. The
    unpickling of a reader calls this function, between the two writes.
    """
    # If a default timeout is set, Python switches a socket to non-blocking mode when it wraps the socket.
    if socket.getdefaulttimeout() is not None or not os.path.isdir("/proc/self/fd"):
        return
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or a socket of another kind
            connection = socket.socket(fileno=int(name))
            try:
                if connection.family in {socket.AF_INET, socket.AF_INET6}:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            finally:
                connection.detach()


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
