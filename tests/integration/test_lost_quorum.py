"""A controller whose quorum can never elect a leader. The controller reports this immediately, and says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkacore.protocol.uuid import Uuid
from kafkacore.server.node import Node
from kafkacore.storage import meta_properties
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.tools import dev

pytestmark = pytest.mark.timeout(30)  # shorter than the time after which a start gives up


@pytest.fixture
def stopped(tmp_path: Path) -> Node:
    config = dev.configuration(str(tmp_path), 0, [])
    dev.prepare(config)
    node = Node(config)
    with node:
        pass
    return node


def test_missing_metadata_log_is_reported_at_once(stopped: Node, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    for _ in range(2):  # the first start creates the directory anew
        with pytest.raises(LogDirectoryError, match=r"__cluster_metadata-0: no voter is known, .*--standalone"):
            stopped.start()


def test_directory_id_that_no_voter_has_is_reported_at_once(stopped: Node, tmp_path: Path) -> None:
    found = meta_properties.read(str(tmp_path))
    assert found is not None
    meta_properties.write(str(tmp_path), found._replace(directory_id=Uuid(b"another id of it")), 0)
    with pytest.raises(LogDirectoryError, match=r"meta\.properties: controller 1 has directory id .*, but the voter"):
        stopped.start()
    meta_properties.write(str(tmp_path), found, 0)
    with stopped:
        assert stopped.bootstrap
