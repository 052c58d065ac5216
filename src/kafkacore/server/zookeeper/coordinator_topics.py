"""Reads how many partitions the coordinators' topics have: `__consumer_offsets` and `__transaction_state`.

The partition of a group or of a transactional id depends on this number, so all brokers must know the same number. The
image `view` (roots.py) may lack partitions, because an UpdateMetadata leaves out partitions that have no state yet. So
the broker reads the number from ZooKeeper, as a broker of Apache Kafka 3.9 does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from kafkacore.runtime.loops import LoopThread
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.storage.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, GetData, Operation, Sync

LOG: Final = logging.getLogger("kafkacore.server")
COORDINATED: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class CoordinatorTopics:
    """Belongs to the data plane's loop; `session` belongs to `loop`."""

    def __init__(self, session: BrokerSession, loop: LoopThread) -> None:
        self._session, self._loop = session, loop
        self._counts: dict[str, int] = {}
        self._unread: set[str] = set()  # the last read of these topics failed

    def count(self, topic: str) -> int | None:
        """Returns the number of partitions of a coordinators' topic, or None if the topic did not exist at the last
        read."""
        return self._counts.get(topic)

    async def read(self, topics: Iterable[str] = COORDINATED) -> None:
        """Reads the numbers of the coordinators' topics among `topics`, and of those whose last read failed. Call this
        when the broker starts, and before each change of an image, with the topics that are new in the image."""
        names = sorted(set(COORDINATED) & {*topics, *self._unread})
        if not names:
            return
        # The controller may have seen the topic on another server. Because of the sync, this broker sees it too.
        reads: list[Operation] = [Sync(paths.TOPICS), *[GetData(paths.topic(name)) for name in names]]
        work = self._session.sure(reads)
        _, *found = await asyncio.wrap_future(self._loop.submit(work))
        for name, result in zip(names, found, strict=True):
            self._unread.discard(name)
            if result.is_ok:
                self._take(name, result.value[0])
            elif result.code == Code.NO_NODE:
                self._counts.pop(name, None)
            else:
                self._unread.add(name)
                LOG.warning("%s could not be read: %s", paths.topic(name), result.code.name)

    def _take(self, name: str, data: bytes | None) -> None:
        try:
            self._counts[name] = len(znodes.decode_topic(data).partitions)
        except znodes.MalformedZnodeError as error:
            self._unread.add(name)
            LOG.warning("%s cannot be read: %s", paths.topic(name), error)
