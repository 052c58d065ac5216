"""Makes files of a metadata log for tests: segments and snapshots that contain the given records."""

from kafkacore.metadata.records import RecordWriter
from kafkacore.protocol import messages
from kafkacore.protocol.features import metadata_version
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.control import control_batch, data_batch, leader_change
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.snapshots import snapshot_parts
from kafkacore.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from kafkacore.storage.names import LOG, checkpoint_name, file_name

LEVEL = 30  # 4.3-IV0
EPOCH = 7
WRITER = RecordWriter(metadata_version(LEVEL))
TIME_MS = 1_700_000_000_123


def append(log, data):
    """Appends data, syncs it and advances the log as a replica does when its driver has no other work. Blocks until all
    this is done."""
    while not log.append(data):
        log.begin_segment()


def uuid(number):
    return Uuid(bytes([number]) * 16)


def feature(name="metadata.version", level=LEVEL):
    return messages.FeatureLevelRecord(name=name, feature_level=level)


def topic(name, number):
    return messages.TopicRecord(name=name, topic_id=uuid(number))


def partition(topic_number, number=0, **fields):
    values = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 3, "partition_epoch": 4}
    values |= {"directories": [uuid(9)] * len(fields.get("replicas", values["replicas"]))}
    return messages.PartitionRecord(partition_id=number, topic_id=uuid(topic_number), **(values | fields))


def setting(kind, name, key, value):
    return messages.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def quota(key, value, **entity):
    made = messages.ClientQuotaRecord.EntityData
    entities = [made(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    return messages.ClientQuotaRecord(entity=entities, key=key, value=value)


def every_kind():
    """Returns records of each kind that an image can contain. Leaves out the default quota, because Kafka's metadata
    shell fails on it."""
    broker, controller = messages.RegisterBrokerRecord, messages.RegisterControllerRecord
    return [
        feature(),
        feature("group.version", 1),
        broker(
            broker_id=1, incarnation_id=uuid(1), broker_epoch=5, rack="r1", fenced=False, log_dirs=[uuid(8), uuid(9)],
            cordoned_log_dirs=[uuid(8)],
            end_points=[
                broker.BrokerEndpoint(name="PLAINTEXT", host="h", port=9, security_protocol=0),
                broker.BrokerEndpoint(name="EXTERNAL", host="h2", port=10, security_protocol=1),
            ],
            features=[
                broker.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=LEVEL),
                broker.BrokerFeature(name="kraft.version", min_supported_version=1, max_supported_version=1),
                broker.BrokerFeature(name="x", min_supported_version=1, max_supported_version=32767),
            ],
        ),
        broker(broker_id=2, incarnation_id=uuid(2), broker_epoch=6, fenced=True, in_controlled_shutdown=True),
        controller(
            controller_id=3000, incarnation_id=uuid(3),
            end_points=[controller.ControllerEndpoint(name="CONTROLLER", host="c", port=99, security_protocol=0)],
            features=[
                controller.ControllerFeature(
                    name="metadata.version", min_supported_version=7, max_supported_version=LEVEL
                )
            ],
        ),
        topic("foo", 20),
        partition(20, 0, replicas=[1, 2], isr=[1], eligible_leader_replicas=[2], last_known_elr=[2]),
        partition(20, 1, replicas=[1, 2], removing_replicas=[1], adding_replicas=[2], leader=-1,
                  leader_recovery_state=1),
        topic("_b.r", 21),
        partition(21, 0, replicas=[2], isr=[2], leader=2, directories=[Uuid(bytes(15) + b"\1")]),
        setting(2, "foo", "retention.ms", "1"),
        setting(2, "foo", "cleanup.policy", ""),
        setting(4, "", "log.retention.ms", "77"),
        setting(4, "1", "ssl.keystore.password", "secret"),
        setting(16, "cm", "interval.ms", "77"),
        setting(32, "gr", "consumer.session.timeout.ms", "77"),
        quota("producer_byte_rate", 1000.0, user="al(i)ce\\", client_id="c"),
        quota("connection_creation_rate", 12345678.5, ip="1.2.3.4"),
        quota("producer_byte_rate", 1e9, user="big"),
        quota("request_percentage", 0.0001, user="big"),
        messages.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
        messages.AccessControlEntryRecord(
            id=uuid(40), resource_type=2, resource_name="foo", pattern_type=3, principal="User:a", host="*",
            operation=3, permission_type=3,
        ),
        messages.AccessControlEntryRecord(
            id=uuid(41), resource_type=4, resource_name="kafka-cluster", pattern_type=4, principal="User:a", host="*",
            operation=12, permission_type=2,
        ),
        messages.UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
        ),
        messages.UserScramCredentialRecord(
            name="alice", mechanism=2, salt=b"\xff\0", stored_key=b"stored", server_key=b"server", iterations=8192
        ),
        messages.DelegationTokenRecord(
            owner="User:o", requester="User:r", renewers=["User:x", "User:y"], issue_timestamp=5, max_timestamp=9,
            expiration_timestamp=8, token_id="tok",
        ),
    ]  # fmt: skip


def voters():
    made = VoterHistory(VoterSet([Voter(ReplicaKey(3000, uuid(4)), (("CONTROLLER", "c", 99),))]))
    made.set_version(0, 1)
    return made


def write_snapshot(directory, end, records):
    """Writes the snapshot of all records below offset `end`. Returns the path of the file."""
    parts = snapshot_parts(OffsetAndEpoch(end, EPOCH), map(WRITER.encode, records), voters(), TIME_MS, TIME_MS + 1)
    path = directory / checkpoint_name(end, EPOCH)
    path.write_bytes(b"".join(parts))
    return path


def write_segment(directory, base, batches):
    """Writes a segment that has one batch for each list of records. In place of a list, None stands for the batch of a
    leader change.

    Returns the path of the segment, and the first offset and the byte position of each batch.
    """
    data, offset, places = b"", base, []
    for records in batches:
        places.append((offset, len(data)))
        if records is None:
            data += control_batch([leader_change(1, [], [])], offset, EPOCH, TIME_MS + offset)
            offset += 1
        else:
            data += data_batch(map(WRITER.encode, records), offset, EPOCH, TIME_MS + offset)
            offset += len(records)
    path = directory / file_name(base, LOG)
    path.write_bytes(data)
    return path, places
