"""The KRaft controller (KIP-631). Every decision reads an image (the metadata after all records up to an offset), and
returns records. Replaying these records gives the next image.

The modules in `ON_REQUEST` handle requests that most nodes do not get while they start. So this package imports each of
these modules only when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkacore.controller.quorum import alter_partition as alter_partition
    from kafkacore.controller.quorum import configuration as configuration
    from kafkacore.controller.quorum import deletion as deletion
    from kafkacore.controller.quorum import directories as directories
    from kafkacore.controller.quorum import elections as elections
    from kafkacore.controller.quorum import features as features
    from kafkacore.controller.quorum import producer_ids as producer_ids
    from kafkacore.controller.quorum import quotas as quotas
    from kafkacore.controller.quorum import reassignments as reassignments
    from kafkacore.controller.quorum import scram_users as scram_users
    from kafkacore.controller.quorum import topics as topics

ON_REQUEST: Final = {
    "alter_partition", "configuration", "deletion", "directories", "elections", "features", "producer_ids", "quotas",
    "reassignments", "scram_users", "topics",
}  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name not in ON_REQUEST:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
