"""The difference between two roots: sets of rows, ids and keys, not copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacore.metadata.image import ConfigKey, MetadataImage
from kafkacore.protocol.uuid import Uuid

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class MetadataDelta:
    """`partition_rows` has the new and changed rows of the newer root. A topic that was created and deleted within the
    delta is only in `topics_deleted`. A topic that was deleted and created again has a new id. `freed_rows` belonged to
    deleted topics; a freed row that is also changed belongs to another topic now."""

    __slots__ = (
        "_rows", "_vectors", "brokers", "configs", "controllers", "features", "freed_rows", "kept", "producer_ids",
        "topics_created", "topics_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics_created: dict[Uuid, int] = {}  # topic id: topic row
        self.topics_deleted: dict[Uuid, str] = {}  # topic id: name
        self._rows: set[int] = set()
        # Rows of decisions about many partitions. A set of these rows costs more than the change itself, so it is made
        # when a reader first asks for it.
        self._vectors: list[npt.NDArray[np.int64]] = []
        self.freed_rows: set[int] = set()
        self.brokers: set[int] = set()
        self.controllers: set[int] = set()
        self.configs: set[ConfigKey] = set()
        self.features: set[str] = set()
        self.producer_ids = False
        self.kept: set[tuple[Any, ...]] = set()

    @property
    def partition_rows(self) -> set[int]:
        if self._vectors:
            # A new set: another thread may be reading the old one.
            self._rows, self._vectors = self._rows.union(*[rows.tolist() for rows in self._vectors]), []
        return self._rows

    @property
    def most_rows(self) -> int:
        """The size of `partition_rows`, or more when a row changed several times. This does not make the set."""
        return len(self._rows) + sum(map(len, self._vectors))

    def change_rows(self, rows: npt.NDArray[np.int64]) -> None:
        """Adds rows to `partition_rows`. The caller must not change the vector afterwards."""
        self._vectors.append(rows)

    def __bool__(self) -> bool:
        return bool(
            self.topics_created or self.topics_deleted or self.most_rows or self.brokers or self.controllers
            or self.configs or self.features or self.producer_ids or self.kept
        )  # fmt: skip

    def add(self, later: MetadataDelta) -> None:
        """Adds the changes of `later`, which begins where this delta ends."""
        for topic_id in later.topics_deleted:
            self.topics_created.pop(topic_id, None)
        self.topics_created.update(later.topics_created)
        self.topics_deleted.update(later.topics_deleted)
        if later.freed_rows:
            self._rows = self.partition_rows - later.freed_rows
        self._vectors += later._vectors
        self._rows |= later._rows
        self.freed_rows |= later.freed_rows
        self.brokers |= later.brokers
        self.controllers |= later.controllers
        self.configs |= later.configs
        self.features |= later.features
        self.producer_ids |= later.producer_ids
        self.kept |= later.kept


def rows_of_older_topics(image: MetadataImage, delta: MetadataDelta) -> set[int]:
    """The changed rows, in the newer root, of topics that existed before. Empty when topics were only created."""
    created = [image.topic_at(row).partition_rows for row in delta.topics_created.values()]
    # Every row of a new topic is a change. Usually there are no other changes, and equal counts show that without a
    # look at each row.
    if sum(map(len, created)) == len(delta.partition_rows) and not any(-1 in rows for rows in created):
        return set()
    return delta.partition_rows.difference(*created)
