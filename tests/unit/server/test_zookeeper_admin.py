"""Changes that clients request in ZooKeeper mode, seen as znodes of the simulated ZooKeeper."""

import asyncio
import concurrent.futures
from random import Random
from types import SimpleNamespace

import pytest

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.metadata.image import BROKER, TOPIC
from kafkacore.metadata.registrations import Endpoint
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
)
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.server.missing import refuse_what_is_missing
from kafkacore.server.zookeeper.admin import ZooKeeperAdmin
from kafkacore.server.zookeeper.roots import LiveBroker, PartitionState, TopicKey, ZooKeeperRoots
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import OPEN_ACL, Create, Delete
from simulated_zookeepers import run_story

ZOOKEEPER = {"zookeeper.connect": "z:2181", "broker.id": "1", "listeners": "PLAINTEXT://h:9092"}
ID = Uuid(b"t" * 16)


class OneLoop:
    """A stub of LoopThread for the event loop that is already running."""

    def submit(self, work):
        future = concurrent.futures.Future()

        def done(task):
            error = task.exception()
            future.set_exception(error) if error else future.set_result(task.result())

        asyncio.ensure_future(work).add_done_callback(done)
        return future


async def made(world, *, controller=True, **settings):
    """Returns the admin of broker 1, in a cluster of brokers 1 and 2."""
    client = await world.client()
    session = BrokerSession(
        client, 1, lambda path: OPEN_ACL, connection_timeout_ms=5_000, on_epoch=print, on_fault=print
    )
    await session.make_paths(paths.PERSISTENT)
    roots = ZooKeeperRoots(1, 21, lambda: 5)
    brokers = [LiveBroker(each, (Endpoint("PLAINTEXT", "h", 9092),), None) for each in (1, 2)]
    roots.take_view([], [], brokers, 1)
    numbers = iter(range(1, 1000))
    world_of_node = SimpleNamespace(random=Random(1), new_uuid=lambda: Uuid(next(numbers).to_bytes(16, "big")))

    async def applied():
        await asyncio.sleep(0.01)

    async def decide(request, version):
        return request, version

    admin = ZooKeeperAdmin(
        BrokerConfig(ZOOKEEPER | settings), "c", world_of_node, session, OneLoop(), lambda: roots.view.image, applied,
        decide, lambda: controller,
    )  # fmt: skip
    return admin, roots


def call(request, version=0):
    return RequestContext(request.API_KEY, version, 0, None, "PLAINTEXT", "h")


def create(name, partitions=2, replication=2, timeout_ms=0, **settings):
    configs = [CreateTopicsRequest.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in settings.items()]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication, configs=configs
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def has(roots, name, count=2):
    roots.take_view(
        [PartitionState(TopicKey(name, ID), i, 1, 0, 0, [1, 2], [1, 2]) for i in range(count)], [],
        [LiveBroker(each, (Endpoint("PLAINTEXT", "h", 9092),), None) for each in (1, 2)], 1,
    )  # fmt: skip


def content(world, path):
    return world.zookeeper.tree.nodes[path].data


def test_create_topics_writes_the_settings_and_the_assignment():
    async def story(world):
        admin, _ = await made(world)
        answer = await admin.answer(call(create("t")), create("t", retention_ms="5"))
        [topic] = answer.topics
        assert topic.error_code == 0
        assert znodes.decode_config(content(world, paths.config("topics", "t"))) == {"retention.ms": "5"}
        written = znodes.decode_topic(content(world, paths.topic("t")))
        assert written.topic_id == topic.topic_id
        assert {number: sorted(each.replicas) for number, each in written.partitions.items()} == {0: [1, 2], 1: [1, 2]}

    run_story(story)


def test_create_topics_replaces_what_an_earlier_topic_has_left():
    async def story(world):
        admin, _ = await made(world)
        left = Create(paths.config("topics", "t"), znodes.encode_config({"retention.ms": "9"}))
        await admin._session.client.submit([left])
        answer = await admin.answer(call(create("t")), create("t"))
        assert answer.topics[0].error_code == 0
        assert znodes.decode_config(content(world, paths.config("topics", "t"))) == {}

    run_story(story)


def test_create_topics_is_refused_when_zookeeper_has_the_topic_already():
    async def story(world):
        admin, _ = await made(world)
        answers = [(await admin.answer(call(create("t")), create("t"))).topics[0].error_code for _ in range(2)]
        assert answers == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]

    run_story(story)


def test_create_topics_times_out_when_no_controller_elects_leaders():
    async def story(world):
        admin, _ = await made(world)
        answer = await admin.answer(call(create("t")), create("t", timeout_ms=100))
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    run_story(story)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (create("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (create("t", replication=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (create("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (create("t", retention_ms="x"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_create_topics_writes_nothing_when_it_is_refused(request_, error):
    async def story(world):
        admin, _ = await made(world)
        before = set(world.zookeeper.tree.nodes)
        answer = await admin.answer(call(request_), request_)
        assert answer.topics[0].error_code == error
        assert set(world.zookeeper.tree.nodes) == before

    run_story(story)


def test_create_partitions_adds_to_the_assignment_that_zookeeper_has():
    async def story(world):
        admin, roots = await made(world)
        await admin.answer(call(create("t")), create("t"))
        has(roots, "t")
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=0)
        before = znodes.decode_topic(content(world, paths.topic("t")))
        assert (await admin.answer(call(request), request)).results[0].error_code == 0
        after = znodes.decode_topic(content(world, paths.topic("t")))
        assert sorted(after.partitions) == [0, 1, 2, 3]
        assert (after.topic_id, after.partitions[0]) == (before.topic_id, before.partitions[0])
        assert (await admin.answer(call(request), request)).results[0].error_code == ErrorCode.INVALID_PARTITIONS

    run_story(story)


@pytest.mark.parametrize(("seen", "error"), [(2, ErrorCode.REQUEST_TIMED_OUT), (4, ErrorCode.NONE)])
def test_create_partitions_answers_when_the_partitions_have_leaders_or_the_time_is_over(seen, error):
    async def story(world):
        admin, roots = await made(world)
        await admin.answer(call(create("t")), create("t"))
        has(roots, "t")
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1_000)
        answering = asyncio.ensure_future(admin.answer(call(request), request))
        await asyncio.sleep(0.5)
        assert not answering.done()
        has(roots, "t", seen)
        assert [each.error_code for each in (await answering).results] == [error]

    run_story(story)


def test_delete_topics_asks_the_controller_by_a_znode():
    async def story(world):
        admin, roots = await made(world)
        has(roots, "t")
        request = DeleteTopicsRequest(topic_names=["t", "unknown"], timeout_ms=50)
        answer = await admin.answer(call(request, 5), request)
        assert paths.delete_topic("t") in world.zookeeper.tree.nodes
        errors = {each.name: each.error_code for each in answer.responses}
        assert errors == {"t": ErrorCode.REQUEST_TIMED_OUT, "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run_story(story)


class Name(str):
    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_delete_topics_compares_few_names_when_many_topics_are_not_deleted_in_time():
    async def story(world):
        admin, roots = await made(world)
        has(roots, "t")
        names = [*(Name(f"gone{number}") for number in range(1000)), "t"]
        answers = [SimpleNamespace(name=Name(name), error_code=ErrorCode.NONE) for name in names]
        compared = Name.compared
        await admin._gone(names, 0, answers)
        assert [each.name for each in answers if each.error_code == ErrorCode.REQUEST_TIMED_OUT] == ["t"]
        assert Name.compared - compared < 10_000

    run_story(story)


def alter(kind, name, **settings):
    made_configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=made_configs
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


@pytest.mark.parametrize(("kind", "name", "entity"), [(TOPIC, "t", "topics/t"), (BROKER, "", "brokers/<default>")])
def test_settings_are_merged_with_those_in_zookeeper_and_announced_to_every_broker(kind, name, entity):
    async def story(world):
        admin, roots = await made(world, controller=False)
        has(roots, "t")
        await admin._session.client.submit([Create(f"/config/{entity}", znodes.encode_config({"retention.ms": "9"}))])
        key = {TOPIC: "segment_ms", BROKER: "log_cleaner_threads"}[kind]
        request = alter(kind, name, **{key: "2000"})
        assert (await admin.answer(call(request), request)).responses[0].error_code == 0
        written = znodes.decode_config(content(world, f"/config/{entity}"))
        assert written == {"retention.ms": "9", key.replace("_", "."): "2000"}
        [change] = [path for path in world.zookeeper.tree.nodes if path.startswith(paths.config_change())]
        assert znodes.decode_config_change(content(world, change)) == entity

    run_story(story)


@pytest.mark.parametrize("when", ["lose_before", "lose_after"])
@pytest.mark.parametrize("exists", [False, True])
def test_settings_are_announced_to_every_broker_when_the_connection_breaks(when, exists):
    async def story(world):
        admin, roots = await made(world)
        has(roots, "t")
        if exists:
            await admin._session.client.submit([Create(paths.config("topics", "t"), znodes.encode_config({}))])
        lost = []

        def lose(count, operation):
            lost.append(operation)
            return len(lost) == 1

        setattr(world.zookeeper, when, lose)
        request = alter(TOPIC, "t", segment_ms="2000")
        answers = [(await admin.answer(call(request), request)).responses[0].error_code for _ in range(2)]
        assert answers == [ErrorCode.NONE, ErrorCode.NONE]
        assert znodes.decode_config(content(world, paths.config("topics", "t"))) == {"segment.ms": "2000"}
        changes = [path for path in world.zookeeper.tree.nodes if path.startswith(paths.config_change())]
        assert {znodes.decode_config_change(content(world, change)) for change in changes} == {"topics/t"}

    run_story(story)


@pytest.mark.parametrize("exists", [False, True])
def test_settings_of_both_nodes_are_kept_when_they_change_the_same_topic_at_once(exists):
    async def story(world):
        admins = [await made(world) for _ in range(2)]
        (first, _), (second, _) = admins
        if exists:
            await first._session.client.submit([Create(paths.config("topics", "t"), znodes.encode_config({}))])
        requests = [alter(TOPIC, "t", retention_ms="1"), alter(TOPIC, "t", segment_ms="2")]
        for _, roots in admins:
            has(roots, "t")
        submit, other = second._session.client.submit, []

        async def change_after_the_read(operations):
            results = await submit(operations)
            if not other and operations[0].path == paths.config("topics", "t"):
                other.append(await first.answer(call(requests[0]), requests[0]))
            return results

        second._session.client.submit = change_after_the_read
        answer = await second.answer(call(requests[1]), requests[1])
        assert [each.responses[0].error_code for each in (*other, answer)] == [ErrorCode.NONE] * 2
        written = znodes.decode_config(content(world, paths.config("topics", "t")))
        assert written == {"retention.ms": "1", "segment.ms": "2"}

    run_story(story)


def submitted(admin):
    """Returns the list of calls that the admin submits from now on."""
    submit, calls = admin._session.client.submit, []

    async def recorded(operations):
        calls.append(operations)
        return await submit(operations)

    admin._session.client.submit = recorded
    return calls


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_are_refused_without_a_read_when_the_resource_does_not_exist(kind, name, error):
    async def story(world):
        admin, roots = await made(world)
        has(roots, "t")
        calls = submitted(admin)
        request = alter(kind, name)
        assert (await admin.answer(call(request), request)).responses[0].error_code == error
        assert not calls

    run_story(story)


def test_settings_are_read_in_parts_when_a_request_has_many_topics():
    async def story(world):
        admin, roots = await made(world)
        keys = [TopicKey(f"t{number}", Uuid(number.to_bytes(16, "big"))) for number in range(1, 1502)]
        roots.take_view([PartitionState(key, 0, 1, 0, 0, [1], [1]) for key in keys], [], [], 1)
        calls = submitted(admin)
        resources = [alter(TOPIC, key.name).resources[0] for key in keys]
        request = IncrementalAlterConfigsRequest(resources=resources)
        answer = await admin.answer(call(request), request)
        assert {each.error_code for each in answer.responses} == {ErrorCode.NONE}
        assert list(map(len, calls)) == [1000, 501]

    run_story(story)


def test_settings_are_not_changed_when_no_broker_can_hear_of_the_change():
    async def story(world):
        admin, roots = await made(world)
        has(roots, "t")
        path = paths.config("topics", "t")
        await admin._session.client.submit([Create(path, znodes.encode_config({})), Delete(paths.CONFIG_CHANGES)])
        request = alter(TOPIC, "t", segment_ms="2000")
        assert (await admin.answer(call(request), request)).responses[0].error_code != ErrorCode.NONE
        assert znodes.decode_config(content(world, path)) == {}

    run_story(story)


def test_topics_are_refused_when_another_broker_is_the_controller():
    async def story(world):
        admin, _ = await made(world, controller=False)
        for request in (create("t"), DeleteTopicsRequest(), CreatePartitionsRequest(), ElectLeadersRequest()):
            with pytest.raises(KafkaError) as refused:
                await admin.answer(call(request), request)
            assert refused.value.code == ErrorCode.NOT_CONTROLLER

    run_story(story)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zookeeper.ssl.client.enable", "true"),
        ("zookeeper.set.acl", "true"),
        ("inter.broker.protocol.version", "2.1"),
        ("inter.broker.protocol.version", "4.0"),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
    ],
)
def test_start_error_names_the_key_when_zookeeper_mode_lacks_the_feature(key, value):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        refuse_what_is_missing(BrokerConfig(ZOOKEEPER | {key: value}))


@pytest.mark.parametrize("version", ["2.2", "2.7-IV0", "3.9-IV0"])
def test_start_is_not_refused_when_the_inter_broker_protocol_is_old(version):
    refuse_what_is_missing(BrokerConfig(ZOOKEEPER | {"inter.broker.protocol.version": version}))


def test_create_topics_writes_no_id_when_the_inter_broker_protocol_has_none():
    async def story(world):
        admin, _ = await made(world, **{"inter.broker.protocol.version": "2.7"})
        answer = await admin.answer(call(create("t")), create("t"))
        assert answer.topics[0].topic_id == ZERO
        assert znodes.decode_topic(content(world, paths.topic("t"))).topic_id is None

    run_story(story)
