"""The difference between two metadata images. It contains the rows, ids and keys of what has changed, without copies of
the contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacore.metadata.image import ConfigKey, MetadataImage
from kafkacore.protocol.uuid import Uuid

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class MetadataDelta:
    """The difference between two metadata images. `partition_rows` contains the rows of new and changed partitions in
    the newer image. A topic that was created and deleted within the delta is only in `topics_deleted`. A topic that was
    deleted and created again has a new id. `freed_rows` are rows that belonged to deleted topics. If a freed row is
    also in `partition_rows`, it belongs to another topic now.
    """

    __slots__ = (
        "_rows", "_vectors", "brokers", "configs", "controllers", "features", "freed_rows", "kept", "producer_ids",
        "topics_created", "topics_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics_created: dict[Uuid, int] = {}  # topic id: the topic's row
        self.topics_deleted: dict[Uuid, str] = {}  # topic id: the topic's name
        self._rows: set[int] = set()
        # Rows that decisions about many partitions have changed. Building a set of these rows costs more than the
        # change itself, so the set is built when it is first read.
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
            # Create a new set, because another thread may be reading the old one.
            self._rows, self._vectors = self._rows.union(*[rows.tolist() for rows in self._vectors]), []
        return self._rows

    @property
    def most_rows(self) -> int:
        """The size of `partition_rows`, or a larger number if a row has changed several times. Does not build the
        set."""
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
        """Adds the changes of `later`, which must start where this delta ends."""
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
    """Returns the rows in `image`, the newer image, that have changed and belong to topics of the older image."""
    created = [image.topic_at(row).partition_rows for row in delta.topics_created.values()]
    # Every row of a new topic is a changed row. If the two counts are equal, there are no other changed rows, so no row
    # has to be checked.
    if sum(map(len, created)) == len(delta.partition_rows) and not any(-1 in rows for rows in created):
        return set()
    return delta.partition_rows.difference(*created)
