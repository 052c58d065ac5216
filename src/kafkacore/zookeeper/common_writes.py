"""Writes that both brokers and controllers make. If the connection breaks, these functions read the znode to learn the
outcome."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ZooKeeperClient
from kafkacore.zookeeper.operations import (
    OPEN_ACL,
    Acl,
    Check,
    Code,
    Create,
    CreateMode,
    Delete,
    Exists,
    GetData,
    Multi,
    Stat,
    ZooKeeperError,
)


async def ensure_paths(client: ZooKeeperClient, wanted: Sequence[str], acl: Sequence[Acl] = OPEN_ACL) -> None:
    """Creates the missing persistent znodes and their parents. Raises ZooKeeperError."""
    every = dict.fromkeys(each for path in wanted for each in (*paths.ancestors(path), path))
    left = [Create(path, acl=acl) for path in every]
    while left:
        results = await client.submit(left)
        for write, result in zip(left, results, strict=True):
            if result.code not in {Code.OK, Code.NODE_EXISTS, Code.CONNECTION_LOSS, Code.NO_NODE}:
                raise ZooKeeperError(result.code, write.path)
        # If the outcome of a parent is unknown, the child is created again together with the parent.
        lost = [write for write, result in zip(left, results, strict=True) if result.code is Code.CONNECTION_LOSS]
        missing = [write for write, result in zip(left, results, strict=True) if result.code is Code.NO_NODE]
        if missing and not lost:
            raise ZooKeeperError(Code.NO_NODE, missing[0].path)
        left = [write for write in left if write in lost or write in missing]


async def ensure_chroot(client: ZooKeeperClient, chroot: str) -> None:
    """Creates the chroot of a cluster. `client` must be connected without a chroot. Raises ZooKeeperError."""
    if chroot:
        await ensure_paths(client, [chroot])


async def create_ephemeral(client: ZooKeeperClient, path: str, data: bytes, acl: Sequence[Acl] = OPEN_ACL) -> Stat:
    """Creates a znode that exists as long as this session, and returns its `Stat`.

    The znode may already exist for two reasons. This session may have created it, and the connection broke before the
    answer arrived. Or an earlier session of this client created it, and the server has not expired that session yet
    (KAFKA-7165). The znode's `ephemeral_owner` distinguishes the two cases. A znode of an earlier session is replaced.
    Raises ZooKeeperError, with NODE_EXISTS if another client owns the znode.
    """
    create = Create(path, data, CreateMode.EPHEMERAL, acl)
    while True:
        (result,) = await client.submit([create])
        if result.is_ok:
            return result.value.stat  # type: ignore[no-any-return]
        if result.code not in {Code.NODE_EXISTS, Code.CONNECTION_LOSS}:
            raise ZooKeeperError(result.code, path)
        (found,) = await client.read([Exists(path)])
        if found.code is Code.NO_NODE:
            continue  # the znode has disappeared, or the lost request did not take effect
        if not found.is_ok:
            raise ZooKeeperError(found.code, path)
        stat: Stat = found.value
        if stat.ephemeral_owner == client.session_id:
            return stat
        if stat.ephemeral_owner not in client.former_session_ids:
            raise ZooKeeperError(Code.NODE_EXISTS, path)
        # The version check prevents the deletion of a znode that another client has written since.
        (replaced,) = await client.submit([Multi((Check(path, stat.version), Delete(path, stat.version), create))])
        if replaced.is_ok:
            return replaced.value[2].value.stat  # type: ignore[no-any-return]
        if replaced.code not in {Code.CONNECTION_LOSS, Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS}:
            raise ZooKeeperError(replaced.code, path)


async def read_all(client: ZooKeeperClient, wanted: Sequence[str]) -> dict[str, tuple[bytes, Stat]]:
    """Returns the data and the `Stat` of those znodes that exist. Raises ZooKeeperError for an error other than
    NO_NODE."""
    found = {}
    for path, result in zip(wanted, await client.read([GetData(path) for path in wanted]), strict=True):
        if result.is_ok:
            found[path] = result.value
        elif result.code is not Code.NO_NODE:
            raise ZooKeeperError(result.code, path)
    return found
