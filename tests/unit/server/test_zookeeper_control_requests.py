"""LeaderAndIsr, StopReplica and UpdateMetadata on a broker in ZooKeeper mode."""

import asyncio

import pytest

from kafkacore.metadata.image import TOPIC
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.made_ids import made_id
from kafkacore.protocol.messages import (
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkacore.protocol.uuid import LOST_DIRECTORY, ZERO, Uuid
from kafkacore.server.zookeeper.control_requests import PARTITIONS_AT_ONCE, ControlRequests
from kafkacore.server.zookeeper.roots import PartitionState, TopicKey, ZooKeeperRoots
from kafkacore.zookeeper.znodes import MAX_PARTITION

ME, OTHER = 1, 2
CZXID = 70
ID = Uuid(b"t" * 16)
CONTROLLER_EPOCH = 5


class Broker:
    """Handles control requests as broker 1, and collects the metadata images that they publish."""

    def __init__(self):
        self.epoch, self.offline, self.lost, self.loaded, self.deleted = CZXID, set(), set(), [], []
        self.counted = []
        self.held, self.failed = None, set()  # what deletions wait for, and the deletions that fail
        self.topics, self.reads = {"t", "u"}, 0  # the topics in ZooKeeper, and how often this broker has read them
        self.faults = []
        self.roots = ZooKeeperRoots(ME, 21, lambda: self.epoch, self.faults.append)
        self.role_deltas = []
        self.roots.roles.subscribe(lambda image, delta: self.role_deltas.append(delta))
        self.role_deltas.clear()
        self.requests = ControlRequests(
            ME, self.roots, lambda: self.epoch, self.load, self.is_offline, lambda *key: self.deleted.append(key),
            self.undeleted, self.read_topics, self.read_counts,
        )  # fmt: skip

    def is_offline(self, topic, index, *, is_new):
        """`offline` has the logs in a failed directory. `lost` has the partitions whose log may be in a directory that
        could not be opened."""
        key = topic, index
        return key in self.offline or (not is_new and key in self.lost)

    async def undeleted(self, keys):
        if keys and self.held is not None:
            await self.held.wait()
        return self.failed

    async def load(self, topics):
        self.loaded += topics
        self.roots.set_configs({(TOPIC, name): {"retention.ms": "1"} for name in topics})

    async def read_counts(self, topics):
        """Notes the topics that neither image has yet."""
        images = self.roots.roles.image, self.roots.view.image
        self.counted += [name for name in topics if not any(image.topic(name) for image in images)]

    async def read_topics(self):
        self.reads += 1
        return self.topics

    def __call__(self, request, version):
        # The request is encoded and decoded, because a version may lack some of the fields.
        request = type(request).decode(request.encode(version), version)
        handle = {
            "LeaderAndIsrRequest": self.requests.leader_and_isr,
            "StopReplicaRequest": self.requests.stop_replica,
            "UpdateMetadataRequest": self.requests.update_metadata,
        }[request.NAME]

        async def run():
            answer = await handle(request, version)
            await asyncio.sleep(0)
            return type(answer).decode(answer.encode(version), version)

        return asyncio.run(run())

    def role(self, name, index):
        topic = self.roots.roles.image.topic(name)
        return None if topic is None else self.roots.roles.image.partition(topic, index)

    def seen(self, name, index):
        topic = self.roots.view.image.topic(name)
        return None if topic is None else self.roots.view.image.partition(topic, index)


@pytest.fixture
def broker():
    return Broker()


def epochs(**changed):
    return {"controller_id": OTHER, "controller_epoch": CONTROLLER_EPOCH, "broker_epoch": CZXID, **changed}


def leader_and_isr(version=7, topic_id=ID, leader_epoch=3, leader=ME, index=0, replicas=(ME, OTHER), *,
                   is_new=True, **more):  # fmt: skip
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name="t", partition_index=index, controller_epoch=CONTROLLER_EPOCH, leader=leader,
        leader_epoch=leader_epoch, isr=list(replicas), partition_epoch=9, replicas=list(replicas), is_new=is_new,
    )  # fmt: skip
    if version < 2:
        return LeaderAndIsrRequest(ungrouped_partition_states=[state], **epochs(**more))
    made = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    return LeaderAndIsrRequest(topic_states=[made], **epochs(**more))


def update_metadata(version=8, leader=OTHER, topic_id=ID, offline=(), brokers=(ME, OTHER), indexes=(0,),
                    leader_epoch=3, replicas=(ME, OTHER), **more):  # fmt: skip
    states = [
        UpdateMetadataRequest.UpdateMetadataPartitionState(
            topic_name="t",
            partition_index=index,
            controller_epoch=CONTROLLER_EPOCH,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=[OTHER],
            zk_version=9,
            replicas=list(replicas),
            offline_replicas=list(offline),
        )
        for index in indexes
    ]
    live = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=each,
            v0_host="h",
            v0_port=9092,
            rack="r" if version > 1 else None,
            endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT")],
        )
        for each in brokers
    ]
    if version < 5:
        return UpdateMetadataRequest(ungrouped_partition_states=states, live_brokers=live, **epochs(**more))
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=states)
    return UpdateMetadataRequest(topic_states=[topic], live_brokers=live, **epochs(**more))


def stop_replica(version=4, leader_epoch=3, deletes=False, index=0, topic="t", **more):
    if version == 0:
        named = StopReplicaRequest.StopReplicaPartitionV0(topic_name=topic, partition_index=index)
        asked = {"ungrouped_partitions": [named], "delete_partitions": deletes}
    elif version < 3:
        asked = {"topics": [StopReplicaRequest.StopReplicaTopicV1(name=topic, partition_indexes=[index])]}
        asked["delete_partitions"] = deletes
    else:
        state = StopReplicaRequest.StopReplicaPartitionState(
            partition_index=index, leader_epoch=leader_epoch, delete_partition=deletes
        )
        asked = {"topic_states": [StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=[state])]}
    return StopReplicaRequest(**asked, **epochs(**more))


def error_of(answer):
    """Returns the error of the only partition in the answer."""
    holder = answer if answer.NAME == "StopReplicaResponse" or not answer.topics else answer.topics[0]
    return holder.partition_errors[0].error_code


def test_a_partition_has_its_role_when_leader_and_isr_names_it(broker):
    assert error_of(broker(leader_and_isr(), 7)) == ErrorCode.NONE
    role = broker.role("t", 0)
    assert (role.leader, role.leader_epoch, role.partition_epoch, role.isr) == (ME, 3, 9, (ME, OTHER))
    assert broker.loaded == ["t"], "the broker must load the topic's settings before its first log"
    assert broker.roots.roles.image.topic_overrides("t") == {"retention.ms": "1"}
    assert broker.seen("t", 0) is None, "LeaderAndIsr must not change the metadata that clients see"


@pytest.mark.parametrize("request_", [leader_and_isr(), update_metadata(8)])
def test_a_broker_counts_the_partitions_of_a_new_topic_before_an_image_has_the_topic(broker, request_):
    broker(request_, 7)
    assert broker.counted == ["t"]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_partition_has_its_role_when_leader_and_isr_names_no_topic_id(broker, version):
    assert error_of(broker(leader_and_isr(version), version)) == ErrorCode.NONE
    assert broker.role("t", 0).leader == ME
    assert broker.roots.roles.image.topic("t").topic_id == made_id("t")
    assert error_of(broker(leader_and_isr(version), version)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert error_of(broker(leader_and_isr(version, leader_epoch=4), version)) == ErrorCode.NONE
    assert broker.role("t", 0).leader_epoch == 4


def test_a_topic_keeps_its_id_when_leader_and_isr_names_none(broker):
    broker(leader_and_isr(), 7)
    assert error_of(broker(leader_and_isr(4, leader_epoch=4), 4)) == ErrorCode.NONE
    assert broker.roots.roles.image.topic("t").topic_id == ID


def test_all_partitions_of_a_topic_take_its_id_when_leader_and_isr_names_it_for_one(broker):
    for index in (0, 1):
        broker(leader_and_isr(4, index=index), 4)
    # A new controller sends the same state again, now with the topic id.
    assert error_of(broker(leader_and_isr(7), 7)) == ErrorCode.NONE
    image = broker.roots.roles.image
    assert image.topic("t").topic_id == ID
    assert [broker.role("t", index).leader for index in (0, 1)] == [ME, ME]
    assert image.topic_by_id(made_id("t")) is None
    assert image.topic_overrides("t") == {"retention.ms": "1"}, "the settings belong to the name"
    assert error_of(broker(leader_and_isr(7), 7)) == ErrorCode.STALE_CONTROLLER_EPOCH, "stale the second time"
    other = leader_and_isr(7, topic_id=Uuid(b"o" * 16), leader_epoch=9)
    assert error_of(broker(other, 7)) == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(("told_epoch", "expected"), [(9, (10, (ME,))), (11, (11, (ME, OTHER)))])
def test_the_newer_isr_stays_when_a_topic_gets_its_id(broker, told_epoch, expected):
    """A leader below inter.broker.protocol.version 2.7-IV2 writes its ISR to ZooKeeper itself. The controller may have
    read the state before that write."""
    broker(leader_and_isr(4), 4)
    accepted = AlterPartitionResponse.PartitionData(
        partition_index=0, leader_id=ME, leader_epoch=3, isr=[ME], partition_epoch=10
    )
    broker.roots.take_isrs([((made_id("t"), 0), accepted)])
    assert (broker.role("t", 0).partition_epoch, broker.role("t", 0).isr) == (10, (ME,))
    request = leader_and_isr(7)
    request.topic_states[0].partition_states[0].partition_epoch = told_epoch
    assert error_of(broker(request, 7)) == ErrorCode.NONE
    assert broker.roots.roles.image.topic("t").topic_id == ID
    assert (broker.role("t", 0).partition_epoch, broker.role("t", 0).isr) == expected


@pytest.mark.parametrize("version", [5, 6, 7])
def test_leader_and_isr_answers_by_topic_id(broker, version):
    answer = broker(leader_and_isr(version), version)
    assert [topic.topic_id for topic in answer.topics] == [ID]


@pytest.mark.parametrize("epoch", [2, 3])
def test_leader_and_isr_is_refused_when_its_leader_epoch_is_known_already(broker, epoch):
    broker(leader_and_isr(), 7)
    assert error_of(broker(leader_and_isr(leader=OTHER, leader_epoch=epoch), 7)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.role("t", 0).leader == ME
    assert broker.requests.counts.stale_leader == 1


def test_leader_and_isr_is_refused_when_the_topic_has_another_id(broker):
    broker(leader_and_isr(), 7)
    answer = broker(leader_and_isr(topic_id=Uuid(b"u" * 16), leader_epoch=9), 7)
    assert error_of(answer) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert broker.role("t", 0).leader_epoch == 3


def test_leader_and_isr_is_refused_when_this_broker_is_no_replica(broker):
    assert error_of(broker(leader_and_isr(replicas=(2, 3)), 7)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.role("t", 0) is None


def test_leader_and_isr_is_refused_when_the_log_is_offline(broker):
    broker.offline.add(("t", 0))
    assert error_of(broker(leader_and_isr(), 7)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_leader_and_isr_is_refused_when_the_log_may_be_in_a_directory_that_could_not_be_opened(broker):
    broker.lost.add(("t", 0))
    assert error_of(broker(leader_and_isr(is_new=False), 7)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.role("t", 0) is None
    assert error_of(broker(leader_and_isr(is_new=True), 7)) == ErrorCode.NONE


def test_stop_replica_deletes_nothing_when_the_log_may_be_in_a_directory_that_could_not_be_opened(broker):
    broker.lost.add(("t", 0))
    assert error_of(broker(stop_replica(deletes=True), 4)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(broker(stop_replica(), 4)) == ErrorCode.NONE
    assert not broker.deleted


@pytest.mark.parametrize("index", [-1, MAX_PARTITION + 1, 2_147_483_647])
def test_a_partition_is_refused_when_no_topic_has_its_number(broker, index):
    assert error_of(broker(leader_and_isr(index=index), 7)) == ErrorCode.INVALID_REQUEST
    broker(update_metadata(indexes=(index,)), 8)
    assert broker.roots.view.image.topic("t") is None
    broker(update_metadata(indexes=(MAX_PARTITION,)), 8)
    assert broker.seen("t", MAX_PARTITION).leader == OTHER


@pytest.mark.parametrize("make", [leader_and_isr, update_metadata, stop_replica])
@pytest.mark.parametrize(
    ("stale", "code"),
    [
        ({"broker_epoch": CZXID - 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({"controller_epoch": CONTROLLER_EPOCH - 1}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"is_kraft_controller": True}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_is_refused_whole_when_an_epoch_is_stale(broker, make, stale, code):
    broker(leader_and_isr(), 7)
    newest = {leader_and_isr: 7, update_metadata: 8, stop_replica: 4}[make]
    before = broker.roots.roles.image, broker.roots.view.image
    with pytest.raises(KafkaError) as refused:
        broker(make(**stale), newest)
    assert refused.value.code == code
    assert (broker.roots.roles.image, broker.roots.view.image) == before


def test_a_request_is_taken_when_its_broker_epoch_is_newer_than_ours(broker):
    """The controller can learn about a new registration before this broker has received the answer to it."""
    broker.epoch = -1
    assert error_of(broker(leader_and_isr(), 7)) == ErrorCode.NONE


@pytest.mark.parametrize(("make", "version"), [(leader_and_isr, 1), (update_metadata, 4), (stop_replica, 0)])
def test_old_versions_carry_no_broker_epoch(broker, make, version):
    broker(leader_and_isr(), 7)
    broker(make(version, broker_epoch=CZXID - 1), version)


def test_a_bounced_broker_refuses_what_was_meant_for_its_former_life(broker):
    broker(leader_and_isr(), 7)
    broker.epoch = CZXID + 10
    with pytest.raises(KafkaError) as refused:
        broker(stop_replica(deletes=True), 4)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.role("t", 0).replicas == (ME, OTHER)


@pytest.mark.parametrize("version", range(9))
def test_update_metadata_changes_what_clients_see_and_no_role(broker, version):
    broker(leader_and_isr(), 7)
    told = len(broker.role_deltas)
    broker(update_metadata(version, offline=(ME,)), version)
    seen = broker.seen("t", 0)
    assert (seen.leader, seen.leader_epoch, seen.isr) == (OTHER, 3, (OTHER,))
    assert (LOST_DIRECTORY in seen.directories) == (version >= 4)
    assert (broker.roots.view.image.topic("t").topic_id == ID) == (version >= 7)
    assert broker.role("t", 0).leader == ME
    assert all(not delta.partition_rows for delta in broker.role_deltas[told:])
    assert broker.roots.controller_id == OTHER
    assert broker.roots.view.image.brokers[ME].epoch == CZXID
    assert broker.roots.roles.image.brokers.keys() == {ME, OTHER}
    assert broker.roots.view.image.brokers[OTHER].endpoint("PLAINTEXT").port == 9092


@pytest.mark.parametrize("version", range(9))
@pytest.mark.parametrize("leader", [ME, OTHER])
def test_a_role_ends_when_update_metadata_says_that_the_partition_has_moved_away(broker, leader, version):
    """The controller sends StopReplica only to registered brokers, and this broker had no session then."""
    broker(leader_and_isr(leader=leader), 7)
    broker(leader_and_isr(index=1), 7)
    broker(update_metadata(version, leader_epoch=4, replicas=(OTHER,)), version)
    role = broker.role("t", 0)
    assert (role.leader, role.leader_epoch, role.replicas) == (-1, 3, (ME, OTHER))
    assert broker.role("t", 1).leader == ME
    assert broker.seen("t", 0).replicas == (OTHER,)
    assert not broker.deleted, "the log must stay until StopReplica deletes it"
    assert error_of(broker(leader_and_isr(leader_epoch=5), 7)) == ErrorCode.NONE
    assert broker.role("t", 0).leader == ME


@pytest.mark.parametrize("told", [{"leader_epoch": 3, "replicas": (OTHER,)}, {"leader_epoch": 4}])
def test_a_role_stays_when_update_metadata_is_older_or_names_this_replica(broker, told):
    broker(leader_and_isr(), 7)
    broker(update_metadata(**told), 8)
    assert broker.role("t", 0).leader == ME


def test_a_role_ends_when_update_metadata_says_that_the_topic_was_created_again(broker):
    broker(leader_and_isr(), 7)
    broker(update_metadata(topic_id=Uuid(b"n" * 16), leader_epoch=0, replicas=(OTHER,)), 8)
    role = broker.role("t", 0)
    assert (role.leader, broker.roots.roles.image.topic("t").topic_id) == (-1, ID)


def test_roles_end_when_a_later_part_of_a_large_update_metadata_has_them(broker):
    count = PARTITIONS_AT_ONCE + 1
    broker(leader_and_isr(index=count - 1), 7)
    broker(update_metadata(indexes=range(count), leader_epoch=4, replicas=(OTHER,)), 8)
    assert broker.role("t", count - 1).leader == -1


@pytest.mark.parametrize("begun", [{"broker_epoch": CZXID + 10}, {"controller_epoch": CONTROLLER_EPOCH + 1}])
def test_a_deleted_topic_goes_when_the_first_update_metadata_of_a_registration_or_controller_arrives(broker, begun):
    """No controller says again that the topic is deleted, so the broker compares its topics with ZooKeeper's."""
    broker(leader_and_isr(), 7)
    broker(update_metadata(), 8)
    broker.topics = {"u"}
    broker(update_metadata(indexes=()), 8)
    assert broker.seen("t", 0).leader == OTHER
    broker.epoch = begun.get("broker_epoch", CZXID)
    broker(update_metadata(indexes=(), **begun), 8)
    assert (broker.seen("t", 0), broker.role("t", 0).leader) == (None, -1)
    assert not broker.deleted
    assert broker.reads == 2


@pytest.mark.parametrize("topics", [None, {"t", "u"}])
def test_a_topic_stays_when_zookeeper_has_it_or_does_not_answer(broker, topics):
    broker.topics = topics
    broker(leader_and_isr(), 7)
    broker(update_metadata(), 8)
    assert (broker.seen("t", 0).leader, broker.role("t", 0).leader) == (OTHER, ME)


def test_a_topic_stays_when_it_has_no_id(broker):
    """It may have been created again, and this broker could not see the difference."""
    broker.topics = set()
    broker(update_metadata(6), 6)
    assert broker.seen("t", 0).leader == OTHER


def test_a_topic_stays_when_it_is_created_again_while_zookeeper_answers(broker):
    broker(update_metadata(), 8)
    new_id = Uuid(b"n" * 16)

    async def read_topics():
        broker.roots.take_view([state(new_id)], [], [], OTHER)
        return set()

    def state(topic_id):
        return PartitionState(TopicKey("t", topic_id), 0, OTHER, 0, 0, [OTHER], [OTHER])

    broker.requests._read_topics = read_topics
    broker.epoch += 10
    broker(update_metadata(broker_epoch=broker.epoch, indexes=()), 8)
    assert broker.roots.view.image.topic("t").topic_id == new_id


def test_brokers_go_when_update_metadata_no_longer_names_them(broker):
    broker(update_metadata(), 8)
    broker(update_metadata(brokers=(ME,)), 8)
    assert broker.roots.view.image.brokers.keys() == broker.roots.roles.image.brokers.keys() == {ME}


def test_partitions_go_when_their_leader_is_the_one_during_deletion(broker):
    broker(update_metadata(indexes=(0, 1, 2)), 8)
    broker(update_metadata(indexes=(2,), leader=-2), 8)
    assert [broker.seen("t", index) is None for index in range(3)] == [False, False, True]
    broker(update_metadata(indexes=(0, 1), leader=-2), 8)
    assert broker.roots.view.image.topic("t") is None
    assert broker.roots.view.image.partition_count == 0


def test_a_topic_gets_its_new_id_when_it_was_created_again(broker):
    broker(update_metadata(indexes=(0, 1)), 8)
    broker(update_metadata(topic_id=Uuid(b"n" * 16)), 8)
    image = broker.roots.view.image
    assert image.topic("t").topic_id == Uuid(b"n" * 16)
    assert broker.seen("t", 1) is None


def test_a_topic_keeps_its_other_partitions_and_settings_in_the_view_when_it_gets_an_id(broker):
    count = PARTITIONS_AT_ONCE + 1
    broker(update_metadata(6, indexes=range(count)), 6)
    before = []
    broker.roots.view.subscribe(lambda image, delta: before.append((image.partition_count, image.topic_overrides("t"))))
    broker(update_metadata(8, indexes=(0,)), 8)
    assert broker.roots.view.image.topic("t").topic_id == ID
    assert set(map(str, before)) == {str((count, {"retention.ms": "1"}))}
    broker(update_metadata(8, indexes=(count - 1,), leader=-2), 8)
    assert broker.roots.view.image.partition_count == count - 1


def test_a_broker_reads_the_settings_again_when_the_id_of_a_topic_changes_in_the_view(broker):
    """Nobody tells this broker about the settings of a topic that was deleted and created again."""
    broker(update_metadata(6), 6)
    broker(update_metadata(8), 8)
    assert broker.loaded == ["t", "t"]
    broker(update_metadata(8, topic_id=Uuid(b"n" * 16)), 8)
    assert broker.loaded == ["t", "t", "t"]
    assert broker.roots.view.image.topic_overrides("t") == {"retention.ms": "1"}


def test_a_topic_goes_when_its_deletion_names_an_id_that_this_broker_does_not_know_yet(broker):
    broker(update_metadata(6, indexes=(0, 1)), 6)
    broker(update_metadata(8, indexes=(0, 1), leader=-2), 8)
    assert broker.roots.view.image.topic("t") is None


@pytest.mark.parametrize("version", range(5))
def test_a_replica_has_no_leader_when_stop_replica_keeps_its_log(broker, version):
    broker(leader_and_isr(leader=OTHER), 7)
    assert error_of(broker(stop_replica(version), version)) == ErrorCode.NONE
    role = broker.role("t", 0)
    assert (role.leader, role.leader_epoch, role.replicas) == (-1, 3, (ME, OTHER))


@pytest.mark.parametrize("version", range(5))
def test_a_replica_goes_when_stop_replica_deletes_it(broker, version):
    broker(leader_and_isr(), 7)
    broker(leader_and_isr(index=1), 7)
    broker(stop_replica(version, deletes=True), version)
    assert broker.role("t", 0).replicas == ()
    assert broker.role("t", 1).replicas == (ME, OTHER)
    broker(stop_replica(version, deletes=True, index=1), version)
    assert broker.roots.roles.image.topic("t") is None
    assert ID in broker.role_deltas[-1].topics_deleted


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("topic", ["t", "old"])
def test_stop_replica_answers_when_the_deletion_survives_a_crash(broker, topic, deletes):
    broker(leader_and_isr(), 7)

    async def run():
        broker.held = asyncio.Event()
        stopping = asyncio.ensure_future(broker.requests.stop_replica(stop_replica(topic=topic, deletes=deletes), 4))
        for _ in range(20):
            await asyncio.sleep(0)
        assert stopping.done() == (not deletes)
        # Another request does not wait for the deletion.
        await broker.requests.update_metadata(update_metadata(), 8)
        broker.held.set()
        return await stopping

    assert error_of(asyncio.run(run())) == ErrorCode.NONE


def test_stop_replica_fails_when_the_directory_of_the_log_cannot_be_renamed(broker):
    broker(leader_and_isr(), 7)
    broker.failed = {("t", 0)}
    assert error_of(broker(stop_replica(), 4)) == ErrorCode.NONE
    assert error_of(broker(stop_replica(deletes=True, leader_epoch=2), 4)) == ErrorCode.FENCED_LEADER_EPOCH
    assert error_of(broker(stop_replica(deletes=True), 4)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_deleted_replica_comes_back_when_it_is_assigned_again(broker):
    broker(leader_and_isr(), 7)
    broker(leader_and_isr(index=1), 7)
    broker(stop_replica(deletes=True), 4)
    assert error_of(broker(leader_and_isr(leader_epoch=3), 7)) == ErrorCode.NONE
    assert broker.role("t", 0).leader == ME


@pytest.mark.parametrize(("epoch", "error"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (-1, 0), (-2, 0), (3, 0), (4, 0)])
def test_stop_replica_is_fenced_by_the_leader_epoch(broker, epoch, error):
    broker(leader_and_isr(), 7)
    assert error_of(broker(stop_replica(leader_epoch=epoch, deletes=True), 4)) == error
    assert (broker.role("t", 0) is None) == (error == 0)


def test_a_log_without_a_role_is_deleted_when_stop_replica_deletes_its_partition(broker):
    assert error_of(broker(stop_replica(topic="old", deletes=True), 4)) == ErrorCode.NONE
    assert error_of(broker(stop_replica(topic="kept"), 4)) == ErrorCode.NONE
    assert broker.deleted == [("old", 0)]


def test_topics_without_ids_are_seen_under_one_that_every_broker_makes(broker):
    other = Broker()
    broker(update_metadata(6), 6)
    other(update_metadata(6), 6)
    made = broker.roots.view.image.topic("t").topic_id
    assert made == other.roots.view.image.topic("t").topic_id != ZERO


def test_large_requests_let_the_loop_work_between_their_parts(broker):
    """The broker applies each request as a whole, but the event loop can run other work after each part."""
    count = 2 * PARTITIONS_AT_ONCE + 1
    large = update_metadata(indexes=range(count))
    roles = leader_and_isr()
    [state] = roles.topic_states[0].partition_states
    roles.topic_states[0].partition_states = [
        LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=index, controller_epoch=CONTROLLER_EPOCH, leader=ME, leader_epoch=3, isr=state.isr,
            partition_epoch=9, replicas=state.replicas,
        )
        for index in range(count)
    ]  # fmt: skip

    async def run():
        for request, handle in ((large, broker.requests.update_metadata), (roles, broker.requests.leader_and_isr)):
            turns, task = 0, asyncio.ensure_future(handle(request, 8))
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            task.result()
            assert turns >= 3

    asyncio.run(run())
    for image in (broker.roots.view.image, broker.roots.roles.image):
        assert image.partition_count == count


@pytest.mark.parametrize("deletes", [False, True])
def test_large_stop_replica_lets_the_loop_work_between_its_parts(broker, deletes):
    count = 2 * PARTITIONS_AT_ONCE + 1
    roles, stops = leader_and_isr(), stop_replica(deletes=deletes)
    roles.topic_states[0].partition_states = [
        leader_and_isr(index=index).topic_states[0].partition_states[0] for index in range(count)
    ]
    stops.topic_states[0].partition_states = [
        stop_replica(index=index, deletes=deletes).topic_states[0].partition_states[0] for index in range(count)
    ]
    broker(roles, 7)

    async def run():
        turns, task = 0, asyncio.ensure_future(broker.requests.stop_replica(stops, 4))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 3
        return task.result()

    answer = asyncio.run(run())
    assert [(each.partition_index, each.error_code) for each in answer.partition_errors] == [
        (index, ErrorCode.NONE) for index in range(count)
    ]
    if deletes:
        assert broker.roots.roles.image.topic("t") is None
    else:
        assert all(broker.role("t", index).leader == -1 for index in range(count))


def test_the_rest_of_a_request_is_refused_when_the_broker_registers_again_meanwhile(broker):
    count = PARTITIONS_AT_ONCE + 1
    request = update_metadata(indexes=range(count))

    def registers_again(image, delta):
        broker.epoch += bool(image.partition_count)

    broker.roots.view.subscribe(registers_again)
    with pytest.raises(KafkaError) as refused:
        asyncio.run(broker.requests.update_metadata(request, 8))
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.roots.view.image.partition_count == PARTITIONS_AT_ONCE


def test_a_follower_learns_where_its_leader_is_when_update_metadata_comes_after_its_role(broker):
    broker(leader_and_isr(leader=OTHER), 7)
    assert broker.role("t", 0).leader == OTHER
    assert OTHER not in broker.roots.roles.image.brokers
    broker(update_metadata(), 8)
    assert broker.roots.roles.image.brokers[OTHER].endpoint("PLAINTEXT").port == 9092
    assert broker.role("t", 0).leader == OTHER


def test_broker_reports_a_fault_when_its_roles_cannot_be_applied(broker):
    """The image already contains the roles, so a repeated LeaderAndIsr would not apply them either."""

    def fail(image, delta):
        if image.topic("t") is not None:
            raise OSError("no descriptor is free")

    broker.roots.roles.subscribe(fail)
    with pytest.raises(OSError, match="no descriptor is free"):
        broker(leader_and_isr(), 7)
    assert [str(each) for each in broker.faults] == ["no descriptor is free"]
