"""The controller of a node with `isolation=process`, in the process that its node started for it."""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkacore.server.node import Node

_STANDARD_INPUT: Final = 0


def main() -> int:
    gc.disable()  # until `running` has started the node

    from kafkacore.config import BrokerConfig, ConfigError
    from kafkacore.server.node import Node, NodeFailed
    from kafkacore.storage.errors import LogDirectoryError
    from kafkacore.tools import running
    from kafkacore.tools.start import log_to_stderr

    log_to_stderr()
    try:
        # One line, and not a byte more: the rest of the input is its end.
        with os.fdopen(os.dup(_STANDARD_INPUT), "rb", buffering=0) as told:
            config = BrokerConfig(json.loads(told.readline()))
        running.run(Node(config, lent_locks=True), _announce, parent=_STANDARD_INPUT, alone=False)
    except (ConfigError, LogDirectoryError, OSError, TimeoutError, NodeFailed) as error:
        print(f"kafkacore: controller: {error}", file=sys.stderr)
        return 1
    return 0


def _announce(node: Node) -> None:
    assert node.controller is not None
    host, _, port = node.controller.rpartition(":")
    print(json.dumps([host.strip("[]"), int(port)]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
