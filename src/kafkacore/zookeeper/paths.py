"""The paths of the znodes of Apache Kafka 3.9, and the names that they contain."""

from __future__ import annotations

from typing import Final

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "config_change_"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
CONSUMERS: Final = "/consumers"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
DELEGATION_TOKEN: Final = "/delegation_token"  # noqa: S105 - a path
DELEGATION_TOKENS: Final = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES: Final = "/delegation_token/token_changes"  # noqa: S105
DELEGATION_TOKEN_CHANGE_PREFIX: Final = "token_change_"  # noqa: S105
FEATURE: Final = "/feature"
MIGRATION: Final = "/migration"
ACL: Final = "/kafka-acl"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL: Final = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX: Final = "acl_changes_"

CONFIG_TYPES: Final = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY: Final = "<default>"

# Persistent znodes that a broker creates at its start, together with their parents.
PERSISTENT: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{entity_type}" for entity_type in CONFIG_TYPES),
)

_SEQUENCE_DIGITS: Final = 10


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def partition_state(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def config(entity_type: str, entity_name: str) -> str:
    """Returns the path of a configuration. `entity_name` is a sanitized name (see `sanitize`), DEFAULT_ENTITY, or a
    path such as `alice/clients/one`."""
    return f"{CONFIG}/{entity_type}/{entity_name}"


def config_change() -> str:
    """Returns the path for a Create with PERSISTENT_SEQUENTIAL."""
    return f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"


def isr_change() -> str:
    """Returns the path for a Create with PERSISTENT_SEQUENTIAL."""
    return f"{ISR_CHANGES}/{ISR_CHANGE_PREFIX}"


def log_dir_event() -> str:
    """Returns the path for a Create with PERSISTENT_SEQUENTIAL."""
    return f"{LOG_DIR_EVENTS}/{LOG_DIR_EVENT_PREFIX}"


def delegation_token(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def acl(resource_type: str, resource_name: str, pattern_type: str = "literal") -> str:
    """Returns the path of an ACL. `resource_type` is the name that Kafka uses in this path: Topic, Group, Cluster,
    TransactionalId, DelegationToken or User."""
    root = ACL if pattern_type == "literal" else f"{EXTENDED_ACL}/{pattern_type}"
    return f"{root}/{resource_type}/{resource_name}"


def parent(path: str) -> str:
    """Returns the parent of an absolute path. The parent of `/a` is `/`."""
    return path.rpartition("/")[0] or "/"


def name(path: str) -> str:
    """Returns the last part of a path."""
    return path.rpartition("/")[2]


def ancestors(path: str) -> list[str]:
    """Returns the paths above this one, from the top, without `/`."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def sequence_number(path_or_name: str) -> int:
    """Returns the number that the server appended to the name of a sequential znode. Raises ValueError for a name
    without a number."""
    digits = path_or_name[-_SEQUENCE_DIGITS:]
    if len(digits) < _SEQUENCE_DIGITS or not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{path_or_name!r} has no sequence number")
    return int(digits)


def check(path: str, *, sequential: bool = False) -> None:
    """Raises ValueError if a server would refuse the path. The path of a sequential znode can end with a slash."""
    if not path.startswith("/"):
        raise ValueError(f"a path must start with a slash: {path!r}")
    if path == "/":
        return
    body = path + "1" if sequential else path
    if body.endswith("/"):
        raise ValueError(f"a path must not end with a slash: {path!r}")
    for part in body[1:].split("/"):
        if not part or part in {".", ".."}:
            raise ValueError(f"a path must not have empty or relative parts: {path!r}")
    if not _PLAIN.issuperset(body) and any(map(_is_refused, body)):
        raise ValueError(f"a path must not have control characters or unpaired surrogates: {path!r}")


_PLAIN: Final = frozenset(map(chr, range(0x20, 0x7F)))


def _is_refused(letter: str) -> bool:
    code = ord(letter)
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF


_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def sanitize(entity_name: str) -> str:
    """Returns an entity's name as a part of a path. Uses URL encoding, with `%20` for a space, `%2A` for `*`, and an
    encoded `~`, as Kafka's `Sanitizer` does."""
    if _UNRESERVED.issuperset(entity_name):
        return entity_name
    return "".join(
        letter if letter in _UNRESERVED else "".join(f"%{byte:02X}" for byte in letter.encode())
        for letter in entity_name
    )
