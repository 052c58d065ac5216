"""The replica manager turns the committed image into roles of native partitions."""

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.replication_quota import BY_FOLLOWER, BY_LEADER
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.metadata.partitions import CHUNK_ROWS
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.made_ids import made_id
from kafkacore.protocol.messages import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication import roles
from kafkacore.replication.fetchers import Follow
from kafkacore.replication.replica_manager import SPARE_SETTINGS, Placed, ReplicaManager, TopicSettings

DIRECTORY = Uuid(b"d" * 16)
ID_A, ID_B = Uuid(b"a" * 16), Uuid(b"b" * 16)
ME, OTHER, THIRD = 1, 2, 3


class Logs:
    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self.deleted: list[tuple[str, int]] = []

    def open(
        self, topic: str, topic_id: Uuid, indexes: Sequence[int], directory: Uuid, settings: LogSettings
    ) -> list[PartitionHandle]:
        assert directory == DIRECTORY
        return [PartitionHandle(self.directory, topic, index, topic_id, settings) for index in indexes]

    def delete(self, partition: PartitionHandle) -> None:
        self.deleted.append((partition.topic, partition.index))

    def cordon(self, paths: Sequence[str]) -> None:
        self.cordoned = list(paths)


class Followers:
    """A stub that records which partitions are followed, and from which leader and leader epoch."""

    def __init__(self) -> None:
        self.now: dict[tuple[str, int], tuple[int, int]] = {}

    def follow(self, partitions: Iterable[Follow]) -> None:
        for each in partitions:
            assert each.partition.role == "follower"
            self.now[each.partition.topic, each.partition.index] = each.leader_id, each.leader_epoch

    def stop(self, partitions: Iterable[PartitionHandle]) -> None:
        for each in partitions:
            assert each.role != "gone"
            self.now.pop((each.topic, each.index), None)


class World:
    """A replica manager, and a publisher that passes records to it."""

    def __init__(self, path: Path, **overrides: str) -> None:
        config = BrokerConfig(
            {
                "process.roles": "broker",
                "node.id": str(ME),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "9@localhost:1",
                "log.dirs": str(path),
                **{key.replace("_", "."): text for key, text in overrides.items()},
            }
        )
        self.logs = Logs(LogDirectory(Environment(), str(path)))
        self.published: list[tuple[list[Placed], list[Uuid]]] = []
        self.followers, self.edges = Followers(), PartitionEdges(30_000)
        self.replicas = ReplicaManager(
            ME, config, self.logs, lambda *told: self.published.append(told), followers=self.followers, edges=self.edges
        )
        self.publisher = MetadataPublisher()
        self.publisher.subscribe(self.replicas.apply)
        self.commit(FeatureLevelRecord(name="metadata.version", feature_level=29))

    def commit(self, *records: Any) -> None:
        self.publisher.apply(records, self.publisher.applied_offset + 1, 1, 1)

    def topic(self, name: str, topic_id: Uuid, *partitions: Any) -> None:
        self.commit(TopicRecord(name=name, topic_id=topic_id), *partitions)

    def locate(self, topic: str, index: int, epoch: int = -1, **options: bool) -> Any:
        return self.replicas.locate(self.publisher.image, topic, index, epoch, **options)


def partition(topic_id: Uuid, index: int, leader: int = ME, replicas: Sequence[int] = (ME,), epoch: int = 0) -> Any:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=list(replicas),
        isr=list(replicas),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        directories=[DIRECTORY] * len(replicas),
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_created_topic_is_led_and_published_at_once(world: World) -> None:
    world.topic(
        "a", ID_A, partition(ID_A, 0), partition(ID_A, 1, OTHER, (OTHER, ME)), partition(ID_A, 2, OTHER, (OTHER,))
    )
    [(placed, gone)] = world.published
    [(name, topic_id, handles)] = placed
    assert (name, topic_id, gone) == ("a", ID_A, [])
    # This broker does not create a partition whose only replica is on another broker.
    assert [handle and handle.role for handle in handles] == ["leader", "follower"]
    assert world.locate("a", 2) == (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.locate("a", 3) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert world.locate("b", 0) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_every_partition_of_a_wide_topic_has_the_role_of_its_row(world: World) -> None:
    said = [(ME, (ME,), 0)] * 40 + [(OTHER, (OTHER, ME), 1), (ME, (ME, OTHER), 2)] * 20 + [(OTHER, (OTHER,), 0)] * 20
    world.topic("a", ID_A, *[partition(ID_A, index, *each) for index, each in enumerate(said)])
    handles = [world.replicas.by_name("a", index) for index in range(len(said))]
    told = [handle and (handle.index, handle.role, handle.leader_epoch) for handle in handles]
    assert told == [
        (index, "leader" if leader == ME else "follower", epoch) if ME in replicas else None
        for index, (leader, replicas, epoch) in enumerate(said)
    ]


def told_of(world: World, name: str, count: int) -> list[Any]:
    handles = [world.replicas.by_name(name, index) for index in range(count)]
    return [handle and (handle.topic, handle.index, handle.role, handle.leader_epoch) for handle in handles]


UNLIKE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "leader": {"leader": OTHER, "replicas": (ME, OTHER)},
    "replicas": {"replicas": (ME, OTHER)},
    "epoch": {"epoch": 5},
    "order": {},
    "freed row": {"epoch": 5},
}


@pytest.mark.parametrize("odd", UNLIKE)
def test_topics_created_together_have_the_roles_of_their_rows(world: World, odd: str) -> None:
    """The topics have more rows than fit into a chunk, and the last partition of one topic differs from the others."""
    count, number = 7, CHUNK_ROWS // 7 * 2
    unlike = 0 if odd == "freed row" else CHUNK_ROWS // 14
    world.topic("older", ID_A, *[partition(ID_A, index, epoch=1) for index in range(3)])
    if odd == "freed row":
        world.topic("gone", ID_B, partition(ID_B, 0))
        world.topic("behind it", Uuid(b"c" * 16), partition(Uuid(b"c" * 16), 0, epoch=3))
        world.commit(RemoveTopicRecord(topic_id=ID_B))  # the first new topic reuses this topic's row first
    records: list[Any] = [PartitionChangeRecord(topic_id=ID_A, partition_id=1, leader=ME)]
    expected = {}
    for at in range(number):
        name, topic_id = f"t{at}", Uuid(at.to_bytes(16, "big"))
        made = [partition(topic_id, index, epoch=3) for index in range(count)]
        if at == unlike:
            made[-1] = partition(topic_id, count - 1, **({"epoch": 3} | UNLIKE[odd]))
        records += [
            TopicRecord(name=name, topic_id=topic_id),
            *(made[::-1] if odd == "order" and at == unlike else made),
        ]
        expected[name] = [
            (name, each.partition_id, "leader" if each.leader == ME else "follower", each.leader_epoch) for each in made
        ]
    world.commit(*records)
    assert {name: told_of(world, name, count) for name in expected} == expected
    assert told_of(world, "older", 3) == [("older", index, "leader", 1 + (index == 1)) for index in range(3)]
    placed = {name: [handle and handle.index for handle in handles] for name, _, handles in world.published[-1][0]}
    assert placed == {name: list(range(count)) for name in expected}


def test_topic_without_leaders_is_created(world: World) -> None:
    world.topic("a", ID_A, *[partition(ID_A, index, leader=-1) for index in range(2)])
    assert told_of(world, "a", 2) == [("a", index, "follower", 0) for index in range(2)]


@pytest.mark.parametrize(("at_broker", "at_topic"), [("2", None), ("1", "2")])
def test_append_needs_min_insync_replicas(tmp_path: Path, at_broker: str, at_topic: str | None) -> None:
    world = World(tmp_path, min_insync_replicas=at_broker)
    for name, topic_id, isr in (("few", ID_A, [ME]), ("enough", ID_B, [ME, OTHER])):
        if at_topic is not None:
            world.commit(ConfigRecord(resource_type=2, resource_name=name, name="min.insync.replicas", value=at_topic))
        record = partition(topic_id, 0, ME, (ME, OTHER))
        record.isr = isr
        world.topic(name, topic_id, record)
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"v")
    batch = builder.build()
    few, enough = world.replicas.by_name("few", 0), world.replicas.by_name("enough", 0)
    assert few is not None and enough is not None
    assert few.append(batch, acks=-1, wait=False).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert few.append(batch, acks=1).error == ErrorCode.NONE
    assert enough.append(batch, acks=-1, wait=False).error == ErrorCode.NONE


def test_role_and_epoch_change_with_the_leader(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, ME, (ME, OTHER), epoch=3))
    handle = world.replicas.by_name("a", 0)
    assert handle is not None and (handle.role, handle.leader_epoch) == ("leader", 3)
    world.commit(PartitionChangeRecord(topic_id=ID_A, partition_id=0, leader=OTHER))
    assert (handle.role, handle.leader_epoch) == ("follower", 4)
    assert world.locate("a", 0) == (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.locate("a", 0, leader_only=False) == (handle, ErrorCode.NONE)


def test_epoch_of_a_client_is_compared_with_the_partitions_epoch(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, epoch=3))
    assert world.locate("a", 0, 2) == (None, ErrorCode.FENCED_LEADER_EPOCH)
    assert world.locate("a", 0, 4) == (None, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert world.locate("a", 0, 3)[1] == ErrorCode.NONE


def test_deleted_topic_is_gone_for_its_holders_and_its_name_is_free(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0))
    old = world.replicas.by_name("a", 0)
    assert old is not None
    world.commit(
        RemoveTopicRecord(topic_id=ID_A), TopicRecord(name="a", topic_id=ID_B), partition(ID_B, 0), partition(ID_B, 1)
    )
    assert old.role == "gone"
    assert world.logs.deleted == [("a", 0)]
    assert [(name, topic_id) for name, topic_id, _ in world.published[-1][0]] == [("a", ID_B)]
    assert world.published[-1][1] == [ID_A]
    assert world.replicas.by_id(ID_A, 0) is None and world.replicas.by_id(ID_B, 1) is not None


def test_partitions_stay_when_a_topic_without_an_id_gets_one(world: World) -> None:
    made = made_id("t")
    world.topic("t", made, partition(made, 0))
    handle = world.replicas.by_name("t", 0)
    world.commit(
        RemoveTopicRecord(topic_id=made), TopicRecord(name="t", topic_id=ID_A), partition(ID_A, 0), partition(ID_A, 1)
    )
    assert world.replicas.by_id(ID_A, 0) is world.replicas.by_name("t", 0) is handle
    assert world.logs.deleted == []
    assert handle is not None
    assert (handle.role, handle.state) != ("gone", "failed")
    assert world.replicas.by_id(made, 0) is None
    placed, gone = world.published[-1]
    assert [(name, topic_id, len(logs)) for name, topic_id, logs in placed] == [("t", ID_A, 2)]
    assert gone == [made]
    # The native log uses an id that this broker has assigned to it, and returns it in its reports.
    assert world.replicas.in_image((handle.topic_id, 0)) == (ID_A, 0)
    world.commit(RemoveTopicRecord(topic_id=ID_A))
    assert sorted(world.logs.deleted) == [("t", 0), ("t", 1)]
    assert world.replicas.in_image((made, 0)) == (made, 0)


def test_a_replica_that_moves_away_is_dropped(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, ME, (ME, OTHER)))
    world.commit(
        PartitionChangeRecord(
            topic_id=ID_A, partition_id=0, leader=OTHER, replicas=[OTHER], isr=[OTHER], directories=[DIRECTORY]
        )
    )
    assert world.logs.deleted == [("a", 0)]
    assert world.published[-1] == ([], [ID_A])


def test_topics_with_equal_configs_share_their_settings(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0))
    world.topic("b", ID_B, partition(ID_B, 0))
    image = world.publisher.image
    assert world.replicas.settings_of(image, "a") is world.replicas.settings_of(image, "b")
    world.commit(ConfigRecord(resource_type=2, resource_name="a", name="file.delete.delay.ms", value="7"))
    changed = world.replicas.by_name("a", 0)
    assert changed is not None and changed.settings.file_delete_delay_ms == 7
    other = world.replicas.by_name("b", 0)
    assert other is not None and other.settings.file_delete_delay_ms == 60_000


@pytest.mark.parametrize("hosts_it", [True, False])
def test_broker_forgets_settings_that_no_topic_of_it_uses(world: World, hosts_it: bool) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, ME if hosts_it else OTHER, (ME if hosts_it else OTHER,)))
    for number in range(3 * SPARE_SETTINGS):
        setting = ConfigRecord(resource_type=2, resource_name="a", name="file.delete.delay.ms", value=str(number))
        world.commit(setting)
        world.replicas.settings_of(world.publisher.image, "a")
    made = sum(type(each) is TopicSettings for each in gc.get_objects())
    assert made <= SPARE_SETTINGS + 10
    handle = world.replicas.by_name("a", 0)
    assert (handle is None) != hosts_it
    if handle is not None:
        assert handle.settings is world.replicas.settings_of(world.publisher.image, "a")


def test_default_of_all_brokers_applies_to_topics_without_settings(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0))
    world.commit(ConfigRecord(resource_type=4, resource_name="", name="log.segment.delete.delay.ms", value="9"))
    handle = world.replicas.by_name("a", 0)
    assert handle is not None and handle.settings.file_delete_delay_ms == 9


@pytest.mark.parametrize("name", ["", str(ME)])
def test_broker_keeps_its_other_settings_when_a_stored_setting_makes_no_log(world: World, name: str) -> None:
    world.topic("a", ID_A, partition(ID_A, 0))
    world.commit(
        ConfigRecord(resource_type=4, resource_name="", name="log.segment.delete.delay.ms", value="9"),
        ConfigRecord(resource_type=4, resource_name=name, name="log.flush.interval.ms", value="-1"),
    )
    handle = world.replicas.by_name("a", 0)
    assert handle is not None and handle.settings.file_delete_delay_ms == 9
    assert handle.settings.flush_ms == (1 << 63) - 1


@pytest.mark.parametrize(("entry", "bits"), [(f"0:{'9' * 5000}", 0), (f"{'0' * 5000}:{ME}", BY_LEADER)])
def test_topic_is_served_when_a_throttled_replica_has_thousands_of_digits(world: World, entry: str, bits: int) -> None:
    name = "leader.replication.throttled.replicas"
    setting = ConfigRecord(resource_type=2, resource_name="a", name=name, value=entry)
    world.topic("a", ID_A, setting, partition(ID_A, 0))
    handle = world.replicas.by_name("a", 0)
    assert handle is not None and (handle.role, handle.throttled) == ("leader", bits)


def test_snapshot_replaces_the_former_state(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0))
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        TopicRecord(name="b", topic_id=ID_B),
        partition(ID_B, 0),
    ]
    world.publisher.load_snapshot(records, 100, 2, 1)
    assert world.replicas.by_name("a", 0) is None
    assert world.replicas.by_name("b", 0) is not None
    assert world.logs.deleted == [("a", 0)]


def test_directories_are_cordoned_and_released_at_run_time(world: World, tmp_path: Path) -> None:
    for value, expected in ((str(tmp_path), [str(tmp_path)]), (None, []), ("*", [str(tmp_path)])):
        world.commit(ConfigRecord(resource_type=4, resource_name=str(ME), name="cordoned.log.dirs", value=value))
        assert world.logs.cordoned == expected


@pytest.mark.parametrize(("side", "bit"), [("leader", BY_LEADER), ("follower", BY_FOLLOWER)])
def test_throttled_replicas_are_marked_when_their_topic_is_placed_and_configured(
    world: World, side: str, bit: int
) -> None:
    def setting(value: str | None) -> ConfigRecord:
        name = f"{side}.replication.throttled.replicas"
        return ConfigRecord(resource_type=2, resource_name="a", name=name, value=value)

    def marks() -> list[int]:
        return [handle.throttled for handle in world.replicas.hosted()]

    world.topic("a", ID_A, setting(f"1:{ME},0:{OTHER}"), partition(ID_A, 0), partition(ID_A, 1))
    assert marks() == [0, bit]
    world.commit(setting("*"))
    assert marks() == [bit, bit]
    world.commit(setting(None))
    assert marks() == [0, 0]


def moved(index: int, epoch: int, replicas: Sequence[int], adding: Sequence[int] = ()) -> Any:
    removing = [] if adding else None
    return PartitionChangeRecord(
        topic_id=ID_A, partition_id=index, replicas=list(replicas), isr=[ME], adding_replicas=list(adding),
        removing_replicas=removing, directories=[DIRECTORY] * len(replicas),
    )  # fmt: skip


def test_partition_knows_the_replicas_that_a_reassignment_adds_until_it_ends(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0), partition(ID_A, 1))
    marks = lambda: [handle.adds_replicas for handle in world.replicas.hosted()]  # noqa: E731 - read anew at each call
    assert marks() == [False, False]
    world.commit(moved(1, 1, [ME, OTHER], [OTHER]))
    assert marks() == [False, True]
    world.commit(moved(1, 2, [ME, OTHER]))
    assert marks() == [False, False]


def append(handle: PartitionHandle, count: int) -> int:
    """Appends batches. Returns the size of one batch in bytes."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1_700_000_000_000, None, b"v")
    records = bytes(builder.build())
    assert handle.append(records).error == 0
    return len(records)


def test_counts_of_a_topic_go_with_it_and_counts_of_all_topics_stay(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0), partition(ID_A, 1))
    world.topic("b", ID_B, partition(ID_B, 0))
    sizes = [append(handle, count) for count, handle in enumerate(world.replicas.hosted(), 1)]
    total, topics = world.replicas.traffic()
    assert (total.messages_in, total.produces, total.bytes_in) == (6, 3, sum(sizes))
    assert {each.topic: (each.leads, each.counts.messages_in) for each in topics} == {"a": (True, 3), "b": (True, 3)}
    world.commit(PartitionChangeRecord(topic_id=ID_A, partition_id=1, replicas=[OTHER], isr=[OTHER], leader=OTHER))
    total, topics = world.replicas.traffic()
    assert (total.messages_in, {each.topic: each.counts.messages_in for each in topics}) == (6, {"a": 3, "b": 3})
    world.commit(RemoveTopicRecord(topic_id=ID_A))
    total, topics = world.replicas.traffic()
    assert (total.messages_in, total.bytes_in, [each.topic for each in topics]) == (6, sum(sizes), ["b"])
    world.topic("a", ID_A, partition(ID_A, 0))
    total, topics = world.replicas.traffic()
    assert (total.messages_in, {each.topic: each.counts.messages_in for each in topics}) == (6, {"a": 0, "b": 3})


def test_setting_without_effect_is_logged_once_for_equal_topics(world: World, caplog: Any) -> None:
    for name, topic_id in (("a", ID_A), ("b", ID_B)):
        setting = ConfigRecord(resource_type=2, resource_name=name, name="remote.storage.enable", value="false")
        world.topic(name, topic_id, setting, partition(topic_id, 0))
    told = [each for each in caplog.messages if "remote.storage.enable" in each]
    assert told == [
        "topic a: remote.storage.enable: valid, but has no effect here: tiered storage is not supported yet"
    ]


def test_topic_with_settings_of_an_older_release_is_served(world: World, caplog: Any) -> None:
    setting = ConfigRecord(resource_type=2, resource_name="a", name="segment.bytes", value="1000")
    other = ConfigRecord(resource_type=2, resource_name="a", name="max.message.bytes", value="77")
    world.topic("a", ID_A, setting, other, partition(ID_A, 0))
    handle = world.replicas.by_name("a", 0)
    assert handle is not None and handle.role == "leader"
    assert any("segment.bytes=1000" in each and "not used" in each for each in caplog.messages)
    config = world.replicas.topic_config(world.publisher.image, "a")
    assert (config.segment_bytes, config.max_message_bytes) == (1 << 30, 77)
    assert config.describe("segment.bytes").value == str(1 << 30)


def change(**fields: Any) -> Any:
    return PartitionChangeRecord(topic_id=ID_A, partition_id=0, **fields)


def test_partition_is_followed_from_its_leader_in_each_epoch(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME, THIRD), epoch=3))
    assert world.followers.now == {("a", 0): (OTHER, 3)}
    world.commit(change(leader=THIRD))
    assert world.followers.now == {("a", 0): (THIRD, 4)}
    world.commit(change(isr=[THIRD, ME]))
    assert world.followers.now == {("a", 0): (THIRD, 4)}


@pytest.mark.parametrize("leader", [-1, ME])
def test_partition_is_no_longer_followed_when_its_leader_is_gone_or_here(world: World, leader: int) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME)), partition(ID_A, 1, OTHER, (OTHER, ME)))
    world.commit(change(leader=leader))
    assert world.followers.now == {("a", 1): (OTHER, 0)}


def test_partition_is_no_longer_followed_when_this_broker_leaves_and_its_isr_too(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME)), partition(ID_A, 1, OTHER, (OTHER, ME)))
    world.commit(change(isr=[OTHER]))
    assert world.followers.now == {("a", 0): (OTHER, 0), ("a", 1): (OTHER, 0)}
    world.replicas.leave()
    world.commit(change(isr=[OTHER, ME]))
    assert world.followers.now == {("a", 0): (OTHER, 0), ("a", 1): (OTHER, 0)}
    world.commit(change(isr=[OTHER]))
    assert world.followers.now == {("a", 1): (OTHER, 0)}


def test_partition_is_no_longer_followed_when_it_is_deleted_here(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME)), partition(ID_A, 1, OTHER, (OTHER, ME)))
    world.commit(change(replicas=[OTHER], isr=[OTHER], directories=[DIRECTORY]))
    assert world.followers.now == {("a", 1): (OTHER, 0)}
    world.commit(RemoveTopicRecord(topic_id=ID_A))
    assert world.followers.now == {}
    assert world.logs.deleted == [("a", 0), ("a", 1)]


def test_partition_is_no_longer_followed_when_its_directory_has_failed(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME)))
    world.replicas.stop_fetching_from("elsewhere")
    assert world.followers.now == {("a", 0): (OTHER, 0)}
    world.replicas.stop_fetching_from(world.logs.directory.path)
    assert world.followers.now == {}


def test_topic_that_was_created_anew_is_followed_with_its_new_log(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME), epoch=5))
    old = world.replicas.by_name("a", 0)
    new = partition(ID_B, 0, THIRD, (THIRD, ME))
    world.commit(RemoveTopicRecord(topic_id=ID_A), TopicRecord(name="a", topic_id=ID_B), new)
    assert world.followers.now == {("a", 0): (THIRD, 0)}
    assert old is not None and old.role == "gone"
    assert world.replicas.by_name("a", 0) is not old


def test_older_root_changes_no_role_when_the_partition_is_ahead_of_it(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, ME, (ME, OTHER)))
    handle = world.replicas.by_name("a", 0)
    assert handle is not None
    assert handle.commit_isr([ME], 0, 2)
    world.commit(change(isr=[ME, OTHER]))
    assert handle.partition_epoch == 2
    assert [each.in_sync for each in handle.followers()] == [False]


def test_leader_that_was_elected_uncleanly_reports_that_it_must_recover(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, OTHER, (OTHER, ME)), partition(ID_A, 1, ME, (ME, OTHER)))
    assert world.edges.take(10) == []
    world.commit(change(leader=ME, isr=[ME], leader_recovery_state=1))
    assert world.edges.take(10) == [(ID_A, 0)]


def test_min_isr_of_a_led_partition_follows_the_topic(world: World) -> None:
    world.topic("a", ID_A, partition(ID_A, 0, ME, (ME, OTHER)))
    world.commit(change(isr=[ME]))
    handle = world.replicas.by_name("a", 0)
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"v")
    assert handle is not None
    assert handle.append(builder.build(), acks=-1, wait=False).error == ErrorCode.NONE
    world.commit(ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="2"))
    assert handle.append(builder.build(), acks=-1, wait=False).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.replicas.min_isr_of("a") == 2


def test_roles_of_many_partitions_change_by_one_native_call_for_each_chunk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = CHUNK_ROWS + 10
    orders = [(OTHER, ME, THIRD), (ME, OTHER, THIRD), (OTHER, THIRD, ME)]
    rows = [partition(ID_A, index, orders[index % 3][0], orders[index % 3]) for index in range(count)]
    world.topic("a", ID_A, *rows)
    calls: list[int] = []

    def become_rows(handles: list[PartitionHandle], *columns: Any) -> bytearray:
        calls.append(len(handles))
        return native(handles, *columns)

    native = roles.become_rows
    monkeypatch.setattr(roles, "become_rows", become_rows)
    moved = [index for index in range(count) if index % 3 != 1]
    world.commit(*[PartitionChangeRecord(topic_id=ID_A, partition_id=index, leader=ME) for index in moved])
    assert calls == [sum(index < CHUNK_ROWS for index in moved), sum(index >= CHUNK_ROWS for index in moved)]
    handles = [world.replicas.by_name("a", index) for index in range(count)]
    assert [handle and (handle.role, handle.leader_epoch) for handle in handles] == [
        ("leader", index % 3 != 1) for index in range(count)
    ]
    assert world.followers.now == {}


def test_topic_is_not_hosted_when_its_logs_cannot_be_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> list[PartitionHandle]:
        raise OSError("broken")

    monkeypatch.setattr(world.logs, "open", fail)
    with pytest.raises(OSError, match="broken"):
        world.topic("a", ID_A, partition(ID_A, 0))
    assert world.replicas.by_name("a", 0) is None
    assert world.replicas.traffic()[1] == []
