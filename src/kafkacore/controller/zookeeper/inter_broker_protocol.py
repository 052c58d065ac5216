"""`inter.broker.protocol.version`: decides which features the brokers use among themselves during a rolling upgrade.

The names of the versions and their order are the same as in Apache Kafka 3.9 (`MetadataVersion`).
"""

from __future__ import annotations

from functools import total_ordering
from typing import Final

_NAMES: Final = (
    "0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2",
    "0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1", "2.1-IV0",
    "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0", "2.6-IV0",
    "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0",
    "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
    "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
)  # fmt: skip
_RANKS: Final = {name: rank for rank, name in enumerate(_NAMES)}


@total_ordering
class InterBrokerProtocol:
    """One version of the inter-broker protocol. Raises ValueError for a text that Apache Kafka 3.9 would also
    refuse."""

    __slots__ = ("_rank",)

    def __init__(self, text: str) -> None:
        self._rank = _rank(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InterBrokerProtocol) and self._rank == other._rank

    def __lt__(self, other: InterBrokerProtocol) -> bool:
        return self._rank < other._rank

    def __hash__(self) -> int:
        return self._rank

    def __str__(self) -> str:
        return _NAMES[self._rank]

    def __repr__(self) -> str:
        return f"InterBrokerProtocol({str(self)!r})"

    def since(self, name: str) -> bool:
        """Returns whether this version is `name` or a later one."""
        return self._rank >= _RANKS[name]

    @property
    def has_feature_versions(self) -> bool:
        """Whether `/feature` is enabled (KIP-584)."""
        return self.since("2.7-IV0")

    @property
    def has_alter_partition(self) -> bool:
        """Whether leaders change ISRs with AlterPartition (KIP-497) instead of writing the partition's state znode."""
        return self.since("2.7-IV2")

    @property
    def has_topic_ids(self) -> bool:
        """Whether topics get an id (KIP-516)."""
        return self.since("2.8-IV0")

    @property
    def has_producer_id_blocks(self) -> bool:
        """Whether brokers request producer ids from the controller (KIP-730) instead of using the znode."""
        return self.since("3.0-IV0")

    @property
    def has_leader_recovery(self) -> bool:
        """Whether a leader can be RECOVERING after an unclean election (KIP-704)."""
        return self.since("3.2-IV0")

    @property
    def registration_version(self) -> int:
        """The version of the JSON that the broker writes to `/brokers/ids` (BrokerInfo)."""
        return self._newest(("2.7-IV0", 5), ("0.10.0-IV1", 4)) or 2

    @property
    def leader_and_isr_version(self) -> int:
        return self._newest(
            ("3.4-IV0", 7), ("3.2-IV0", 6), ("2.8-IV1", 5), ("2.4-IV1", 4), ("2.4-IV0", 3), ("2.2-IV0", 2),
            ("1.0-IV0", 1),
        )  # fmt: skip

    @property
    def update_metadata_version(self) -> int:
        return self._newest(
            ("3.4-IV0", 8), ("2.8-IV1", 7), ("2.4-IV1", 6), ("2.2-IV0", 5), ("1.0-IV0", 4), ("0.10.2-IV0", 3),
            ("0.10.0-IV1", 2), ("0.9.0", 1),
        )  # fmt: skip

    @property
    def stop_replica_version(self) -> int:
        return self._newest(("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1))

    def _newest(self, *versions: tuple[str, int]) -> int:
        return next((version for name, version in versions if self.since(name)), 0)


def _rank(text: str) -> int:
    """Returns the position of a version in the order of versions. A short text such as "3.9" or "2.7" stands for the
    last version of that release."""
    if text in _RANKS:
        return _RANKS[text]
    numbers = text.split("-", maxsplit=1)[0].split(".")
    release = ".".join(numbers[: 3 if numbers[0] == "0" else 2])
    ranks = [rank for name, rank in _RANKS.items() if name.split("-")[0] == release]
    if not ranks or "-" in text or not all(number.isdecimal() for number in numbers):
        raise ValueError(f"{text!r} is no version of the inter-broker protocol that Apache Kafka 3.9 knows")
    return ranks[-1]


LATEST: Final = InterBrokerProtocol(_NAMES[-1])
# The oldest version that is supported. Below it, the controller's requests do not contain the broker epoch (KIP-380).
LEAST: Final = InterBrokerProtocol("2.2-IV0")
