"""The check of import contracts reports imports of a higher layer in Python and in Cython, and accepts imports of a
lower layer."""

import subprocess
import sys
from pathlib import Path

import pytest

CONTRACTS = Path(__file__).parents[3] / "ci" / "contracts.py"


def check(root, **files):
    for name, text in files.items():
        path = root / "kafkacore" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([sys.executable, CONTRACTS, root], capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("_fast/log/log.pyx", "from kafkacore.storage.files cimport path\n", "_fast may not import storage"),
        (
            "_fast/log/log.pxd",
            "from libc.stdint cimport int32_t\ncimport kafkacore.config.keys\n",
            "_fast may not import config",
        ),
        ("_fast/log/log.pyx", "from kafkacore cimport runtime\n", "_fast may not import runtime"),
        ("raft/core.py", "def f():\n    from kafkacore.controller import quorum\n", "raft may not import controller"),
        ("raft/core.py", "from ..metadata import image\n", "raft may not import metadata"),
        ("storage/__init__.py", "from kafkacore import server\n", "storage may not import server"),
        ("server/node.py", "import kafkacore.testing.cluster\n", "server may not import testing"),
        (
            "controller/quorum/a.py",
            "from kafkacore.controller.zookeeper import b\n",
            "controller.quorum may not import",
        ),
        ("server/node.py", "import pyspark.sql\n", "pyspark may be imported in spark only"),
        ("attic/old.py", "", "attic is not in the table of rooms"),
        (
            "_fast/log/log.pyx",
            "from kafkacore._fast.plane.answer cimport Answer\n",
            "_fast.log may not import _fast.plane",
        ),
        ("_fast/base/a.py", "from kafkacore._fast import log\n", "_fast.base may not import _fast.log"),
        (
            "_fast/attic/old.pyx",
            "from kafkacore._fast.log.log cimport Log\n",
            "_fast.attic is not in the table of packages",
        ),
    ],
)
def test_an_import_that_points_up_is_named_with_its_line(tmp_path, name, text, reason):
    result = check(tmp_path, **{name: text})
    assert result.returncode == 1
    assert reason in result.stdout
    assert f"{name}:{text.count(chr(10)) or 1}" in result.stdout


def test_imports_that_point_down_or_stay_inside_pass(tmp_path):
    result = check(
        tmp_path,
        **{
            "_fast/log/log.pyx": "from libc.string cimport memcpy\nfrom kafkacore._fast.wait.io cimport File\n",
            "controller/quorum/a.py": "from kafkacore.controller.common import placement\nfrom . import b\n",
            "server/node.py": "import asyncio\nfrom kafkacore._version import x\nfrom kafkacore.raft import core\n",
            "tools/main.py": "from kafkacore.server import node\n",
        },
    )
    assert (result.returncode, result.stdout) == (0, "")
