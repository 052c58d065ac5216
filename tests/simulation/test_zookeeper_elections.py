"""Controllers in ZooKeeper mode: they are elected, resign, lose their sessions, and take over from one another."""

import itertools
import json

import pytest
from tests.support.zookeeper_controllers import refuse_once, run_cluster

from kafkacore.controller.zookeeper import failover
from kafkacore.controller.zookeeper.events import Event
from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.controller.zookeeper.request_batches import RequestBatch
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import ListPartitionReassignmentsRequest
from kafkacore.simulation.schedule import NS_OF_A_S
from kafkacore.simulation.zookeeper_server import Transaction
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.client import SessionState
from kafkacore.zookeeper.operations import Code, Create, CreateMode, Delete, Multi, Result, SetData, ZooKeeperError

PARTITIONS = {number: [[1, 2, 3], [2, 3, 1], [3, 1, 2]][number % 3] for number in range(30)}


def started(world, **settings):
    world.start_brokers(1, 2, 3, **settings)
    world.create_topic("events", PARTITIONS)
    world.settle()
    return world.active()


def wait_for_another(world, former_epoch):
    world.wait_for(lambda: world.active() is not None and world.controller_epoch() > former_epoch)
    world.settle()
    return world.active()


# --- one multi, and the four ways ---


def test_election_is_one_multi_that_creates_the_znode_and_raises_the_epoch():
    def story(world):
        elections = []

        def note(count, operation):
            parts = operation.operations if isinstance(operation, Multi) else (operation,)
            writes = [(type(each), each.path) for each in parts]
            elections.extend([writes] if (Create, paths.CONTROLLER) in writes else [])
            return False

        world.zookeeper.lose_before = note
        former = started(world)
        assert elections
        assert all(each == [(Create, paths.CONTROLLER), (SetData, paths.CONTROLLER_EPOCH)] for each in elections)
        assert world.controller_epoch() == 1
        node = world.node(paths.CONTROLLER)
        assert node.owner == former.client.session_id
        assert znodes.decode_controller(node.data).broker_id == former.broker_id
        assert former.controller.context.epoch_version == world.node(paths.CONTROLLER_EPOCH).version

    run_cluster(story)


def test_election_writes_nothing_when_the_epoch_has_changed_since_it_was_read():
    def story(world):
        world.prepare()
        seen = []

        def raise_the_epoch_first(count, operation):
            if is_election(operation) and not seen:
                world.zookeeper.commit(Transaction(world.admin.session_id, SetData(paths.CONTROLLER_EPOCH, b"41")))
                seen.append(operation)
            return False

        world.zookeeper.lose_before = raise_the_epoch_first
        only = world.start_broker(1)
        world.wait_for(lambda: seen)
        assert world.node(paths.CONTROLLER) is None
        assert world.controller_epoch() == 41
        world.wait_for(lambda: world.active() is only)
        assert world.controller_epoch() == 42

    run_cluster(story)


def test_controller_is_elected_when_an_administrator_deletes_the_znode():
    def story(world):
        former = started(world)
        world.move_controller()
        wait_for_another(world, 1)
        assert world.controller_epoch() == 2
        if world.active() is not former:
            assert not former.controller.is_active

    run_cluster(story)


@pytest.mark.parametrize("written", [2, 77, -1])
def test_controller_is_elected_when_an_administrator_writes_a_broker_id(written):
    def story(world):
        former = started(world)
        target = written if written != former.broker_id else written + 1
        world.do(SetData(paths.CONTROLLER, znodes.encode_controller(target, 0)))
        wait_for_another(world, 1)
        assert world.controller_epoch() == 2

    run_cluster(story)


@pytest.mark.parametrize("content", [b"", b"nonsense", b'{"brokerid":"1"}'])
def test_controller_is_elected_when_an_administrator_writes_nonsense(content):
    def story(world):
        started(world)
        world.do(SetData(paths.CONTROLLER, content))
        wait_for_another(world, 1)

    run_cluster(story)


def test_controller_is_elected_when_its_broker_fails():
    def story(world):
        former = started(world)
        world.kill(former.broker_id, expire=False)  # its session ends only when it times out
        active = wait_for_another(world, 1)
        assert active.broker_id != former.broker_id
        assert all(former.broker_id not in world.state("events", number)["isr"] for number in PARTITIONS)

    run_cluster(story)


def test_controller_is_elected_when_it_shuts_down():
    def story(world):
        former = started(world)
        world.on(former, former.end())
        former.kill()
        active = wait_for_another(world, 1)
        assert active is not former
        assert not former.controller.context.topics

    run_cluster(story)


def test_controller_gives_up_when_somebody_writes_the_epoch():
    def story(world):
        started(world)
        world.do(SetData(paths.CONTROLLER_EPOCH, b"41"))
        world.create_topic("more", {0: [1, 2]})  # the next write of the old controller is fenced
        wait_for_another(world, 41)
        assert world.controller_epoch() == 42
        assert world.state("more", 0)["controller_epoch"] == 42

    run_cluster(story)


def test_epoch_that_cannot_be_read_elects_nobody_until_it_is_corrected():
    def story(world):
        former = started(world)
        world.do(SetData(paths.CONTROLLER_EPOCH, b"many"))
        world.kill(former.broker_id)
        world.step_for(10)
        assert world.node(paths.CONTROLLER) is None
        world.do(SetData(paths.CONTROLLER_EPOCH, b"7"))
        world.wait_for(lambda: world.active() is not None)
        assert world.controller_epoch() == 8

    run_cluster(story)


# --- sessions ---


def test_controller_discards_everything_when_its_session_expires():
    def story(world):
        former = started(world)
        world.zookeeper.expire(former.client.session_id)
        world.wait_for(lambda: not former.controller.is_active)
        assert not former.controller.context.topics
        assert not len(former.controller.senders)
        wait_for_another(world, 1)
        assert world.node(paths.broker(former.broker_id)).owner == former.client.session_id

    run_cluster(story)


def test_controller_pauses_and_goes_on_when_its_connection_breaks():
    def story(world):
        former = started(world)
        for server in world.zookeeper.servers.values():
            server.cut_connections()
        world.create_topic("more", {0: [1, 2, 3]})
        world.wait_for(lambda: world.state("more", 0) is not None)
        world.settle()
        assert world.active() is former
        assert world.controller_epoch() == 1
        assert world.state("more", 0)["leader"] == 1

    run_cluster(story)


def test_controller_answers_only_after_its_connection_is_back():
    """While the connection is broken, another broker may have become the controller."""

    def story(world):
        former = started(world)
        for server in world.zookeeper.servers.values():
            server.stop()
        world.wait_for(lambda: former.client.state is SessionState.CONNECTING)
        work = former.controller.list_reassignments(ListPartitionReassignmentsRequest(topics=None), 0)
        listed = former.loop.create_task(work)
        world.step_for(1)
        assert not listed.done()
        for server in world.zookeeper.servers.values():
            server.start()
        world.wait_for(listed.done)
        assert former.client.state is SessionState.CONNECTED
        assert listed.result().error_code == ErrorCode.NONE

    run_cluster(story)


@pytest.mark.parametrize("when", ["lose_before", "lose_after"])
def test_write_with_an_unknown_outcome_is_read_back(when):
    def story(world):
        former = started(world)
        lost = []

        def lose(count, operation):
            if lost or not any(
                getattr(each, "path", "").endswith("/state") for each in getattr(operation, "operations", ())
            ):
                return False
            lost.append(operation)
            return True

        setattr(world.zookeeper, when, lose)
        world.create_topic("more", {number: [1, 2, 3] for number in range(20)})
        world.settle()
        assert lost
        assert world.active() is former
        assert former.controller.access.read_back
        assert world.state("more", 19)["leader_epoch"] == 0

    run_cluster(story)


def lose_once(world, when, matches):
    """Cuts off the first write for which `matches` is true. Returns the list of the writes that were cut off."""
    lost = []

    def lose(count, operation):
        if lost or not matches(operation):
            return False
        lost.append(operation)
        return True

    setattr(world.zookeeper, when, lose)
    return lost


def is_election(operation):
    return isinstance(operation, Multi) and getattr(operation.operations[0], "path", "") == paths.CONTROLLER


@pytest.mark.parametrize("when", ["lose_before", "lose_after"])
def test_election_with_an_unknown_outcome_is_read_back(when):
    def story(world):
        former = started(world)
        lost = lose_once(world, when, is_election)
        world.kill(former.broker_id)
        wait_for_another(world, 1)
        assert lost

    run_cluster(story)


@pytest.mark.parametrize("when", ["lose_before", "lose_after"])
def test_only_candidate_is_elected_when_its_election_is_cut_off(when):
    def story(world):
        world.prepare()
        lost = lose_once(world, when, is_election)
        only = world.start_broker(1)
        world.wait_for(lambda: world.active() is only)
        assert lost
        assert world.controller_epoch() == 1

    run_cluster(story)


def is_resignation(operation):
    parts = operation.operations if isinstance(operation, Multi) else (operation,)
    return any(isinstance(each, Delete) and each.path == paths.CONTROLLER for each in parts)


@pytest.mark.parametrize("when", ["lose_before", "lose_after"])
@pytest.mark.parametrize("reason", ["written znode", "written epoch", "failed takeover"])
def test_controller_is_elected_when_the_deletion_of_its_znode_is_cut_off(when, reason, monkeypatch):
    take_over, epochs = failover.take_over, []

    async def fail_first(controller):
        epochs.append(controller.epoch)
        if reason == "failed takeover" and len(epochs) == 1:
            raise ZooKeeperError(Code.SYSTEM_ERROR, paths.TOPICS)
        await take_over(controller)

    monkeypatch.setattr(failover, "take_over", fail_first)

    def story(world):
        world.prepare()
        lost = lose_once(world, when, is_resignation)
        only = world.start_broker(1)
        if reason != "failed takeover":
            world.wait_for(lambda: world.active() is only)
            world.settle()
        if reason == "written znode":
            world.do(SetData(paths.CONTROLLER, znodes.encode_controller(77, 0)))
        elif reason == "written epoch":
            world.do(SetData(paths.CONTROLLER_EPOCH, b"41"))
            world.create_topic("more", {0: [1]})  # the next write of the controller is fenced
        world.wait_for(lambda: world.active() is only and len(epochs) == 2)
        assert lost
        assert world.controller_epoch() == epochs[-1]

    run_cluster(story)


@pytest.mark.parametrize("path", [paths.CONTROLLER, paths.CONTROLLER_EPOCH])
def test_znode_of_another_controller_stays_when_the_former_one_deletes_its_own_too_late(path):
    def story(world):
        former = started(world)
        session_id = world.admin.session_id
        other = [
            Delete(paths.CONTROLLER),
            Create(paths.CONTROLLER, znodes.encode_controller(77, 0), CreateMode.EPHEMERAL),
            SetData(paths.CONTROLLER_EPOCH, b"41"),
        ]
        late = []

        def another_is_elected_first(count, operation):
            if not late and is_resignation(operation):
                late.append(operation)
                world.zookeeper.commit(Transaction(session_id, Multi(other)))
            return False

        world.zookeeper.lose_before = another_is_elected_first
        world.do(SetData(path, znodes.encode_controller(77, 0) if path == paths.CONTROLLER else b"40"))
        world.create_topic("more", {0: [1, 2]})
        world.wait_for(lambda: late)
        world.step_for(5)
        assert world.node(paths.CONTROLLER).owner == session_id
        assert not former.controller.is_active
        world.move_controller()
        wait_for_another(world, 41)

    run_cluster(story)


def test_controller_is_elected_when_the_deletion_of_its_znode_fails_once():
    def story(world):
        only = world.start_broker(1)
        world.settle()
        submit, failed = only.client.submit, []

        async def refuse_once(operations):
            if not failed and any(map(is_resignation, operations)):
                failed.append(operations)
                return [Result(Code.SYSTEM_ERROR)] * len(operations)
            return await submit(operations)

        only.client.submit = refuse_once
        world.do(SetData(paths.CONTROLLER_EPOCH, b"41"))
        world.create_topic("more", {0: [1]})
        world.wait_for(lambda: world.active() is only and world.controller_epoch() == 42)
        assert failed

    run_cluster(story)


def test_controller_is_elected_when_the_znode_is_deleted_before_a_change_of_it_is_read():
    """The change fires the watches. A watch fires only once, so no broker hears of the deletion."""

    def story(world):
        started(world)
        content = world.node(paths.CONTROLLER).data
        world.run(world.admin.submit([SetData(paths.CONTROLLER, content), Delete(paths.CONTROLLER)]))
        wait_for_another(world, 1)
        assert world.controller_epoch() == 2

    run_cluster(story)


def test_controller_is_elected_again_when_its_takeover_fails(monkeypatch):
    take_over, failed = failover.take_over, []

    async def fail_once(controller):
        if not failed:
            failed.append(controller.epoch)
            raise ZooKeeperError(Code.SYSTEM_ERROR, paths.TOPICS)
        await take_over(controller)

    monkeypatch.setattr(failover, "take_over", fail_once)

    def story(world):
        only = world.start_broker(1)
        world.wait_for(lambda: world.active() is only and world.controller_epoch() == 2)
        assert failed == [1]

    run_cluster(story)


@pytest.mark.parametrize("reason", ["the take-over", "its requests"])
def test_controller_pauses_longer_and_longer_when_it_fails_in_every_term(reason, monkeypatch):
    """After a term without a failure, the pauses are short again."""
    take_over, flushing = failover.take_over, RequestBatch.flushing
    is_broken, made, terms = True, [], []  # made: the controllers' batches, which have all requests of the take-over

    def story(world):
        nonlocal is_broken

        def note_term():
            terms.append(world.schedule.now_ns / NS_OF_A_S)
            if is_broken and reason == "the take-over":
                raise ValueError("broken")

        async def noted_take_over(controller):
            note_term()
            await take_over(controller)
            made.append(controller.batch)

        def broken_flushing(batch):
            if is_broken and batch in made:
                raise ValueError("broken")
            return flushing(batch)

        monkeypatch.setattr(failover, "take_over", noted_take_over)
        monkeypatch.setattr(RequestBatch, "flushing", broken_flushing)
        only = world.start_broker(1)
        world.wait_for(lambda: len(terms) == 8, limit_s=300)
        pauses = [now - before for before, now in itertools.pairwise(terms)]
        assert pauses == pytest.approx([1, 2, 4, 8, 16, 30, 30], abs=0.5)
        is_broken = False
        world.wait_for(lambda: world.active() is only)
        world.settle()
        terms.clear()
        is_broken = True
        world.move_controller()
        world.wait_for(lambda: len(terms) == 2)
        assert terms[1] - terms[0] == pytest.approx(1, abs=0.5)
        is_broken = False
        world.wait_for(lambda: world.active() is only)

    run_cluster(story)


class Refused(Event):
    async def process(self, controller):
        raise error_for(ErrorCode.INVALID_REQUEST)


def test_other_broker_takes_over_when_the_requests_of_a_refused_event_cannot_be_built(monkeypatch):
    flush = RequestBatch.flush

    def story(world):
        former = started(world)
        epoch, batch = world.controller_epoch(), former.controller.batch

        def broken_flush(each):
            if each is batch:
                raise ValueError("broken")
            flush(each)

        monkeypatch.setattr(RequestBatch, "flush", broken_flush)
        former.controller.put(Refused())
        assert wait_for_another(world, epoch) is not former
        assert world.faults == []
        # The former controller still handles events, so it can be elected again.
        for each in world.alive():
            if each is not former:
                world.kill(each.broker_id)
        world.wait_for(lambda: world.active() is former)

    run_cluster(story)


def test_fault_is_reported_when_a_controller_can_handle_no_more_events():
    def story(world):
        former = started(world)
        error = ValueError("broken")

        def fail(*_):
            raise error

        former.controller.measures.waited = fail
        former.controller.put(Refused())
        world.wait_for(lambda: world.faults)
        assert world.faults == [error]

    run_cluster(story)


def test_other_broker_takes_over_at_once_when_the_first_one_fails(monkeypatch):
    take_over = failover.take_over

    async def fail_on_broker_1(controller):
        if controller.settings.broker_id == 1:
            raise ValueError("broken")
        await take_over(controller)

    monkeypatch.setattr(failover, "take_over", fail_on_broker_1)

    def story(world):
        world.start_broker(1)
        world.start_broker(2)
        world.wait_for(lambda: (active := world.active()) is not None and active.broker_id == 2, limit_s=3)
        epoch = world.controller_epoch()
        world.step_for(60)
        assert world.controller_epoch() == epoch

    run_cluster(story)


def test_broker_is_elected_when_its_first_registration_in_a_new_session_fails():
    def story(world):
        only = world.start_broker(1)
        world.settle()
        register, failed = only.register, []

        async def fail_once():
            if not failed:
                failed.append(only.client.session_id)
                raise ZooKeeperError(Code.SYSTEM_ERROR, paths.broker(1))
            return await register()

        only.register = fail_once
        world.zookeeper.expire(only.client.session_id)
        world.wait_for(lambda: world.active() is only and world.controller_epoch() == 2)
        assert failed == [only.client.session_id]

    run_cluster(story)


def test_controller_that_slept_through_its_session_changes_nothing():
    def story(world):
        former = started(world)
        former.machine.pause()
        world.step_for(20)
        active = wait_for_another(world, 1)
        world.create_topic("more", {0: [1, 2, 3]})
        world.settle()
        former.machine.resume()
        world.step_for(5)
        world.settle()
        assert world.active() is active
        assert not former.controller.is_active

    run_cluster(story)


def test_deposed_controller_writes_nothing_when_it_has_not_heard_of_it():
    def story(world):
        former = started(world)
        deaf = []
        former.controller._watch_fired = deaf.append
        former.client._watch_callbacks[:] = [deaf.append]  # from now on, it receives no watch event
        world.move_controller()
        wait_for_another(world, 1)
        assert former.controller.is_active
        topics = former.controller.topics
        former.controller.access.bind()
        with pytest.raises(Exception, match="controller has moved"):
            world.on(former, topics.write_assignments(former.controller.context, ["events"]))
        former.controller.allow_unclean_elections()
        world.do(SetData(paths.topic("events"), world.node(paths.topic("events")).data))
        former.client._watch_callbacks[:] = [former.controller.__class__._watch_fired.__get__(former.controller)]
        world.zookeeper.expire(former.client.session_id)
        world.wait_for(lambda: not former.controller.is_active)

    run_cluster(story)


def test_ephemeral_znode_of_an_earlier_session_is_not_taken_for_a_registration():
    def story(world):
        former = started(world)
        old_epoch = former.epoch
        world.kill(former.broker_id, expire=False)
        world.start_broker(former.broker_id)  # waits until the old session has ended
        wait_for_another(world, 1)
        assert world.lives[former.broker_id].epoch > old_epoch

    run_cluster(story)


# --- failover ---


def test_new_controller_loads_the_cluster_in_few_round_trips():
    def story(world):
        world.start_brokers(1, 2, 3)
        for number in range(40):
            world.create_topic(f"topic-{number}", {partition: [1, 2, 3] for partition in range(5)})
        world.settle()
        world.requests.clear()
        submits = []
        for life in world.alive():
            submit = life.client.submit

            async def counted(operations, submit=submit):
                submits.append(len(operations))
                return await submit(operations)

            life.client.submit = counted
        world.move_controller()
        wait_for_another(world, 1)
        world.wait_for(lambda: world.active().controller.gauges.global_partition == 200)
        assert len(submits) < 40, submits
        for broker_id in (1, 2, 3):
            assert len(world.sent(ApiKey.LEADER_AND_ISR, broker_id)) == 1

    run_cluster(story)


def test_new_controller_drops_old_notifications():
    def story(world):
        former = started(world)
        former.machine.pause()
        note = znodes.encode_isr_change([("events", 0)])
        for _ in range(3):
            world.do(Create(paths.isr_change(), note, CreateMode.PERSISTENT_SEQUENTIAL))
            world.do(Create(paths.log_dir_event(), b"{", CreateMode.PERSISTENT_SEQUENTIAL))
        world.kill(former.broker_id)
        wait_for_another(world, 1)
        assert not world.node(paths.ISR_CHANGES).children
        assert not world.node(paths.LOG_DIR_EVENTS).children

    run_cluster(story)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"leader":1}', b'{"leader":1,"leader_epoch":0,"isr":["x"],"controller_epoch":1}']
)
def test_state_that_cannot_be_read_counts_as_missing(content):
    def story(world):
        former = started(world)
        path = paths.partition_state("events", 0)
        good = world.node(path).data
        world.do(SetData(path, content))
        world.kill(former.broker_id)
        wait_for_another(world, 1)
        world.wait_for(lambda: world.active().controller.gauges.global_partition == len(PARTITIONS) - 1)
        assert world.state("events", 1)["leader"] != former.broker_id
        world.do(SetData(path, good))
        world.move_controller()
        wait_for_another(world, 2)
        assert world.state("events", 0)["controller_epoch"] >= 1

    run_cluster(story)


def test_new_controller_knows_every_leader_when_zookeeper_refuses_to_read_a_state_at_first():
    def story(world):
        world.start_brokers(1, 2, 3)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        refused = [refuse_once(life, paths.partition_state("events", 0)) for life in world.alive()]
        world.move_controller()
        world.step_for(5)
        world.wait_for(lambda: world.active() is not None)
        world.settle()
        assert any(refused)
        context = world.active().controller.context
        assert context.leaderships[context.row("events", 0)].leader == world.state("events", 0)["leader"]

    run_cluster(story)


def test_topic_created_during_a_failover_gets_leaders():
    def story(world):
        former = started(world)
        world.kill(former.broker_id)
        world.create_topic("more", {0: [1, 2, 3]})
        wait_for_another(world, 1)
        assert world.state("more", 0)["leader"] in {life.broker_id for life in world.alive()}

    run_cluster(story)


def test_features_are_enabled_and_disabled_with_the_protocol():
    def story(world):
        started(world)
        assert json.loads(world.node(paths.FEATURE).data) == {"version": 2, "status": 1, "features": {}}
        for broker_id in (1, 2, 3):
            world.kill(broker_id)
        world.step_for(1)
        world.start_brokers(1, 2, 3, inter_broker_protocol=InterBrokerProtocol("2.6"))
        assert json.loads(world.node(paths.FEATURE).data)["status"] == 0

    run_cluster(story)


def test_new_controller_knows_the_features_when_zookeeper_refuses_to_read_them_at_first():
    def story(world):
        world.broker_features["group.version"] = (0, 1)
        started(world)
        features = b'{"version":2,"status":1,"features":{"group.version":{"max_version_level":1}}}'
        world.do(SetData(paths.FEATURE, features))
        refused = [refuse_once(life, paths.FEATURE) for life in world.alive()]
        world.move_controller()
        world.step_for(5)
        world.wait_for(lambda: world.active() is not None)
        world.settle()
        assert any(refused)
        assert world.active().controller.context.finalized_features == {"group.version": 1}

    run_cluster(story)
