"""Runs a program that a debug build must abort, and returns what it printed."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from kafkacore._fast.base.debug_checks import DEBUG

only_debug = pytest.mark.skipif(not DEBUG, reason="assertions exist in debug builds only (ci/sanitize.sh debug)")
only_release = pytest.mark.skipif(DEBUG, reason="a debug build aborts here")


def abort_message(program: str) -> str:
    """The standard error of `program`, which must end by SIGABRT."""
    done = run(program)
    # A sanitizer's runtime ends the process with a status of its own.
    assert done.returncode in {-signal.SIGABRT, 66}, (done.returncode, done.stderr)
    return done.stderr


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
