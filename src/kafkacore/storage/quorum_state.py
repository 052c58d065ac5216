"""The file quorum-state. It contains the epoch, the leader and the vote that a quorum member must remember across a
restart (KIP-595, KIP-853)."""

from __future__ import annotations

import json
import os
from typing import Final, NamedTuple

from kafkacore._fast.base.uuid import ZERO, Uuid
from kafkacore.runtime.files import OS_FILES, Files, replace
from kafkacore.storage.errors import MalformedFileError

LAST_EPOCH: Final = (1 << 31) - 1
NAME: Final = "quorum-state"
NOBODY: Final = -1
_IMPOSSIBLE_EPOCH: Final = (
    "has leader epoch {}, but no leader can be elected in this epoch or a later one: restore the file. If this is the "
    "only controller, you may remove the file, because the metadata log contains the epoch; otherwise give this "
    "controller a new directory and let it follow the others"
)


class QuorumState(NamedTuple):
    """The content of the file. Only version 0 (kraft.version 0) has `voters`. Only version 1 has
    `voted_directory_id`."""

    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voted_directory_id: Uuid = ZERO
    voters: tuple[int, ...] = ()


def encode(state: QuorumState, version: int) -> bytes:
    """Returns one line of JSON, with Kafka's fields in Kafka's order. `version` is 0 or 1."""
    fields: dict[str, object]
    if version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
        }
        fields |= {"appliedOffset": 0, "currentVoters": [{"voterId": voter} for voter in state.voters]}
    else:
        fields = {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
        fields["votedDirectoryId"] = str(state.voted_directory_id)
    return json.dumps(fields | {"data_version": version}, separators=(",", ":")).encode()


def write(directory: str, state: QuorumState, version: int, files: Files = OS_FILES) -> None:
    """Writes the file into the directory of the metadata log, atomically and durably. Raises OSError."""
    replace(files, os.path.join(directory, NAME), encode(state, version))


def read(directory: str, files: Files = OS_FILES) -> QuorumState | None:
    """Reads the file. Returns None if the file does not exist, as on a member that has never voted. Raises
    MalformedFileError, OSError."""
    path = os.path.join(directory, NAME)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    return decode(data, path)


def decode(data: bytes, path: str = NAME) -> QuorumState:
    """Decodes the content of the file. Raises MalformedFileError, which names `path`."""
    try:
        fields = json.loads(data.split(b"\n", 1)[0])
    except ValueError:
        raise MalformedFileError(
            path,
            "is not JSON; without it this node cannot know how it voted: restore the file, or format a new "
            "directory for "
            "this controller and let it follow the others",
        ) from None
    if not isinstance(fields, dict) or fields.get("data_version") not in (0, 1):
        raise MalformedFileError(path, "has no data_version of 0 or 1")
    epoch = fields.get("leaderEpoch")
    if isinstance(epoch, int) and not 0 <= epoch < LAST_EPOCH:
        raise MalformedFileError(path, _IMPOSSIBLE_EPOCH.format(epoch))
    try:
        return QuorumState(
            leader_id=_int32(fields["leaderId"]),
            leader_epoch=_int32(fields["leaderEpoch"]),
            voted_id=_int32(fields["votedId"]),
            voted_directory_id=Uuid.parse(fields["votedDirectoryId"]) if fields["data_version"] == 1 else ZERO,
            voters=tuple(_int32(voter["voterId"]) for voter in fields.get("currentVoters") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedFileError(path, f"lacks a field or has a wrong one: {error}") from None


def _int32(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value!r} is not a 32-bit integer")
    return value
