"""Runs the commands of docs/cluster.md as an operator would. They create a cluster, kill a node without losing a
record, and move a partition.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore.runtime.ports import free_ports, is_free

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
LIMIT_S = 150


@pytest.fixture
def node_pids(tmp_path: Path) -> Iterator[None]:
    yield
    for file in tmp_path.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def free_tens() -> Iterator[int]:
    """Returns numbers N for which the ports 10 * N + 1 to 10 * N + 4 are free."""
    tens = dict.fromkeys(port // 10 for port in free_ports(80))
    return (each for each in tens if all(is_free(10 * each + number) for number in range(1, 5)))


@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.usefixtures("node_pids")
def test_commands_of_the_page_work_when_a_script_runs_them(tmp_path: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    script = "".join(blocks)
    # A prefix of port numbers. The commands on the page append the node id to it.
    for prefix, free in zip(("1909", "1919"), free_tens(), strict=False):
        script = script.replace(prefix, str(free))
    (tmp_path / "page.sh").write_text("set -eu\n" + script)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "page.sh"], check=False, cwd=tmp_path, env=os.environ | {"PATH": path}, timeout=LIMIT_S, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "max lag is 0 for partition orders-0" in done.stdout
    assert "Reassignment of partition orders-0 is completed." in done.stdout
