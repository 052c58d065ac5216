"""Checks all log directories of a node together: whether they belong to the same cluster and node, and whether the node
can start with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kafkacore._fast.base.uuid import Uuid
from kafkacore.config import BrokerConfig
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import meta_properties
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError, reason
from kafkacore.storage.meta_properties import MetaProperties
from kafkacore.storage.names import metadata_directory

LOG: Final = logging.getLogger("kafkacore.storage")


class Loaded(NamedTuple):
    """The log directories that were found. `failed` holds the error of each unreadable directory. `empty` lists
    directories that are missing or not formatted."""

    properties: Mapping[str, MetaProperties]
    empty: tuple[str, ...]
    failed: Mapping[str, Exception]

    def check(self, cluster_id: str | None, node_id: int) -> None:
        """Checks that the directories belong to this cluster and node, and that no two of them have the same id.
        Otherwise raises LogDirectoryError."""
        owners: dict[Uuid, str] = {}
        for directory, found in self.properties.items():
            path = meta_properties.path_in(directory)
            cluster_id = cluster_id or found.cluster_id
            if found.cluster_id not in (None, cluster_id):
                raise LogDirectoryError(
                    f"{path}: cluster.id={found.cluster_id}, but {cluster_id} is expected; "
                    "the directory belongs to another cluster: check log.dirs, or move the directory away"
                )
            if found.node_id not in (None, node_id):
                raise LogDirectoryError(
                    f"{path}: node.id={found.node_id}, but the configuration has node.id={node_id}; the directory "
                    "belongs to another node: check node.id and log.dirs"
                )
            if found.directory_id is not None:
                if found.directory_id.is_reserved:
                    raise LogDirectoryError(f"{path}: directory.id={found.directory_id} is reserved")
                other = owners.setdefault(found.directory_id, directory)
                if other != directory:
                    raise LogDirectoryError(
                        f"{path}: directory.id={found.directory_id} is also that of {other}; one is a copy of the other"
                    )


class NodeDirectories(NamedTuple):
    """The cluster of a node, and the id of each usable log directory."""

    cluster_id: str
    node_id: int
    directory_ids: Mapping[str, Uuid]
    failed: Mapping[str, Exception]

    def without(self, failed: Mapping[str, Exception]) -> NodeDirectories:
        """Returns a copy without the directories in `failed`."""
        ids = {path: directory_id for path, directory_id in self.directory_ids.items() if path not in failed}
        return self._replace(directory_ids=ids, failed={**self.failed, **failed})

    def serving(self, paths: Iterable[str]) -> list[str]:
        """Returns the usable directories among `paths`. Logs the others. Raises LogDirectoryError if no directory is
        usable."""
        found = []
        for path in paths:
            if path in self.directory_ids:
                found.append(path)
            else:
                LOG.error("the log directory %s is offline: %s", path, reason(self.failed[path]))
        if not found:
            raise LogDirectoryError("no directory of log.dirs is usable, see above: repair one, or add another")
        return found


def load(directories: Iterable[str], files: Files = OS_FILES) -> Loaded:
    """Reads meta.properties from each directory. Never raises."""
    properties: dict[str, MetaProperties] = {}
    empty: list[str] = []
    failed: dict[str, Exception] = {}
    for directory in dict.fromkeys(directories):
        try:
            found = meta_properties.read(directory, files)
        except (OSError, MalformedFileError) as error:
            failed[directory] = error
            continue
        if found is None:
            empty.append(directory)
        else:
            properties[directory] = found
    return Loaded(properties, tuple(empty), failed)


def open_directories(
    config: BrokerConfig,
    now_ms: int,
    files: Files = OS_FILES,
    random_uuid: Callable[[], Uuid] = Uuid.random,
) -> NodeDirectories:
    """Checks every log directory at the start of a KRaft node. Gives a directory id to each directory without one
    (KIP-858).

    Raises LogDirectoryError, which names the directory and the remedy. If a directory other than metadata.log.dir is
    unreadable, it is only reported in `failed`.
    """
    loaded = load(config.all_log_dirs, files)
    metadata_dir = config.metadata_log_dir
    if metadata_dir in loaded.failed:
        raise LogDirectoryError(
            f"{metadata_dir}: cannot be read, and holds the metadata: {reason(loaded.failed[metadata_dir])}"
        )
    loaded.check(None, config.node_id)
    if loaded.empty:
        raise LogDirectoryError(
            f"{loaded.empty[0]}: has no meta.properties; format it first: {format_command(config, loaded)}"
        )
    directory_ids: dict[str, Uuid] = {}
    for directory, found in loaded.properties.items():
        _check_kraft(directory, found, metadata_dir, files)
        directory_id = found.directory_id
        if directory_id is None:
            directory_id = random_uuid()
            LOG.info("giving %s the id %s", directory, directory_id)
            meta_properties.write(directory, found._replace(directory_id=directory_id), now_ms, files)
        directory_ids[directory] = directory_id
    cluster_id = loaded.properties[metadata_dir].cluster_id
    assert cluster_id is not None
    return NodeDirectories(cluster_id, config.node_id, directory_ids, loaded.failed)


def open_zookeeper_directories(
    config: BrokerConfig,
    cluster_id: str,
    now_ms: int,
    files: Files = OS_FILES,
    random_uuid: Callable[[], Uuid] = Uuid.random,
) -> NodeDirectories:
    """Checks every log directory at the start of a broker in ZooKeeper mode. In this mode nobody formats a directory,
    so this function writes version 0 of meta.properties into new directories. A directory without an id gets an id that
    is valid until the process ends.

    Raises LogDirectoryError, OSError.
    """
    loaded = load(config.log_dirs, files)
    if len(loaded.failed) == len(config.log_dirs):
        path, error = next(iter(loaded.failed.items()))
        raise LogDirectoryError(f"no directory of log.dirs is usable: {path}: {reason(error)}")
    for directory, found in loaded.properties.items():
        if found.version != 0:
            raise LogDirectoryError(
                f"{meta_properties.path_in(directory)}: version={found.version}, of KRaft mode, cannot be used in "
                "ZooKeeper mode"
            )
    loaded.check(cluster_id, config.node_id)
    failed = dict(loaded.failed)
    properties = dict(loaded.properties)
    for directory in loaded.empty:
        try:
            files.make_directories(directory)
            made = properties[directory] = MetaProperties(cluster_id, config.node_id, version=0)
            meta_properties.write(directory, made, now_ms, files)
        except OSError as error:
            properties.pop(directory, None)
            failed[directory] = error
    ids = {path: found.directory_id or random_uuid() for path, found in properties.items()}
    return NodeDirectories(cluster_id, config.node_id, ids, failed)


def format_command(config: BrokerConfig, loaded: Loaded) -> str:
    """Returns the command that formats the unformatted directories. A user who pastes the command must replace FILE by
    the name of the configuration file. For a node that is not a cluster by itself, the user must also replace ID, and
    also VOTERS if the node is a controller."""
    known = next((found.cluster_id for found in loaded.properties.values() if found.cluster_id), None)
    is_controller = "controller" in config.process_roles
    voters = config.controller_quorum_voters
    alone = is_controller and len(voters or config.controller_quorum_bootstrap_servers) == 1
    cluster_id = known or ('"$(kafkacore storage random-uuid)"' if alone else "ID")
    words = [f"kafkacore storage format --config FILE --cluster-id {cluster_id}"]
    if loaded.properties:
        words.append("--ignore-formatted")
    if is_controller and not voters:
        first = "--no-initial-controllers" if loaded.properties else "--initial-controllers VOTERS"
        words.append("--standalone" if alone else first)
    if cluster_id == "ID":
        words.append("(all nodes of a cluster have the same ID)")
    return " ".join(words)


def _check_kraft(directory: str, found: MetaProperties, metadata_dir: str, files: Files) -> None:
    path = meta_properties.path_in(directory)
    if found.version == 0:
        raise LogDirectoryError(f"{path}: version=0, of ZooKeeper mode, cannot be used in KRaft mode")
    misplaced = misplaced_metadata(metadata_dir, directory, files)
    if misplaced is not None:
        raise LogDirectoryError(misplaced)


def misplaced_metadata(metadata_dir: str, directory: str, files: Files = OS_FILES) -> str | None:
    """Returns the message about a metadata log that is in `directory` instead of `metadata_dir`. Returns None if
    `directory` has no metadata log."""
    misplaced = metadata_directory(directory)
    if directory == metadata_dir or not files.exists(misplaced):
        return None
    return (
        f"{misplaced}: the metadata log is not in metadata.log.dir={metadata_dir}; "
        "move it there, or change metadata.log.dir"
    )
