"""The program with which a local Spark starts its Python processes."""

import atexit
import os
import shlex
import sys
import tempfile
from contextlib import suppress


def quick_python() -> str:
    """Returns the path of a program that runs this Python and finds PySpark in its site-packages. The file is deleted
    when this process ends.

    Spark puts its pyspark.zip first on the path of each Python process. That archive contains no bytecode, so each
    process compiles PySpark again. A start then takes 1.5 s of CPU time instead of 0.2 s. A Python source needs two
    processes for each `load`.
    """
    handle, path = tempfile.mkstemp(prefix="kafkacore-python-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        own = shlex.quote(os.environ.get("PYTHONPATH", ""))
        file.write(f'#!/bin/sh\nPYTHONPATH={own} exec {shlex.quote(sys.executable)} "$@"\n')
    os.chmod(path, 0o700)
    atexit.register(_remove, path)
    return path


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
