"""The difference between two roots: sets of rows, ids and keys, not copies."""

from __future__ import annotations

from typing import Any

from kafkacore.metadata.image import ConfigKey, MetadataImage
from kafkacore.protocol.uuid import Uuid


class MetadataDelta:
    """`partition_rows` has the new and changed rows of the newer root. A topic that was created and deleted within the
    delta is only in `topics_deleted`; one that was deleted and created again has a new id. `freed_rows` belonged to
    deleted topics; such a row that is also changed has a new owner."""

    __slots__ = (
        "brokers", "configs", "controllers", "features", "freed_rows", "kept", "partition_rows", "producer_ids",
        "topics_created", "topics_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics_created: dict[Uuid, int] = {}  # to its topic row
        self.topics_deleted: dict[Uuid, str] = {}  # to its name
        self.partition_rows: set[int] = set()
        self.freed_rows: set[int] = set()
        self.brokers: set[int] = set()
        self.controllers: set[int] = set()
        self.configs: set[ConfigKey] = set()
        self.features: set[str] = set()
        self.producer_ids = False
        self.kept: set[tuple[Any, ...]] = set()

    def __bool__(self) -> bool:
        return bool(
            self.topics_created or self.topics_deleted or self.partition_rows or self.brokers or self.controllers
            or self.configs or self.features or self.producer_ids or self.kept
        )  # fmt: skip

    def add(self, later: MetadataDelta) -> None:
        """Adds the changes of `later`, which begins where this delta ends."""
        for topic_id in later.topics_deleted:
            self.topics_created.pop(topic_id, None)
        self.topics_created.update(later.topics_created)
        self.topics_deleted.update(later.topics_deleted)
        self.partition_rows -= later.freed_rows
        self.partition_rows |= later.partition_rows
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
    # Every row of a new topic is a change. Mostly there are no others: the counts show it without a look at each row.
    if sum(map(len, created)) == len(delta.partition_rows) and not any(-1 in rows for rows in created):
        return set()
    return delta.partition_rows.difference(*created)
