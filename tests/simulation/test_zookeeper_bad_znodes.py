"""Znodes with torn, foreign or newer content in a cluster with ZooKeeper controllers: an operator's edits, and what
other programs leave behind. The controller ignores the content, logs it, changes nothing, and goes on."""

import json

import pytest
from tests.support.zookeeper_controllers import run_cluster

from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Delete

TORN = {
    "empty": b"",
    "torn": b'{"version":1,"partitions":[{"topic":"ev',
    "binary": b"\xff\xfe\x00\x01",
    "list": b"[1,2]",
    "number": b"7",
    "text": b'"events"',
    "fields of other types": b'{"version":{},"partitions":"events","config":[1],"broker":"one","features":7}',
    "newer": b'{"version":99,"unknown":{"a":[1]}}',
    "huge": json.dumps({"version": 1, "partitions": ["x" * 900_000], "config": {"a": ["x"]}}).encode(),
}
# Each znode that the controller reads, except those that other tests spoil: `/controller`, `/controller_epoch`, the
# states of partitions, and the block of producer ids.
READ = {
    "topic": paths.topic("foreign"),
    "broker": paths.broker(9),
    "isr change": f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}0000000099",
    "log dir event": f"{paths.LOG_DIR_EVENTS}/{paths.LOG_DIR_EVENT_PREFIX}0000000099",
    "reassignment": paths.REASSIGN_PARTITIONS,
    "preferred election": paths.PREFERRED_ELECTION,
    "features": paths.FEATURE,
}

# Names that no broker writes.
FOREIGN = {
    "broker 007": paths.broker(7).replace("7", "007"),
    "broker above 2^31": paths.broker(9_999_999_999),
    "broker x": f"{paths.BROKER_IDS}/x",
    "topic of 250 letters": paths.topic("t" * 250),
    "topic of 40,000 letters": paths.topic("t" * 40_000),
    "topic with a space": paths.topic("a b"),
    "topic of another alphabet": paths.topic("Δ"),
    "isr change": f"{paths.ISR_CHANGES}/by-hand",
    "log dir event": f"{paths.LOG_DIR_EVENTS}/by-hand",
    "deletion of an unknown topic": paths.delete_topic("a b"),
}


def topic(*assignments, first=0):
    return znodes.encode_topic(
        znodes.TopicAssignment(
            None, {first + number: znodes.Assignment(each) for number, each in enumerate(assignments)}
        )
    )


def broker(*endpoints, **fields):
    return znodes.encode_broker(znodes.BrokerRegistration(9, tuple(map(znodes.Endpoint._make, endpoints)), **fields))


PLAINTEXT = ("PLAINTEXT", "PLAINTEXT", "h", 9092)
LONG = "x" * 40_000
# Content that can be read, but that no broker or tool writes.
ODD = {
    "broker without endpoints": (READ["broker"], broker()),
    "broker with a long rack": (READ["broker"], broker(PLAINTEXT, rack=LONG)),
    "broker with a long host": (READ["broker"], broker(("PLAINTEXT", "PLAINTEXT", LONG, 9092))),
    "broker with a long listener": (READ["broker"], broker(PLAINTEXT, (LONG, "PLAINTEXT", "h", 1))),
    "broker with a high port": (READ["broker"], broker(("PLAINTEXT", "PLAINTEXT", "h", 99_999))),
    "topic without partitions": (READ["topic"], topic()),
    "topic without replicas": (READ["topic"], topic([])),
    "topic with unknown brokers": (READ["topic"], topic([77, 2_147_483_647])),
    "topic with a replica twice": (READ["topic"], topic([2, 2])),
    "topic with a high partition": (READ["topic"], topic([2], first=2_147_483_647)),
    "isr change of an unknown topic": (READ["isr change"], znodes.encode_isr_change([("foreign", 0), ("events", 7)])),
    "log dir event of an unknown broker": (READ["log dir event"], znodes.encode_log_dir_event(77)),
    "reassignment of an unknown topic": (READ["reassignment"], znodes.encode_reassignments({("foreign", 0): [1]})),
    "reassignment to nobody": (READ["reassignment"], znodes.encode_reassignments({("events", 0): []})),
    "reassignment to a broker twice": (READ["reassignment"], znodes.encode_reassignments({("events", 0): [1, 1]})),
    "election of an unknown topic": (READ["preferred election"], znodes.encode_preferred_election([("foreign", 0)])),
}


def snapshot(world):
    """Returns the content of the znodes of topic `events`, and the controller epoch."""
    nodes = world.zookeeper.tree.nodes
    kept = {path: node.data for path, node in nodes.items() if path.startswith(paths.topic("events"))}
    return kept, world.controller_epoch()


def goes_on(world, before, caplog):
    """Checks that the controller, and then a new one that reads everything again, works and has changed nothing of
    `events`."""
    for name in ("during", "after"):
        world.create_topic(name, {0: [1, 2, 3]})
        world.wait_for(lambda topic=name: all((topic, 0) in life.model.metadata for life in world.alive()))
        world.step_for(1)
        assert world.state(name, 0)["leader"] == 1
        kept, epoch = snapshot(world)
        assert (kept, epoch) == (before[0], before[1] + (name == "after"))
        assert {1, 2, 3} <= world.active().controller.context.brokers.keys()
        if name == "during":
            world.move_controller()
            world.wait_for(lambda: world.active() is not None and world.controller_epoch() > before[1])
    assert not [each.getMessage() for each in caplog.records if each.exc_info]


def started(world):
    world.start_brokers(1, 2, 3)
    world.create_topic("events", {0: [1, 2, 3]})
    world.settle()
    return snapshot(world)


@pytest.mark.parametrize("content", TORN.values(), ids=TORN)
@pytest.mark.parametrize("name", READ)
def test_controller_ignores_a_znode_when_its_content_cannot_be_read(name, content, caplog):
    def story(world):
        before = started(world)
        world.put_znode(READ[name], content)
        goes_on(world, before, caplog)
        assert 9 not in world.active().controller.context.brokers
        assert "foreign" not in world.active().controller.context.topics
        logged = [each.getMessage() for each in caplog.records if each.levelname in {"WARNING", "ERROR"}]
        assert any(paths.name(READ[name]) in each and "cannot be read" in each for each in logged)
        world.do(Delete(READ[name]))  # because the invariants read every topic

    run_cluster(story)


@pytest.mark.parametrize(("path", "content"), ODD.values(), ids=ODD)
def test_controller_goes_on_when_a_znode_has_impossible_content(path, content, caplog):
    def story(world):
        before = started(world)
        world.put_znode(path, content)
        goes_on(world, before, caplog)
        world.do(Delete(path))
        world.settle()

    run_cluster(story)


@pytest.mark.parametrize("path", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("content", ["empty", "valid"])
def test_controller_goes_on_when_a_znode_has_a_foreign_name(path, content, caplog):
    def story(world):
        before = started(world)
        world.put_znode(path, valid(world, path) if content == "valid" else b"")
        goes_on(world, before, caplog)
        assert world.active().controller.context.topics.keys() == {"events", "during", "after"}
        if paths.parent(path) == paths.TOPICS:
            world.do(Delete(path))

    run_cluster(story)


def valid(world, path):
    """Returns content that another znode of the same kind has."""
    parent = paths.parent(path)
    if parent == paths.BROKER_IDS:
        return world.node(paths.broker(1)).data
    if parent == paths.TOPICS:
        return topic([2, 1])
    if parent == paths.ISR_CHANGES:
        return znodes.encode_isr_change([("events", 0)])
    return znodes.encode_log_dir_event(1) if parent == paths.LOG_DIR_EVENTS else b""


def test_partition_keeps_its_state_when_its_leader_epoch_is_the_highest(caplog):
    def story(world):
        started(world)
        path = paths.partition_state("events", 0)
        world.put_znode(path, json.dumps(json.loads(world.node(path).data) | {"leader_epoch": (1 << 31) - 1}).encode())
        kept, epoch = snapshot(world)
        world.move_controller()
        world.wait_for(lambda: world.active() is not None and world.controller_epoch() > epoch)
        world.kill(world.state("events", 0)["leader"])
        world.wait_for(lambda: world.active() is not None and len(world.active().controller.context.brokers) == 2)
        world.settle()
        world.create_topic("after", {0: [1, 2, 3]})
        world.wait_for(lambda: all(("after", 0) in life.model.metadata for life in world.alive()))
        assert snapshot(world)[0] == kept
        assert not [each.getMessage() for each in caplog.records if each.exc_info]
        assert any("create the topic again" in each.getMessage() for each in caplog.records)
        world.delete_topic("events")
        world.settle()

    run_cluster(story)
