"""Runs a program that a debug build must abort, and returns the program's output."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from kafkacore._fast.base.debug_checks import DEBUG
from processes import PATIENCE

only_debug = pytest.mark.skipif(not DEBUG, reason="only debug builds contain the assertions (ci/sanitize.sh debug)")
only_release = pytest.mark.skipif(DEBUG, reason="a debug build aborts here")


def abort_message(program: str) -> str:
    """Runs `program`, which SIGABRT must end. Returns the standard error of the process."""
    done = run(program)
    # If a sanitizer is active, its runtime ends the process with exit status 66 instead of SIGABRT.
    assert done.returncode in {-signal.SIGABRT, 66}, (done.returncode, done.stderr)
    return done.stderr


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
