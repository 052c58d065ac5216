"""The controller of a node with `isolation=process`. The node starts it in a process of its own."""

from __future__ import annotations

import os
import sys
from typing import Final

import orjson

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.server.node import Node, NodeFailed
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.tools import running
from kafkacore.tools.start import log_to_stderr

_STANDARD_INPUT: Final = 0


def main() -> int:
    log_to_stderr()
    try:
        # Unbuffered: the first line is the configuration, the rest of the input only shows when the node ends.
        with os.fdopen(os.dup(_STANDARD_INPUT), "rb", buffering=0) as lines:
            config = BrokerConfig(orjson.loads(lines.readline()))
        running.run(Node(config, lent_locks=True), _announce, parent=_STANDARD_INPUT, alone=False)
    except (ConfigError, LogDirectoryError, OSError, TimeoutError, NodeFailed) as error:
        print(f"kafkacore: controller: {error}", file=sys.stderr)
        return 1
    return 0


def _announce(node: Node) -> None:
    assert node.controller is not None
    host, _, port = node.controller.rpartition(":")
    print(orjson.dumps([host.strip("[]"), int(port)]).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
