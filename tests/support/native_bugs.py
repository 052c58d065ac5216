"""Helps unit tests that plant bugs in native code. Each test runs twice: without its bug, and with it. The second run
shows that the first one would notice the bug."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from kafkacore._fast.base.debug_checks import PLANTED
from kafkacore.simulation.planted_native import planted_natively

with_and_without = pytest.mark.parametrize("is_there", [False, True])


def bug(name: str, is_there: bool) -> AbstractContextManager[None]:
    """Plants the bug if `is_there`. Skips the test if this build contains no bugs."""
    if is_there and not PLANTED:
        pytest.skip("only a build with KAFKACORE_PLANTED=1 holds native planted bugs (ci/sanitize.sh planted)")
    return planted_natively(name) if is_there else nullcontext()
