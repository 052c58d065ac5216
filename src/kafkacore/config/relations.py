"""Checks the keys of a node against each other. The rules come from KafkaConfig: from Kafka 4.3 for KRaft mode, and
from Kafka 3.9 for ZooKeeper mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacore.config.errors import ConfigError

if TYPE_CHECKING:
    from kafkacore.config.broker import BrokerConfig

_MIN_DEDUPE_BYTES_PER_THREAD = 1024 * 1024
_LAST_CODEC = 4


def check(config: BrokerConfig) -> None:
    """Raises ConfigError for the first setting that contradicts another one."""
    _check_identity(config)
    _check_log(config)
    _check_replication(config)
    if config.zookeeper_mode:
        _check_zookeeper_mode(config)
    else:
        _check_quorum(config)
        _check_controller_listeners(config)
    _check_advertised(config)
    _check_control_plane(config)
    _check_connections(config)
    _check_sampled_log(config)
    _check_sasl(config)
    _check_groups(config)


def notes(config: BrokerConfig) -> Iterator[str]:
    """Yields messages about settings that are allowed, but probably not intended."""
    interval_ms, session_ms = config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms
    if interval_ms * 2 > session_ms:
        yield (
            f"broker.heartbeat.interval.ms={interval_ms}: should be at most half of "
            f"broker.session.timeout.ms={session_ms}, otherwise one late heartbeat fences a broker that is alive"
        )
    if config.process_roles == {"broker"} and len(config.controller_listener_names) > 1:
        yield f"controller.listener.names: a broker uses only the first, {config.controller_listener_names[0]}"


def _refuse(config: BrokerConfig, key: str, allowed: str) -> ConfigError:
    text = config.get(key)
    if text is None and (row := config.keys.get(key)) is not None:
        text = row.default
    return ConfigError(key, text, allowed)


def _check_identity(config: BrokerConfig) -> None:
    if config.zookeeper_mode:
        if not config.broker_id_generation_enable and config.broker_id < 0:
            raise _refuse(config, "broker.id", "must be at least 0 while broker.id.generation.enable is false")
        if not -1 <= config.broker_id <= config.reserved_broker_max_id and config.broker_id_generation_enable:
            raise _refuse(
                config, "broker.id", f"must be from -1 to reserved.broker.max.id={config.reserved_broker_max_id}"
            )
        return
    if not config.process_roles:
        raise _refuse(config, "process.roles", "it has no default and must be broker, controller, or broker,controller")
    if config.value("broker.id") != config.node_id:
        raise _refuse(config, "broker.id", f"must be the same as node.id={config.node_id}, or be left out")


def _check_log(config: BrokerConfig) -> None:
    if config.log_roll_ms < 1:
        raise _refuse(config, "log.roll.ms", "must be at least 1")
    if config.log_roll_jitter_ms < 0:
        raise _refuse(config, "log.roll.jitter.ms", "must be at least 0")
    if config.log_flush_interval_ms < 0:
        name = "log.flush.interval.ms"
        raise _refuse(config, name if config.is_set(name) else "log.flush.scheduler.interval.ms", "must be at least 0")
    if config.log_retention_ms == 0:
        key = next(
            (name for name in ("log.retention.ms", "log.retention.minutes") if config.is_set(name)),
            "log.retention.hours",
        )
        raise _refuse(config, key, "must be at least 1, or -1 to keep records for ever")
    if not config.log_dirs:
        raise _refuse(config, "log.dirs", "must name at least one directory, here or in log.dir")
    threads = max(config.log_cleaner_threads, 1)
    if config.log_cleaner_dedupe_buffer_size // threads <= _MIN_DEDUPE_BYTES_PER_THREAD:
        raise _refuse(
            config,
            "log.cleaner.dedupe.buffer.size",
            f"must be more than 1 MiB for each of log.cleaner.threads={threads}",
        )
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        limit = config.log_cleaner_max_compaction_lag_ms
        raise _refuse(
            config, "log.cleaner.min.compaction.lag.ms", f"must be at most log.cleaner.max.compaction.lag.ms={limit}"
        )
    if not config.zookeeper_mode:
        _check_cordoned(config)


def _check_cordoned(config: BrokerConfig) -> None:
    cordoned = config.value("cordoned.log.dirs")
    assert isinstance(cordoned, tuple)
    if "*" in cordoned and len(cordoned) > 1:
        raise _refuse(config, "cordoned.log.dirs", "must be * alone, or a list of directories")
    for path in cordoned:
        if path != "*" and path not in config.log_dirs:
            raise _refuse(config, "cordoned.log.dirs", f"{path} is not one of log.dirs={','.join(config.log_dirs)}")


def _check_replication(config: BrokerConfig) -> None:
    # Apache Kafka accepts 0 here, and then divides by 0 when the first replica moves.
    if config.num_replica_alter_log_dirs_threads < 1:
        raise _refuse(config, "num.replica.alter.log.dirs.threads", "must be at least 1, or be left out")
    # Apache Kafka 3.9 accepts 0, and then divides by 0 when it follows the first partition.
    if config.num_replica_fetchers == 0:
        raise _refuse(config, "num.replica.fetchers", "must not be 0")
    wait_ms = config.replica_fetch_wait_max_ms
    if wait_ms > config.replica_socket_timeout_ms:
        raise _refuse(config, "replica.socket.timeout.ms", f"must be at least replica.fetch.wait.max.ms={wait_ms}")
    if wait_ms > config.replica_lag_time_max_ms:
        limit = config.replica_lag_time_max_ms
        raise _refuse(
            config,
            "replica.fetch.wait.max.ms",
            f"must be at most replica.lag.time.max.ms={limit}, otherwise the ISR keeps changing",
        )


def _check_quorum(config: BrokerConfig) -> None:
    roles, voters = config.process_roles, {voter.node_id for voter in config.controller_quorum_voters}
    if not voters and not config.controller_quorum_bootstrap_servers:
        raise ConfigError(
            "controller.quorum.bootstrap.servers",
            None,
            "set it to the host:port of the controllers, or set controller.quorum.voters",
        )
    if roles == {"broker"}:
        if config.node_id in voters:
            raise _refuse(
                config,
                "controller.quorum.voters",
                f"must not list node.id={config.node_id}, because this node is only a broker",
            )
        if config.controller_quorum_auto_join_enable:
            raise _refuse(
                config, "controller.quorum.auto.join.enable", "must be false unless process.roles has controller"
            )
    elif voters and config.node_id not in voters:
        raise _refuse(
            config, "controller.quorum.voters", f"must list node.id={config.node_id}, because this node is a controller"
        )


def _check_controller_listeners(config: BrokerConfig) -> None:
    names, roles = config.controller_listener_names, config.process_roles
    key = "controller.listener.names"
    if not names:
        raise _refuse(config, key, "must name at least one listener")
    if roles == {"broker"}:
        if config.controller_listeners:
            raise _refuse(config, key, "must not name a listener of `listeners` if process.roles is broker")
        for name in names:
            if name not in config.listener_security_protocol_map:
                raise _refuse(config, key, f"{name} must be in listener.security.protocol.map")
        return
    bound = {endpoint.listener for endpoint in config.listeners}
    for name in names:
        if name not in bound:
            raise _refuse(config, key, f"{name} must be one of listeners: {', '.join(sorted(bound))}")
    if roles == {"controller"}:
        if len(config.controller_listeners) != len(config.listeners):
            raise _refuse(
                config,
                "listeners",
                f"must contain only controller.listener.names ({','.join(names)}) if process.roles is controller",
            )
        if config.is_set("inter.broker.listener.name") and config.inter_broker_listener_name in names:
            raise _refuse(config, key, "must not contain the listener of inter.broker.listener.name")


def _check_zookeeper_mode(config: BrokerConfig) -> None:
    migrating = config.zookeeper_metadata_migration_enable
    if config.controller_listener_names and not migrating:
        raise _refuse(
            config, "controller.listener.names", "must be left out where process.roles is not set (ZooKeeper mode)"
        )
    if migrating and not config.controller_listener_names:
        raise ConfigError(
            "controller.listener.names", None, "must be set while zookeeper.metadata.migration.enable is true"
        )
    if migrating and config.broker_id < 0:
        raise _refuse(config, "broker.id", "must be at least 0 while zookeeper.metadata.migration.enable is true")
    if migrating and not config.controller_quorum_voters and not config.controller_quorum_bootstrap_servers:
        raise ConfigError(
            "controller.quorum.bootstrap.servers", None, "must be set while zookeeper.metadata.migration.enable is true"
        )


def _check_advertised(config: BrokerConfig) -> None:
    for endpoint in (*config.advertised_listeners, *config.advertised_controller_listeners):
        if endpoint.host == "0.0.0.0":
            key = "advertised.listeners" if config.is_set("advertised.listeners") else "listeners"
            raise _refuse(config, key, "clients cannot connect to 0.0.0.0: advertise an address that they can reach")
    if not config.zookeeper_mode and "broker" not in config.process_roles:
        return
    advertised = [endpoint.listener for endpoint in config.advertised_listeners]
    bound = [endpoint.listener for endpoint in config.listeners]
    if not advertised:
        raise _refuse(config, "listeners", "must have at least one listener that is not in controller.listener.names")
    for name in advertised:
        if name not in bound:
            raise _refuse(config, "advertised.listeners", f"{name} must be one of listeners: {', '.join(bound)}")
    if config.inter_broker_listener_name not in advertised:
        key = (
            "inter.broker.listener.name"
            if config.is_set("inter.broker.listener.name")
            else "security.inter.broker.protocol"
        )
        raise _refuse(config, key, f"must be the name of an advertised listener: {', '.join(advertised)}")


def _check_control_plane(config: BrokerConfig) -> None:
    """Checks the control plane's listener. The controller of ZooKeeper mode can have a separate listener for its
    requests (KIP-291)."""
    key = "control.plane.listener.name"
    if not config.is_set(key):
        return
    if not config.zookeeper_mode:
        raise _refuse(config, key, "is not supported in KRaft mode, where controllers have controller.listener.names")
    name = str(config.value(key)).upper()
    advertised = [endpoint.listener for endpoint in config.advertised_listeners]
    if name not in config.listener_security_protocol_map:
        raise _refuse(config, key, "must be in listener.security.protocol.map")
    if name not in advertised or config.control_plane_listener is None:
        raise _refuse(config, key, f"must be the name of an advertised listener: {', '.join(advertised)}")
    if name == config.inter_broker_listener_name:
        raise _refuse(config, key, "must not be the same as inter.broker.listener.name")


def _check_connections(config: BrokerConfig) -> None:
    queued, frame = config.queued_max_request_bytes, config.socket_request_max_bytes
    if 0 < queued < frame:
        raise _refuse(config, "queued.max.request.bytes", f"must be at least socket.request.max.bytes={frame}, or -1")
    overrides = config.max_connections_per_ip_overrides
    if config.max_connections_per_ip == 0 and not overrides:
        raise _refuse(
            config, "max.connections.per.ip", "must be at least 1 unless max.connections.per.ip.overrides is set"
        )
    idle_ms, delay_ms = config.connections_max_idle_ms, config.connection_failed_authentication_delay_ms
    if 0 <= idle_ms <= delay_ms:
        raise _refuse(
            config, "connection.failed.authentication.delay.ms", f"must be less than connections.max.idle.ms={idle_ms}"
        )


def _check_sampled_log(config: BrokerConfig) -> None:
    if config.sampled_request_log_every and not config.sampled_request_log_file:
        raise _refuse(config, "sampled.request.log.every", "must be 0 unless sampled.request.log.file names a file")


def _check_sasl(config: BrokerConfig) -> None:
    if not config.inter_broker_security_protocol.startswith("SASL_"):
        return
    name = f"listener.name.{config.inter_broker_listener_name.lower()}.sasl.enabled.mechanisms"
    enabled = config.value(name if config.is_set(name) else "sasl.enabled.mechanisms")
    if config.sasl_mechanism_inter_broker_protocol not in (enabled if isinstance(enabled, tuple) else ()):
        raise _refuse(config, "sasl.mechanism.inter.broker.protocol", "must be one of sasl.enabled.mechanisms")


def _check_groups(config: BrokerConfig) -> None:
    codec = "offsets.topic.compression.codec"
    if config.is_set(codec) and not 0 <= config.offsets_topic_compression_codec <= _LAST_CODEC:
        raise _refuse(config, codec, "must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")
