"""Controller leader election: the broker that owns the ephemeral znode `/controller` is the controller.

An election is one multi, which creates `/controller` and sets `/controller_epoch`. The multi fails if `/controller`
already exists, or if `/controller_epoch` no longer has the version that the broker has read. In both cases ZooKeeper
writes neither znode. Four events cause an election: an administrator deletes `/controller`; an administrator writes
another broker id to it; the controller's broker fails; the controller shuts down. Each of these events changes
`/controller`, so the watches of all brokers fire.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kafkacore.controller.zookeeper import failover
from kafkacore.controller.zookeeper.events import Notification, Priority, SessionLostError
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.fenced import ControllerMovedError
from kafkacore.zookeeper.operations import (
    Code,
    Create,
    CreateMode,
    Delete,
    Exists,
    GetData,
    Multi,
    Operation,
    SetData,
    Stat,
    Sync,
    ZooKeeperError,
)
from kafkacore.zookeeper.znodes import MalformedZnodeError

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
NO_CONTROLLER: Final = -1
FIRST_EPOCH: Final = 0
RETRY_MS: Final = 1_000
MAX_PAUSE_MS: Final = 30_000


class Identity(Notification):
    """An event about the identity of the controller. An event that has failed is scheduled again, because it may have
    failed before it set the watch on `/controller`. Without this watch, the broker would never hear of the next
    election."""

    priority: ClassVar = Priority.SESSION
    state: ClassVar = "ControllerChange"

    async def process(self, controller: ZooKeeperController) -> None:
        try:
            await self.follow(controller)
        except (SessionLostError, ControllerMovedError):
            raise
        except Exception:
            LOG.exception("broker %d cannot finish %s, and tries again", controller.settings.broker_id, self)
            controller.schedule(RETRY_MS, type(self))

    async def follow(self, controller: ZooKeeperController) -> None:
        """Reads the owner of `/controller`. If `/controller` does not exist, this broker stands for election, but not
        before its pause has ended."""
        if await resign_if_moved(controller) != NOBODY:
            return
        pause_ms = controller.pause.left_ms(controller.now_s())
        if pause_ms > 0:
            controller.schedule(pause_ms, Reelect)
        else:
            await _stand(controller)


class Startup(Identity):
    """The broker has registered itself. From now on, it is a candidate in elections."""


class RegisterBrokerAndReelect(Identity):
    """A new session has begun. The broker registers itself again, and then is a candidate in elections."""

    async def follow(self, controller: ZooKeeperController) -> None:
        await controller.surroundings.register_broker()
        await super().follow(controller)


class Reelect(Identity):
    """`/controller` was deleted."""


class ControllerChange(Identity):
    """`/controller` was created or written. A watch reports only the first change, and the znode may have been deleted
    since. In that case this broker stands for election."""


class Pause:
    """The time for which a broker is not a candidate, after it has resigned because it failed as the controller. Each
    failure doubles the time. Without a pause, a broker that always fails would be elected again and again, and would
    load the whole cluster's state each time. Other brokers are candidates meanwhile. `now_s` comes from the event
    loop's clock.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._until_s = 0.0

    def begin(self, now_s: float) -> None:
        pause_ms = min(RETRY_MS << min(self._failures, 20), MAX_PAUSE_MS)
        LOG.warning("this broker is no candidate for the next %d ms, because it failed as the controller", pause_ms)
        self._until_s = now_s + pause_ms / 1000
        self._failures += 1

    def forgive(self) -> None:
        """Makes the next pause short again. Called when the controller has finished an event."""
        self._failures = 0

    def left_ms(self, now_s: float) -> int:
        return max(math.ceil((self._until_s - now_s) * 1000), 0)


class _Owner(NamedTuple):
    """The broker in `/controller`, and the session that owns the znode: 0 if an administrator has created the znode,
    None if the znode does not exist."""

    broker_id: int
    session_id: int | None


NOBODY: Final = _Owner(NO_CONTROLLER, None)


async def resign_if_moved(controller: ZooKeeperController) -> _Owner:
    """Reads the owner of `/controller`, and watches the znode. Resigns if another broker owns it. Returns the owner.

    If an administrator writes another id to the znode, the znode still belongs to this broker's session, and no broker
    is the controller. So this broker deletes the znode, which starts an election. It also deletes a znode that it could
    not delete when it resigned.
    """
    owner = await _owner(controller)
    ours = controller.zookeeper.session_id
    if controller.is_active and owner != _Owner(controller.settings.broker_id, ours):
        controller.resign()
    controller.active_controller_id = owner.broker_id
    if owner.session_id == ours and not controller.is_active:
        await _vacate(controller)
    return owner


async def fenced(controller: ZooKeeperController) -> None:
    """Handles a write that found another controller epoch. If another broker owns `/controller`, this broker resigns.
    If this broker still owns it, somebody has written to `/controller_epoch`. All further writes of this broker would
    fail then, so it resigns and deletes `/controller`."""
    await resign_if_moved(controller)
    await _leave(controller)


async def give_up(controller: ZooKeeperController) -> None:
    """Resigns after a failure, and pauses before it is a candidate again."""
    if controller.is_active:
        controller.pause.begin(controller.now_s())
        await _leave(controller)


async def _leave(controller: ZooKeeperController) -> None:
    """Resigns and deletes `/controller`, so that another broker is elected (triggerControllerMove)."""
    if controller.is_active:
        controller.resign()
        controller.active_controller_id = NO_CONTROLLER
        await _vacate(controller)


async def _vacate(controller: ZooKeeperController) -> None:
    """Deletes `/controller` if it belongs to this broker's session. The deletion is fenced by the epoch that was read
    before the owner. So it cannot delete the znode of another controller, because that controller has raised the epoch.
    """
    while True:
        await controller.access.read([Sync(paths.CONTROLLER)])
        _, stat = await _read_epoch(controller)
        if (await _owner(controller)).session_id != controller.zookeeper.session_id:
            return
        try:
            (result,) = await controller.access.write([Delete(paths.CONTROLLER)], stat.version)
        except ControllerMovedError:
            continue
        if result.code not in (Code.OK, Code.NO_NODE):
            raise ZooKeeperError(result.code, paths.CONTROLLER)
        return


async def _owner(controller: ZooKeeperController) -> _Owner:
    path = paths.CONTROLLER
    reads: list[Operation] = [Exists(path, watch=True), GetData(path)]
    _, found = await controller.access.read(reads)
    if found.code is Code.NO_NODE:
        return NOBODY
    if not found.is_ok:
        raise ZooKeeperError(found.code, path)
    data, stat = found.value
    try:
        return _Owner(znodes.decode_controller(data).broker_id, stat.ephemeral_owner)
    except MalformedZnodeError as error:
        # An administrator has written to the znode. No broker is the controller until the znode is deleted.
        LOG.warning("%s cannot be read; delete it to elect a controller: %s", path, error)
        return _Owner(NO_CONTROLLER, stat.ephemeral_owner)


async def _stand(controller: ZooKeeperController) -> None:
    """Tries to become the controller. If the election had no effect and nobody else was elected either, tries again
    later, because then no watch will fire."""
    try:
        epoch, epoch_version = await _create(controller)
    except ControllerMovedError:
        if await resign_if_moved(controller) == NOBODY:
            LOG.info("broker %d was not elected, and tries again", controller.settings.broker_id)
            controller.schedule(RETRY_MS, Reelect)
        else:
            LOG.info("broker %d was elected as the controller", controller.active_controller_id)
        return
    controller.begin(epoch, epoch_version)
    try:
        await failover.take_over(controller)
    except (SessionLostError, ControllerMovedError):
        raise
    except Exception:
        LOG.exception("broker %d cannot take over as the controller, so it gives up its epoch %d",
                      controller.settings.broker_id, epoch)  # fmt: skip
        await give_up(controller)


async def _create(controller: ZooKeeperController) -> tuple[int, int]:
    """Elects this broker. Returns the new epoch, and the version of `/controller_epoch`. Raises ControllerMovedError if
    another broker was faster, or if the election had no effect."""
    epoch, version = await _epoch(controller)
    settings = controller.settings
    content = znodes.encode_controller(settings.broker_id, controller.surroundings.now_ms())
    path = paths.CONTROLLER
    election = Multi(
        [
            Create(path, content, CreateMode.EPHEMERAL, settings.acl(path)),
            SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
        ]
    )
    (result,) = await controller.access.submit([election])
    if result.is_ok:
        return epoch + 1, result.value[1].value.version
    if result.code in (Code.CONNECTION_LOSS, Code.NODE_EXISTS, Code.BAD_VERSION):
        return await _read_back(controller, epoch + 1)
    raise ZooKeeperError(result.code, path)


async def _read_back(controller: ZooKeeperController, epoch: int) -> tuple[int, int]:
    """Finds out whether an election with an unknown outcome succeeded. It succeeded if `/controller` belongs to this
    session and the znode of the epoch contains `epoch`. An ephemeral znode from an earlier session of this broker does
    not count, because ZooKeeper will delete it."""
    await controller.access.read([Sync(paths.CONTROLLER)])
    owner = await _owner(controller)
    found, version = await _epoch(controller)
    mine = _Owner(controller.settings.broker_id, controller.zookeeper.session_id)
    if owner == mine and found == epoch:
        return epoch, version
    raise ControllerMovedError(version, [])


async def _epoch(controller: ZooKeeperController) -> tuple[int, int]:
    """Returns the controller epoch and the version of `/controller_epoch`."""
    data, stat = await _read_epoch(controller)
    return znodes.decode_controller_epoch(data), stat.version


async def _read_epoch(controller: ZooKeeperController) -> tuple[bytes | None, Stat]:
    """Reads `/controller_epoch`. Creates that znode if it does not exist yet."""
    path = paths.CONTROLLER_EPOCH
    (found,) = await controller.access.read([GetData(path)])
    if found.code is Code.NO_NODE:
        create = Create(path, znodes.encode_controller_epoch(FIRST_EPOCH), acl=controller.settings.acl(path))
        await controller.access.submit([create])  # may fail, if another broker has created it with the same value
        (found,) = await controller.access.read([GetData(path)])
    if not found.is_ok:
        raise ZooKeeperError(found.code, path)
    data, stat = found.value
    return data, stat
