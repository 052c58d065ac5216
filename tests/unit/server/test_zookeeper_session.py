"""A broker's session with the simulated ZooKeeper: znodes, cluster id, registration, expiry and settings."""

import asyncio
from types import SimpleNamespace

import pytest

from kafkacore.metadata.image import BROKER, TOPIC
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.zookeeper.configs import ConfigWatch
from kafkacore.server.zookeeper.membership import ZooKeeperMembership
from kafkacore.server.zookeeper.session import BrokerIdTaken, BrokerSession
from kafkacore.simulation.schedule import NS_OF_A_S
from kafkacore.simulation.zookeeper_server import Transaction
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.client import SessionState
from kafkacore.zookeeper.operations import (
    OPEN_ACL,
    Code,
    Create,
    CreateMode,
    Delete,
    Multi,
    Result,
    SetData,
    ZooKeeperError,
)
from simulated_zookeepers import ZooKeeperWorld, run_story, until

REGISTRATION = znodes.BrokerRegistration(7, (znodes.Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),))


class Broker:
    """A BrokerSession, and its client of the simulated ZooKeeper."""

    def __init__(self, client):
        self.client, self.epochs, self.faults = client, [], []
        self.session = BrokerSession(
            client, 7, lambda path: OPEN_ACL, connection_timeout_ms=5_000,
            on_epoch=self.epochs.append, on_fault=self.faults.append,
        )  # fmt: skip

    async def register(self):
        await self.session.make_paths(paths.PERSISTENT)
        return await self.session.register(lambda: REGISTRATION)


def nodes(world):
    return world.zookeeper.tree.nodes


def test_first_broker_makes_the_cluster_id_and_the_others_take_it():
    async def story(world):
        one, two = Broker(await world.client()), Broker(await world.client())
        made = await asyncio.gather(one.session.cluster_id(lambda: "a"), two.session.cluster_id(lambda: "b"))
        assert made in (["a", "a"], ["b", "b"])

    run_story(story)


def refuse(client, kind, path):
    """Makes ZooKeeper refuse operations of a kind on a znode. Fails if they are repeated again and again."""
    submit, refused = client.submit, []

    async def submit_or_refuse(operations):
        if isinstance(operations[0], kind) and operations[0].path == path:
            refused.append(operations)
            assert len(refused) < 9
            return [Result(Code.NO_AUTH)]
        return await submit(operations)

    client.submit = submit_or_refuse


def test_cluster_id_is_an_error_when_zookeeper_refuses_to_create_it():
    async def story(world):
        broker = Broker(await world.client())
        refuse(broker.client, Create, paths.CLUSTER_ID)
        with pytest.raises(ZooKeeperError, match="NO_AUTH for /cluster/id"):
            await broker.session.cluster_id(lambda: "a")

    run_story(story)


def test_registration_fails_when_zookeeper_refuses_to_delete_the_one_of_an_earlier_session():
    async def story(world):
        former, broker = await world.client(), Broker(await world.client())
        await former.submit([Create(path) for path in paths.ancestors(paths.broker(7))])
        await former.submit([Create(paths.broker(7), b"{}", CreateMode.EPHEMERAL)])
        broker.client.former_session_ids.append(former.session_id)
        refuse(broker.client, Delete, paths.broker(7))
        with pytest.raises(ZooKeeperError, match="NO_AUTH for /brokers/ids/7"):
            await broker.register()

    run_story(story)


def test_broker_ids_are_given_once_above_the_reserved_ones():
    async def story(world):
        broker = Broker(await world.client())
        await broker.session.make_paths(paths.PERSISTENT)
        assert [await broker.session.next_broker_id(1000) for _ in range(2)] == [1001, 1002]

    run_story(story)


def test_broker_epoch_is_the_czxid_of_the_registration():
    async def story(world):
        broker = Broker(await world.client())
        epoch = await broker.register()
        assert epoch == nodes(world)[paths.broker(7)].stat().czxid == broker.session.broker_epoch
        assert await broker.session.register() == epoch, "a second call in the same session must return the same epoch"
        assert broker.epochs == [epoch]

    run_story(story)


def test_registration_is_recognised_when_the_answer_to_it_was_lost():
    async def story(world):
        broker = Broker(await world.client())
        await broker.session.make_paths(paths.PERSISTENT)
        lost = []

        def lose(count, operation):
            is_first = isinstance(operation, Create) and operation.path == paths.broker(7) and not lost
            lost.extend([operation] if is_first else [])
            return is_first

        world.zookeeper.lose_after = lose
        epoch = await broker.session.register(lambda: REGISTRATION)
        assert lost
        assert epoch == nodes(world)[paths.broker(7)].stat().czxid

    run_story(story)


def test_broker_registers_again_with_a_newer_epoch_when_its_session_expires():
    async def story(world):
        broker = Broker(await world.client())
        first = await broker.register()
        again = []

        async def note():
            again.append(broker.session.broker_epoch)

        broker.session.on_new_session.append(note)
        world.zookeeper.expire(broker.client.session_id)
        await until(lambda: again)
        assert again[0] > first
        assert broker.epochs == [first, again[0]]
        assert not broker.faults

    run_story(story)


def test_broker_registers_again_when_zookeeper_refuses_its_first_try_in_a_new_session(caplog):
    async def story(world):
        broker, other = Broker(await world.client()), await world.client()
        first = await broker.register()
        world.zookeeper.expire(broker.client.session_id)
        world.zookeeper.commit(Transaction(other.session_id, Delete(paths.BROKER_IDS)))
        await until(lambda: "could not register again" in caplog.text)
        await other.submit([Create(paths.BROKER_IDS)])
        await until(lambda: broker.session.broker_epoch > first)
        assert nodes(world)[paths.broker(7)].owner == broker.client.session_id
        assert not broker.faults

    run_story(story)


def test_broker_registers_again_when_its_new_session_ends_before_it_has_read_its_settings():
    async def story(world):
        broker = Broker(await world.client())
        first = await broker.register()
        sessions = []

        async def end_the_second_session():
            sessions.append(broker.client.session_id)
            if len(sessions) == 1:
                world.zookeeper.expire(broker.client.session_id)
                await until(lambda: broker.client.state is SessionState.CLOSED)

        broker.session.on_new_session.append(end_the_second_session)
        world.zookeeper.expire(broker.client.session_id)
        await until(lambda: len(sessions) == 2)
        assert nodes(world)[paths.broker(7)].owner == broker.client.session_id == sessions[1]
        assert broker.epochs == sorted({first, *broker.epochs})
        assert len(broker.epochs) == 3
        assert not broker.faults

    run_story(story)


def test_broker_registers_again_when_its_first_session_ends_right_after_its_registration():
    async def story(world):
        broker = Broker(await world.client())
        submit, ended = broker.client.submit, []

        async def submit_and_end(operations):
            results = await submit(operations)
            if not ended and getattr(operations[0], "path", "") == paths.broker(7):
                ended.append(broker.client.session_id)
                world.zookeeper.expire(broker.client.session_id)
                await until(lambda: broker.client.state is SessionState.CLOSED)
            return results

        broker.client.submit = submit_and_end
        await broker.register()
        await until(lambda: len(broker.epochs) == 2)
        assert nodes(world)[paths.broker(7)].owner == broker.client.session_id != ended[0]

    run_story(story)


async def after_a_former_life(world):
    """Returns the client of a broker's former life, whose session has not ended, the broker, and its registration."""
    former, broker = await world.client(), Broker(await world.client())
    await broker.session.make_paths(paths.PERSISTENT)
    await former.submit([Create(paths.broker(7), b"{}", CreateMode.EPHEMERAL)])
    registering = asyncio.ensure_future(broker.session.register(lambda: REGISTRATION))
    await asyncio.sleep(1)
    return former, broker, registering


def test_broker_waits_for_the_session_of_its_former_life():
    async def story(world):
        former, _, registering = await after_a_former_life(world)
        assert not registering.done()
        world.zookeeper.expire(former.session_id)
        assert await registering == nodes(world)[paths.broker(7)].stat().czxid

    run_story(story)


def test_broker_waits_on_for_its_former_life_when_zookeeper_stops_meanwhile():
    async def story(world):
        former, broker, registering = await after_a_former_life(world)
        for server in world.zookeeper.servers.values():
            server.stop()
        await asyncio.sleep(600)
        assert not registering.done()
        for server in world.zookeeper.servers.values():
            server.start()
        await until(lambda: broker.client.state is SessionState.CONNECTED)
        await asyncio.sleep(1)
        world.zookeeper.expire(former.session_id)
        assert await registering == nodes(world)[paths.broker(7)].stat().czxid

    run_story(story)


def test_broker_registers_when_its_former_life_ends_while_its_machine_pauses_at_the_end_of_the_time():
    world = ZooKeeperWorld()
    former, _, registering = world.run(after_a_former_life(world))
    world.run(asyncio.sleep(15))
    world.loop.machine.pause()
    world.zookeeper.expire(former.session_id)
    end_ns = world.schedule.now_ns + 6 * NS_OF_A_S
    while world.schedule.step(end_ns):
        pass
    world.loop.machine.resume()
    world.run(asyncio.wait({registering}))
    assert registering.result() == nodes(world)[paths.broker(7)].stat().czxid


def test_registration_fails_at_once_when_the_session_ends_while_the_broker_waits():
    async def story(world):
        _, broker, registering = await after_a_former_life(world)
        world.zookeeper.expire(broker.client.session_id)
        await until(lambda: broker.client.state is SessionState.CLOSED)
        await asyncio.sleep(0.1)
        assert registering.done()
        with pytest.raises(ZooKeeperError, match="SESSION_EXPIRED"):
            await registering

    run_story(story)


def test_broker_is_refused_when_another_one_lives_with_its_id():
    async def story(world):
        other, broker = await world.client(), Broker(await world.client())
        await broker.session.make_paths(paths.PERSISTENT)
        await other.submit([Create(paths.broker(7), b"{}", CreateMode.EPHEMERAL)])
        with pytest.raises(BrokerIdTaken, match=r"/brokers/ids/7 belongs to another live broker"):
            await broker.session.register(lambda: REGISTRATION)

    run_story(story)


# --- failed log directories ---


def test_failed_directory_is_reported_again_when_zookeeper_refuses_the_first_report():
    async def story(world):
        broker, other = Broker(await world.client()), await world.client()
        await broker.register()
        loop = SimpleNamespace(submit=asyncio.ensure_future)
        config = SimpleNamespace(node_id=7)
        membership = ZooKeeperMembership(config, broker.session, loop, None, None, None)
        await other.submit([Delete(paths.LOG_DIR_EVENTS)])
        membership.directory_failed(Uuid(b"d" * 16), 0, broker.faults.append)
        await asyncio.sleep(1)
        await other.submit([Create(paths.LOG_DIR_EVENTS)])
        await until(lambda: nodes(world)[paths.LOG_DIR_EVENTS].children)

    run_story(story)


# --- settings ---


def change(entity, settings):
    """Writes what kafka-configs writes: first the settings, then the notification."""
    data = znodes.encode_config(settings)
    return [
        Multi([Create(f"{paths.CONFIG}/{entity}", data)]),
        SetData(f"{paths.CONFIG}/{entity}", data),
        Create(paths.config_change(), znodes.encode_config_change(entity), CreateMode.PERSISTENT_SEQUENTIAL),
    ]


async def watching(world):
    """Returns a watch on settings, and the list of settings that it has read."""
    broker = Broker(await world.client())
    await broker.register()
    await broker.client.submit([Create(paths.config("topics", "old"), znodes.encode_config({"retention.ms": "1"}))])
    return broker, *await watching_again(world, broker)


async def watching_again(world, broker):
    told = []
    watch = config_watch(world, broker, told.append)
    await watch.start()
    return watch, told


def config_watch(world, broker, apply, on_fault=print):
    return ConfigWatch(broker.session, apply, lambda: world.schedule.now_ns // 1_000_000, on_fault)


def test_settings_are_read_at_the_start_and_after_each_change():
    async def story(world):
        broker, watch, told = await watching(world)
        assert told == [{(TOPIC, "old"): {"retention.ms": "1"}}]
        await broker.client.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: len(told) == 2)
        await broker.client.submit(change(f"brokers/{paths.DEFAULT_ENTITY}", {"log.cleaner.threads": "2"}))
        await until(lambda: len(told) == 3)
        assert told[1:] == [{(TOPIC, "new"): {"retention.ms": "2"}}, {(BROKER, ""): {"log.cleaner.threads": "2"}}]
        await watch.stop()

    run_story(story)


def test_settings_are_gone_when_their_znode_is_deleted():
    async def story(world):
        broker, watch, told = await watching(world)
        name = paths.config("topics", "old")
        notification = Create(
            paths.config_change(), znodes.encode_config_change("topics/old"), CreateMode.PERSISTENT_SEQUENTIAL
        )
        await broker.client.submit([Delete(name), notification])
        await until(lambda: len(told) == 2)
        assert told[1] == {(TOPIC, "old"): {}}
        await watch.stop()

    run_story(story)


def test_node_has_a_fault_when_settings_can_no_longer_be_followed():
    async def story(world):
        broker, first, _ = await watching(world)
        await first.stop()
        faults, broken = [], ValueError("no more settings")

        def apply(settings):
            if (TOPIC, "new") in settings:
                raise broken

        watch = config_watch(world, broker, apply, faults.append)
        await watch.start()
        await broker.client.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: faults == [broken])
        await watch.stop()

    run_story(story)


def test_node_has_a_fault_when_settings_cannot_be_read_in_a_new_session():
    async def story(world):
        broker, first, _ = await watching(world)
        await first.stop()
        broken, session_id = ValueError("no more settings"), broker.client.session_id

        def apply(settings):
            if broker.client.session_id != session_id:
                raise broken

        watch = config_watch(world, broker, apply)
        await watch.start()
        world.zookeeper.expire(session_id)
        await until(lambda: broker.faults == [broken])
        await watch.stop()

    run_story(story)


def notifications(world):
    return [path for path in world.zookeeper.tree.nodes if path.startswith(f"{paths.CONFIG_CHANGES}/")]


def test_notifications_are_deleted_when_they_are_older_than_15_minutes():
    async def story(world):
        broker, watch, told = await watching(world)
        await broker.client.submit(change("topics/one", {"retention.ms": "2"}))
        await broker.client.submit([
            Create(paths.config_change(), b"{", CreateMode.PERSISTENT_SEQUENTIAL),
            Create(f"{paths.CONFIG_CHANGES}/by-hand", b""),
        ])  # fmt: skip
        await until(lambda: len(told) == 2)
        await asyncio.sleep(14 * 60)
        await broker.client.submit(change("topics/two", {"retention.ms": "2"}))
        await until(lambda: len(told) == 3)
        await asyncio.sleep(1)
        assert len(notifications(world)) == 4, "none is old enough"
        await asyncio.sleep(2 * 60)
        await broker.client.submit(change("topics/three", {"retention.ms": "2"}))
        await until(lambda: len(notifications(world)) == 3)
        assert told[-1] == {(TOPIC, "three"): {"retention.ms": "2"}}
        await watch.stop()
        await asyncio.sleep(14 * 60)
        watch, _ = await watching_again(world, broker)
        assert len(notifications(world)) == 2, "the newest one, and the znode that is no notification"
        await watch.stop()

    run_story(story)


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":3}', b'{"version":2,"entity_path":"clients/c"}', b"[1]"])
def test_notification_that_says_nothing_is_left_out_and_the_next_one_is_applied(data):
    async def story(world):
        broker, watch, told = await watching(world)
        await broker.client.submit([Create(paths.config_change(), data, CreateMode.PERSISTENT_SEQUENTIAL)])
        await broker.client.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: len(told) == 2)
        assert told[1] == {(TOPIC, "new"): {"retention.ms": "2"}}
        await watch.stop()

    run_story(story)


@pytest.mark.parametrize("data", [b"{", b'{"config":[]}', b'{"config":{"retention.ms":5}}'])
def test_settings_stay_when_an_operator_has_broken_their_json(data):
    async def story(world):
        broker, watch, told = await watching(world)
        writes = change("topics/old", {})
        await broker.client.submit([SetData(paths.config("topics", "old"), data), writes[-1]])
        await broker.client.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: len(told) == 2)
        assert told[1] == {(TOPIC, "new"): {"retention.ms": "2"}}
        await watch.stop()

    run_story(story)


@pytest.mark.parametrize("path", [paths.CONFIG_CHANGES, f"{paths.config_change()}0000000000", "/config/topics/new"])
def test_settings_are_read_again_when_zookeeper_refuses_to_return_them(path):
    async def story(world):
        broker, watch, told = await watching(world)
        other = await world.client()
        submit, refused = broker.client.submit, []

        async def refuse_once(operations):
            results = await submit(operations)
            for place, operation in enumerate(operations):
                if not refused and operation.path == path:
                    refused.append(operation)
                    results[place] = Result(Code.THROTTLED)
            return results

        broker.client.submit = refuse_once
        await other.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: any(each.get((TOPIC, "new")) == {"retention.ms": "2"} for each in told))
        assert refused
        await watch.stop()

    run_story(story)


def test_all_settings_are_read_again_when_zookeeper_refuses_to_list_them_in_a_new_session():
    async def story(world):
        broker, watch, told = await watching(world)
        other = await world.client()
        submit, refused = broker.client.submit, []

        async def refuse_once(operations):
            results = await submit(operations)
            for place, operation in enumerate(operations):
                if not refused and results[place].is_ok and operation.path == "/config/topics":
                    refused.append(operation)
                    results[place] = Result(Code.THROTTLED)
            return results

        broker.client.submit = refuse_once
        await other.submit([Create(paths.config("topics", "new"), znodes.encode_config({"retention.ms": "2"}))])
        world.zookeeper.expire(broker.client.session_id)
        await until(lambda: any(each.get((TOPIC, "new")) == {"retention.ms": "2"} for each in told))
        assert refused
        await watch.stop()

    run_story(story)


def test_changes_of_the_time_between_two_sessions_are_applied():
    async def story(world):
        broker, watch, told = await watching(world)
        other = await world.client()
        world.zookeeper.expire(broker.client.session_id)
        await other.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: any((TOPIC, "new") in each for each in told))
        await watch.stop()

    run_story(story)


def test_settings_are_gone_when_their_znode_was_deleted_between_two_sessions():
    async def story(world):
        broker, watch, told = await watching(world)
        other = await world.client()
        world.zookeeper.expire(broker.client.session_id)
        notification = Create(
            paths.config_change(), znodes.encode_config_change("topics/old"), CreateMode.PERSISTENT_SEQUENTIAL
        )
        await other.submit([Delete(paths.config("topics", "old")), notification])
        await until(lambda: any(each.get((TOPIC, "old")) == {} for each in told))
        await watch.stop()

    run_story(story)


def test_all_settings_are_read_again_when_a_notification_is_gone_before_it_is_read():
    async def story(world):
        broker, watch, told = await watching(world)
        other = await world.client()
        submit, notification, deleted = broker.client.submit, f"{paths.config_change()}0000000000", []

        async def delete_first(operations):
            if not deleted and any(each.path == notification for each in operations):
                deleted.append(notification)
                await other.submit([Delete(notification)])
            return await submit(operations)

        broker.client.submit = delete_first
        await other.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: any(each.get((TOPIC, "new")) == {"retention.ms": "2"} for each in told))
        assert deleted
        await watch.stop()

    run_story(story)


def test_changes_are_applied_when_the_znode_of_the_notifications_was_created_again():
    async def story(world):
        broker, watch, told = await watching(world)
        await broker.client.submit(change("topics/one", {"retention.ms": "1"}))
        await until(lambda: len(told) == 2)
        await broker.client.submit([Delete(path) for path in [*notifications(world), paths.CONFIG_CHANGES]])
        await asyncio.sleep(3)
        await broker.client.submit([Create(paths.CONFIG_CHANGES)])
        await asyncio.sleep(3)
        told.clear()
        await broker.client.submit(change("topics/new", {"retention.ms": "2"}))
        await until(lambda: told)
        assert told == [{(TOPIC, "new"): {"retention.ms": "2"}}]
        await watch.stop()

    run_story(story)
