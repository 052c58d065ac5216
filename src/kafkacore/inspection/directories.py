"""Describes the log directories of a node for `kafkacore storage info`: the cluster and node to which they belong,
their problems, and remarks.

The lines that Apache Kafka's kafka-storage.sh prints come first, with Kafka's text. Directories without problems get no
other lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from kafkacore.config import BrokerConfig
from kafkacore.inspection.findings import Findings
from kafkacore.inspection.log_directory import LogDirectoryInspection
from kafkacore.raft.voters import ReplicaKey
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import directories, meta_properties
from kafkacore.storage.directories import Loaded
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError
from kafkacore.storage.meta_properties import MetaProperties


def describe_directories(config: BrokerConfig, say: Callable[[str], None] = print, files: Files = OS_FILES) -> bool:
    """Reports the cluster and node of the log directories, and every problem, through `say`. Returns False if there is
    a problem."""
    findings = Findings()
    found: list[str] = []
    formatted: dict[str, MetaProperties] = {}
    for directory in sorted(config.all_log_dirs):
        if not files.is_directory(directory):
            if files.exists(directory):
                findings.problems.append(f"{directory} is not a directory")
            else:
                _unformatted(config, f"{directory} does not exist", findings)
            continue
        found.append(directory)
        try:
            properties = meta_properties.read(directory, files)
        except (OSError, MalformedFileError) as error:
            findings.problems.append(f"Error loading {error}")
            continue
        if properties is None:
            _unformatted(config, f"{directory} is not formatted.", findings)
        else:
            formatted[directory] = properties
        if files is OS_FILES and not os.access(directory, os.W_OK | os.X_OK):
            findings.problems.append(f"{directory} cannot be written to by this user; the node could not start")
    _check_owners(config, formatted, findings)
    _advise(config, directories.load(found, files), findings)
    _check_logs(config, found, formatted, findings)
    _say_list(say, "Found log director{}:", ("y", "ies"), found)
    if formatted:
        fields = ", ".join(f"{key}={value}" for key, value in sorted(next(iter(formatted.values())).lines().items()))
        say(f"Found metadata: {{{fields}}}")
        say("")
    _say_list(say, "Found problem{}:", ("", "s"), findings.problems)
    _say_list(say, "Found remark{}:", ("", "s"), findings.remarks)
    return not findings.problems


def _unformatted(config: BrokerConfig, text: str, findings: Findings) -> None:
    """Reports a directory without meta.properties. A broker in ZooKeeper mode formats such a directory itself."""
    if config.zookeeper_mode:
        findings.remarks.append(f"{text.removesuffix('.')}; the broker formats it when it starts")
    else:
        findings.problems.append(text)


def _check_owners(config: BrokerConfig, formatted: Mapping[str, MetaProperties], findings: Findings) -> None:
    """Checks that all directories belong to the same cluster, node and mode, and have different ids."""
    if not formatted:
        return
    first, *others = formatted.values()
    for properties in others:
        if properties.cluster_id != first.cluster_id:
            findings.problems.append("Mismatched cluster IDs between storage directories.")
        elif properties.node_id != first.node_id:
            findings.problems.append("Mismatched node IDs between storage directories.")
    expected = 0 if config.zookeeper_mode else 1
    if any(properties.version != expected for properties in formatted.values()):
        modes = ("ZooKeeper", "KRaft") if config.zookeeper_mode else ("KRaft", "ZooKeeper")
        findings.problems.append(
            f"The configuration is for {modes[0]} mode, but the directories are formatted for {modes[1]} mode."
        )
    try:
        Loaded(formatted, (), {}).check(None, config.node_id)
    except LogDirectoryError as error:
        findings.problems.append(str(error))
    for directory in formatted:
        misplaced = (
            None if config.zookeeper_mode else directories.misplaced_metadata(config.metadata_log_dir, directory)
        )
        if misplaced is not None:
            findings.problems.append(misplaced)


def _advise(config: BrokerConfig, loaded: Loaded, findings: Findings) -> None:
    """Adds remarks that tell a new user what to do next."""
    if not config.is_set("log.dirs") and not config.is_set("log.dir"):
        findings.remarks.append(f"neither log.dirs nor log.dir is set, and {config.log_dirs[0]} is their default")
    if loaded.empty and not config.zookeeper_mode:
        findings.remarks.append(f"format the missing directories with: {directories.format_command(config, loaded)}")
    for directory, properties in loaded.properties.items():
        if properties.version == 0 and not config.zookeeper_mode:
            findings.remarks.append(
                f"{directory}: belongs to a broker in ZooKeeper mode; migrate its cluster with Apache Kafka up to 3.9 "
                "(KIP-866), or use another directory in log.dirs"
            )


def _check_logs(
    config: BrokerConfig, found: list[str], formatted: Mapping[str, MetaProperties], findings: Findings
) -> None:
    """Inspects the logs of each directory. Finds logs that are in two directories."""
    holders: dict[str, str] = {}
    topic_ids: dict[str, tuple[str, str]] = {}
    for directory in found:
        inspection = LogDirectoryInspection(directory, findings, topic_ids)
        in_kraft = not config.zookeeper_mode and (directory not in formatted or formatted[directory].version > 0)
        inspection.run(
            has_metadata=in_kraft and directory == config.metadata_log_dir,
            voter=_voter(config, formatted.get(directory)),
        )
        for name in inspection.live:
            other = holders.setdefault(name, directory)
            if other != directory:
                findings.problems.append(
                    f"{os.path.join(directory, name)}: the same partition is in {other}; "
                    "move the older of the two directories away"
                )


def _voter(config: BrokerConfig, properties: MetaProperties | None) -> ReplicaKey | None:
    """Returns the voter to which a directory belongs, if the directory has an id (KIP-853)."""
    if properties is None or properties.directory_id is None or "controller" not in config.process_roles:
        return None
    return ReplicaKey(config.node_id, properties.directory_id)


def _say_list(say: Callable[[str], None], title: str, endings: tuple[str, str], lines: list[str]) -> None:
    if lines:
        say(title.format(endings[len(lines) > 1]))
        for line in lines:
            say(f"  {line}")
        say("")
