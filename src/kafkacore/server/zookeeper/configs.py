"""Reads a broker's settings from `/config` in ZooKeeper mode, and watches `/config/changes`.

The writer of settings first changes `/config/TYPE/NAME`. Then it creates a sequential znode in `/config/changes`, which
says what has changed. Every broker watches `/config/changes` (KIP-226, Kafka's ZkConfigManager), and at each change
deletes old notifications. This module runs on the controllers' loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from kafkacore.metadata.image import BROKER, TOPIC, ConfigKey
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.server.zookeeper.znode_watch import RETRY_S, ZnodeWatch
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, Delete, GetChildren, GetData

LOG: Final = logging.getLogger("kafkacore.server")
_KINDS: Final = {"topics": TOPIC, "brokers": BROKER}
EXPIRY_MS: Final = 15 * 60 * 1000  # the age at which Apache Kafka deletes a notification

Settings = Mapping[ConfigKey, Mapping[str, str]]


class ConfigWatch(ZnodeWatch):
    """Follows the settings in ZooKeeper, and passes them to `apply` after each read. Leaves out the settings of
    clients, users and IP addresses, because this broker does not enforce quotas. `now_ms` returns the wall-clock
    time."""

    def __init__(
        self,
        session: BrokerSession,
        apply: Callable[[Settings], None],
        now_ms: Callable[[], int],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        super().__init__(session, paths.CONFIG_CHANGES, on_fault)
        self._apply = apply
        self._now_ms = now_ms
        self._parent = 0  # the czxid of `/config/changes`, whose notifications are numbered from 0
        self._last = -1  # the sequence number of the last change that was applied
        self._made_ms: dict[str, int] = {}  # when each notification was created, by ZooKeeper's clock
        self._is_incomplete = False  # whether something could not be read

    async def _again(self) -> None:
        """Reads everything again in a new session, because znodes of changes may have been added and deleted before the
        session began."""
        await self._read_all()
        self._changed.set()

    async def _read_all(self) -> None:
        """Reads all settings of topics and brokers."""
        self._is_incomplete = False
        # The watch is set first, so that no change between the two reads is missed. The notifications also name deleted
        # znodes, whose settings must be dropped.
        entities = await self._new_changes()
        kinds = list(_KINDS)
        found = await self._session.sure([GetChildren(f"{paths.CONFIG}/{kind}") for kind in kinds])
        for kind, result in zip(kinds, found, strict=True):
            if result.is_ok:
                entities += [f"{kind}/{name}" for name in result.value[0]]
            else:
                self._refused(f"{paths.CONFIG}/{kind}", result.code)
        await self._read(entities)

    async def _read_changes(self) -> None:
        if self._is_incomplete:
            await self._read_all()
        else:
            await self._read(await self._new_changes())

    def _refused(self, path: str, code: Code) -> None:
        """Reads everything again after a while."""
        if not self._is_incomplete:
            LOG.warning("%s: %s; the broker reads its settings again in %.0f s", path, code.name, RETRY_S)
            self._is_incomplete = True
            self._read_later()

    async def _new_changes(self) -> list[str]:
        """Returns the entities in `/config/changes` that were added since the last call. Sets the watch again."""
        [listed] = await self._session.sure([GetChildren(paths.CONFIG_CHANGES, watch=True)])
        if not listed.is_ok:
            self._refused(paths.CONFIG_CHANGES, listed.code)
            return []
        names, stat = listed.value
        if stat.czxid != self._parent:
            self._parent, self._last = stat.czxid, -1
        fresh: list[tuple[int, str]] = []
        for name in names:
            try:
                number = paths.sequence_number(name)
            except ValueError:
                LOG.warning("%s/%s is not a notification", paths.CONFIG_CHANGES, name)
                continue
            if number > self._last:
                fresh.append((number, name))
        fresh.sort()
        read = await self._session.sure([GetData(f"{paths.CONFIG_CHANGES}/{name}") for _, name in fresh])
        entities: list[str] = []
        for (number, name), result in zip(fresh, read, strict=True):
            self._last = number
            if result.code == Code.NO_NODE:
                # Another node has deleted the notification, for example because that node's clock is fast. So this node
                # cannot know what has changed.
                self._is_incomplete = True
                self._changed.set()
                continue
            if not result.is_ok:
                self._refused(f"{paths.CONFIG_CHANGES}/{name}", result.code)
                continue
            self._made_ms[name] = result.value[1].ctime_ms
            try:
                entities.append(znodes.decode_config_change(result.value[0]))
            except znodes.MalformedZnodeError as error:
                LOG.warning("%s/%s cannot be read, and is left out: %s", paths.CONFIG_CHANGES, name, error)
        await self._purge(names)
        return entities

    async def _purge(self, listed: Iterable[str]) -> None:
        """Deletes the notifications that have expired. All brokers do this, so a notification may be gone already."""
        self._made_ms = {name: self._made_ms[name] for name in listed if name in self._made_ms}
        oldest = self._now_ms() - EXPIRY_MS
        expired = [name for name, made_ms in self._made_ms.items() if made_ms < oldest]
        for name, result in zip(expired, await self._session.sure([_delete(name) for name in expired]), strict=True):
            if result.code not in (Code.OK, Code.NO_NODE):
                LOG.warning("%s/%s could not be deleted: %s", paths.CONFIG_CHANGES, name, result.code.name)

    async def read_topics(self, names: Iterable[str]) -> None:
        """Reads the settings of these topics."""
        await self._read([f"topics/{paths.sanitize(name)}" for name in names])

    async def _read(self, entities: Iterable[str]) -> None:
        wanted = []
        for entity in dict.fromkeys(entities):
            entity_type, _, name = entity.partition("/")
            if entity_type in _KINDS and name and "/" not in name:
                wanted.append((_KINDS[entity_type], name, f"{paths.CONFIG}/{entity}"))
        results = await self._session.sure([GetData(path) for _, _, path in wanted])
        settings: dict[ConfigKey, Mapping[str, str]] = {}
        for (kind, name, path), result in zip(wanted, results, strict=True):
            key = kind, "" if name == paths.DEFAULT_ENTITY else unquote(name)
            if result.code == Code.NO_NODE:
                settings[key] = {}
            elif result.is_ok:
                try:
                    settings[key] = znodes.decode_config(result.value[0])
                except znodes.MalformedZnodeError as error:
                    LOG.warning("%s cannot be read, so the settings stay as they are: %s", path, error)
            else:
                self._refused(path, result.code)
        if settings:
            self._apply(settings)


def _delete(name: str) -> Delete:
    return Delete(f"{paths.CONFIG_CHANGES}/{name}")
