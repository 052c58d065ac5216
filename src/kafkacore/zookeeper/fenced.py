"""Writes of a controller that take effect only while it is the active controller. Each multi first checks the version
of /controller_epoch (KAFKA-6082; the redesign calls this multi-check-and-set).

Each multi is as large as the limits on operations and bytes allow, because large multis are faster (Appendix A of the
redesign document). A multi above jute.maxbuffer would break the connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ZooKeeperClient
from kafkacore.zookeeper.operations import Check, Create, Delete, Multi, Result, SetData

Write = Create | Delete | SetData

MAX_MULTI_OPERATIONS: Final = 2_000
MAX_MULTI_BYTES: Final = 400_000  # well below jute.maxbuffer, which also bounds the server's own transactions
MAX_ROUNDS: Final = 8  # after this many rounds with conflicts, each remaining write gets its own multi
_WRITE_BYTES: Final = 64  # the size of a write in a request, without its path, its data and the identities in its ACL


class ControllerMovedError(Exception):
    """Another broker has become the controller, so /controller_epoch has another version. `results` contains the result
    of each write that was made or tried before. A write whose result is None had no effect."""

    def __init__(self, epoch_version: int, results: list[Result | None]) -> None:
        super().__init__(f"{paths.CONTROLLER_EPOCH} no longer has version {epoch_version}: the controller has moved")
        self.results = results


async def write_fenced(
    client: ZooKeeperClient,
    writes: Sequence[Write],
    epoch_version: int,
    *,
    max_operations: int = MAX_MULTI_OPERATIONS,
    max_bytes: int = MAX_MULTI_BYTES,
) -> list[Result]:
    """Makes all writes in order, in as few multis as the limits allow. Returns the result of each write.

    If one write fails, for example with BAD_VERSION, only its own result has the error, and the other writes are made
    without it. The code CONNECTION_LOSS means that the outcome of the write is unknown. The writes of a multi are
    atomic, but callers must not rely on how the writes are divided into multis. Two writes must not change the same
    znode without a version, because a conflict in another write can change their order. Raises ControllerMovedError.
    """
    check = Check(paths.CONTROLLER_EPOCH, epoch_version)
    results: list[Result | None] = [None] * len(writes)
    runs = list(cut(writes, max_operations, max_bytes))
    rounds = 0
    while runs:
        answers = await client.submit([Multi((check, *[writes[place] for place in run])) for run in runs])
        again: list[Sequence[int]] = []
        is_alone = rounds >= MAX_ROUNDS  # whether each write gets its own multi
        has_conflict = is_deposed = False
        for run, answer in zip(runs, answers, strict=True):
            failed = _first_failed(answer)
            if failed is None:
                _note(results, run, answer)
            elif failed == 0:
                is_deposed = True
            elif has_conflict and not is_alone:
                # This write may have failed only because an earlier multi failed: for example, a child before its
                # parent. Try it again.
                again.append(run)
            else:
                has_conflict = True
                place = failed - 1
                results[run[place]] = answer.value[failed]
                again += [part for part in (run[:place], run[place + 1 :]) if part]
        if is_deposed:
            raise ControllerMovedError(epoch_version, results)
        rounds += 1
        runs = again if rounds < MAX_ROUNDS else [[place] for run in again for place in run]
    return [result for result in results if result is not None]


def _first_failed(answer: Result) -> int | None:
    """Returns the index of the operation that caused the failure. Returns None if all operations took effect, or if the
    server processed none of them."""
    if answer.is_ok or answer.value is None:
        return None
    return next(place for place, each in enumerate(answer.value) if each.code is answer.code)


def _note(results: list[Result | None], run: Sequence[int], answer: Result) -> None:
    if answer.is_ok:
        for place, result in zip(run, answer.value[1:], strict=True):
            results[place] = result
    else:
        for place in run:
            results[place] = Result(answer.code)


def cut(writes: Sequence[Write], max_operations: int, max_bytes: int) -> Iterator[Sequence[int]]:
    """Yields ranges of positions that each fit into one multi. A write larger than `max_bytes` is alone in its
    multi."""
    begin, size = 0, 0
    for place, write in enumerate(writes):
        bytes_ = _size(write)
        if place > begin and (place - begin >= max_operations or size + bytes_ > max_bytes):
            yield range(begin, place)
            begin, size = place, 0
        size += bytes_
    if begin < len(writes):
        yield range(begin, len(writes))


def _size(write: Write) -> int:
    path = write.path
    size = _WRITE_BYTES + (len(path) if path.isascii() else len(path.encode()))
    if not isinstance(write, Delete):
        size += len(write.data or b"")
    if isinstance(write, Create):
        size += sum(12 + len(each.scheme) + 4 * len(each.identity) for each in write.acl)
    return size
