"""The controller's session ends in the middle of each protocol: at every request that the protocol sends to ZooKeeper,
before or after ZooKeeper executes it."""

import pytest
from tests.support.session_ends import SessionEnds
from tests.support.zookeeper_controllers import run_cluster

from kafkacore.controller.zookeeper.inter_broker_protocol import LATEST, InterBrokerProtocol
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import AlterPartitionReassignmentsRequest, ControlledShutdownRequest
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Create, CreateMode, SetData

# The errors of a request that arrives while no broker is the controller, or while its sender is not registered.
RETRIED = (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE)
TAKE_OVER_REQUESTS, STEP = 36, 12
MOVES = {("events", 0): [3, 2], ("events", 1): [1]}
PARTITIONS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}


def ask(world, method, make_request, version):
    """Sends a request to the controller, again and again, until a controller has handled it."""
    while True:
        world.wait_for(lambda: world.active() is not None)
        try:
            return world.ask(method, make_request(), version)
        except KafkaError as error:
            if error.code not in RETRIED:
                raise
        world.step_for(0.1)


class Protocol:
    """One protocol: `begins` starts it, and `is_done` returns whether it has had its effect."""

    version = LATEST  # the inter.broker.protocol.version
    elects = False  # whether the protocol elects a controller

    def prepares(self, world):
        pass

    def begins(self, world):
        raise NotImplementedError

    def is_done(self, world):
        raise NotImplementedError

    def sessions(self, world):
        """Returns the sessions of which one may end."""
        return {world.active().client.session_id}


def others(world):
    """Returns the brokers that are not the controller."""
    return [life.broker_id for life in world.alive() if life is not world.active()]


def states(world, topic="events"):
    return [world.state(topic, number) for number in PARTITIONS]


class MetadataUpdates(Protocol):
    """A leader with an old version writes an ISR itself."""

    version = InterBrokerProtocol("2.6")

    def prepares(self, world):
        for life in world.alive():
            life.model.proposes = False

    def begins(self, world):
        state = world.state("events", 0)
        data = znodes.encode_states(
            [znodes.PartitionState(state["leader"], state["leader_epoch"], [state["leader"]], 1)]
        )
        world.do(SetData(paths.partition_state("events", 0), data[0]))
        note = znodes.encode_isr_change([("events", 0)])
        world.do(Create(paths.isr_change(), note, CreateMode.PERSISTENT_SEQUENTIAL))

    def is_done(self, world):
        isr = world.state("events", 0)["isr"]
        known = [life.model.metadata["events", 0][2] for life in world.alive()]
        return not world.node(paths.ISR_CHANGES).children and known == [isr] * 3


class TopicCreation(Protocol):
    def begins(self, world):
        world.create_topic("more", PARTITIONS)

    def is_done(self, world):
        return all(state is not None and len(state["isr"]) == 3 for state in states(world, "more"))


class TopicDeletion(Protocol):
    def begins(self, world):
        world.delete_topic("events")

    def is_done(self, world):
        return (
            world.node(paths.topic("events")) is None
            and world.node(paths.delete_topic("events")) is None
            and not any(world.disks.values())
        )


class PartitionReassignment(Protocol):
    def begins(self, world):
        world.reassign(MOVES)

    def is_done(self, world):
        return world.node(paths.REASSIGN_PARTITIONS) is None and all(
            world.assignment(*each) == replicas and set(world.state(*each)["isr"]) == set(replicas)
            for each, replicas in MOVES.items()
        )


class PartitionReassignmentByRequest(PartitionReassignment):
    def begins(self, world):
        made = AlterPartitionReassignmentsRequest
        partitions = [
            made.ReassignablePartition(partition_index=number, replicas=replicas)
            for (_, number), replicas in MOVES.items()
        ]
        request = made(topics=[made.ReassignableTopic(name="events", partitions=partitions)])
        response = ask(world, "alter_reassignments", lambda: request, 0)
        assert {each.error_code for each in response.responses[0].partitions} == {0}


class PreferredElection(Protocol):
    """The preferred leader is not the controller. If its own session ends later, it loses the leadership again."""

    def prepares(self, world):
        self.preferred = others(world)[0]
        world.bounce(self.preferred)
        world.settle()
        self.number = next(number for number, replicas in PARTITIONS.items() if replicas[0] == self.preferred)
        assert world.state("events", self.number)["leader"] != self.preferred
        self.epoch = world.lives[self.preferred].epoch

    def begins(self, world):
        world.elect_preferred(("events", self.number))

    def is_done(self, world):
        leads = world.state("events", self.number)["leader"] == self.preferred
        has_rejoined = world.lives[self.preferred].epoch != self.epoch
        return world.node(paths.PREFERRED_ELECTION) is None and (leads or has_rejoined)


class PartitionExpansion(Protocol):
    def begins(self, world):
        content = znodes.decode_topic(world.node(paths.topic("events")).data)
        content.partitions.update({3: znodes.Assignment([1, 2, 3]), 4: znodes.Assignment([2, 3, 1])})
        world.put_znode(paths.topic("events"), znodes.encode_topic(content))

    def is_done(self, world):
        return all((state := world.state("events", number)) and len(state["isr"]) == 3 for number in (3, 4))


class BrokerJoin(Protocol):
    def prepares(self, world):
        self.joining = others(world)[0]
        world.kill(self.joining)
        world.settle()

    def begins(self, world):
        world.start_broker(self.joining)

    def is_done(self, world):
        return all(self.joining in state["isr"] for state in states(world))


class BrokerFailure(Protocol):
    def begins(self, world):
        self.failed = others(world)[0]
        world.kill(self.failed)

    def is_done(self, world):
        alive = [life.broker_id for life in world.alive()]
        return all(state["leader"] in alive and self.failed not in state["isr"] for state in states(world))


class ControlledShutdown(Protocol):
    def begins(self, world):
        self.leaver = others(world)[0]
        life = world.lives[self.leaver]
        life.model.is_leaving = True

        def request():
            return ControlledShutdownRequest(broker_id=self.leaver, broker_epoch=life.epoch)

        assert not ask(world, "controlled_shutdown", request, 3).remaining_partitions
        assert all(state["leader"] not in (self.leaver, -1) for state in states(world))
        world.kill(self.leaver)

    def is_done(self, world):
        return all(self.leaver not in state["isr"] for state in states(world))


class ControllerElection(Protocol):
    """An administrator deletes `/controller`. Any broker may be elected."""

    elects = True

    def begins(self, world):
        self.epoch = world.controller_epoch()
        world.move_controller()

    def is_done(self, world):
        return world.controller_epoch() > self.epoch

    def sessions(self, world):
        return {life.client.session_id for life in world.alive()}


class ControllerFailure(ControllerElection):
    def begins(self, world):
        self.epoch = world.controller_epoch()
        world.kill(world.active().broker_id)


PROTOCOLS = (
    MetadataUpdates, TopicCreation, TopicDeletion, PartitionReassignment, PartitionReassignmentByRequest,
    PreferredElection, PartitionExpansion, BrokerJoin, BrokerFailure, ControlledShutdown, ControllerElection,
    ControllerFailure,
)  # fmt: skip


def run(protocol, *at, **how):
    """Runs the protocol in a new cluster, and ends a session at each of the requests with these numbers. Returns the
    SessionEnds."""
    made = []

    def story(world):
        world.start_brokers(1, 2, 3, inter_broker_protocol=protocol.version)
        world.create_topic("events", PARTITIONS)
        world.settle()
        protocol.prepares(world)
        epoch = world.controller_epoch()
        ends = SessionEnds(world, protocol.sessions(world), *at, **how)
        made.append(ends)
        with ends.counting():
            protocol.begins(world)
            world.wait_for(lambda: world.active() is not None and protocol.is_done(world))
            world.settle()
        world.wait_for(lambda: world.active() is not None)
        world.settle()
        assert protocol.is_done(world)
        assert not ends.violations
        assert not how.get("breaks") or protocol.elects or world.controller_epoch() == epoch

    try:
        run_cluster(story)
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"requests {at}: {error}") from error
    return made[0]


HOW = pytest.mark.parametrize("takes_effect", [False, True], ids=["lost", "executed"])


@HOW
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocol_ends_when_the_session_ends_at_any_of_its_requests(protocol, takes_effect):
    count = run(protocol()).count
    assert count > 1
    for at in range(1, count + 1):
        assert run(protocol(), at, takes_effect=takes_effect).ended


@HOW
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocol_ends_when_the_connection_breaks_at_any_of_its_requests(protocol, takes_effect):
    for at in range(1, run(protocol()).count + 1):
        assert run(protocol(), at, takes_effect=takes_effect, breaks=True).ended


@HOW
@pytest.mark.parametrize("protocol", [each for each in PROTOCOLS if not each.elects])
def test_protocol_ends_when_the_session_of_the_next_controller_ends_too(protocol, takes_effect):
    """A take-over sends about 30 requests. For each request of the protocol, the test ends the second session at
    every STEP-th request of the take-over, beginning with a different one."""
    for at in range(1, run(protocol()).count + 1):
        for later in range(at % STEP + 1, TAKE_OVER_REQUESTS, STEP):
            assert run(protocol(), at, later, takes_effect=takes_effect).ended
