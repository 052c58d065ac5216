"""A broker's watch on the finalized features in the simulated ZooKeeper."""

import pytest

from kafkacore.metadata.records import MetadataError
from kafkacore.server.zookeeper.features import FeatureWatch
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import OPEN_ACL, Code, Create, Delete, Result, SetData
from simulated_zookeepers import run_story, until

REGISTRATION = znodes.BrokerRegistration(7, (znodes.Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),))


class Broker:
    """A FeatureWatch. `seen` has the levels and epochs that it has passed on."""

    def __init__(self, client):
        self.client, self.seen, self.faults = client, [], []
        self.session = BrokerSession(
            client, 7, lambda path: OPEN_ACL, connection_timeout_ms=5_000, on_epoch=lambda epoch: None,
            on_fault=self.faults.append,
        )  # fmt: skip
        self.watch = FeatureWatch(self.session, {"group.version": (1, 2)}, self.note, self.faults.append)

    def note(self, levels, epoch):
        self.seen.append((dict(levels), epoch))

    async def start(self):
        await self.session.make_paths(paths.PERSISTENT)
        await self.session.register(lambda: REGISTRATION)
        await self.watch.start()

    async def sees(self, levels, epoch):
        await until(lambda: self.seen[-1:] == [(levels, epoch)])


def features(*, enabled=True, **levels):
    return znodes.encode_features(
        znodes.Features(2, enabled, {f"{name}.version": each for name, each in levels.items()})
    )


async def started(world, data=None):
    """Returns a broker that has read the features, and another client."""
    broker, other = Broker(await world.client()), await world.client()
    if data is not None:
        await other.submit([Create(paths.FEATURE, data)])
    await broker.start()
    return broker, other


def test_features_are_read_at_the_start_and_after_each_change():
    async def story(world):
        broker, other = await started(world, features(group=1))
        assert broker.seen == [({"group.version": 1}, 0)]
        await other.submit([SetData(paths.FEATURE, features(group=2))])
        await broker.sees({"group.version": 2}, 1)
        await other.submit([SetData(paths.FEATURE, features())])
        await broker.sees({}, 2)
        await other.submit([Delete(paths.FEATURE)])
        await broker.sees({}, -1)
        await other.submit([Create(paths.FEATURE, features(group=1))])
        await broker.sees({"group.version": 1}, 0)
        await broker.watch.stop()
        assert broker.faults == []

    run_story(story)


@pytest.mark.parametrize("data", [None, b"", b"{", features(enabled=False)])
def test_features_have_no_epoch_until_their_znode_is_enabled(data):
    async def story(world):
        broker, other = await started(world, data)
        assert broker.seen == [({}, -1)]
        await other.submit([Create(paths.FEATURE, b"") if data is None else SetData(paths.FEATURE, b"")])
        await other.submit([SetData(paths.FEATURE, features(group=1))])
        await broker.sees({"group.version": 1}, 1 if data is None else 2)
        await broker.watch.stop()

    run_story(story)


@pytest.mark.parametrize("levels", [{"group": 3}, {"transaction": 1}])
def test_broker_has_a_fault_when_the_cluster_finalizes_an_unsupported_level(levels):
    async def story(world):
        broker, other = await started(world, features(group=1))
        await other.submit([SetData(paths.FEATURE, features(**levels))])
        await until(lambda: broker.faults)
        [fault] = broker.faults
        [(name, level)] = levels.items()
        assert isinstance(fault, MetadataError)
        assert f"{name}.version={level}. Disable" in str(fault)
        assert broker.seen == [({"group.version": 1}, 0)]
        await broker.watch.stop()

    run_story(story)


def test_change_of_the_time_between_two_sessions_is_applied():
    async def story(world):
        broker, other = await started(world, features())
        world.zookeeper.expire(broker.client.session_id)
        await other.submit([SetData(paths.FEATURE, features(group=2))])
        await broker.sees({"group.version": 2}, 1)
        await other.submit([SetData(paths.FEATURE, features(group=1))])
        await broker.sees({"group.version": 1}, 2)
        await broker.watch.stop()

    run_story(story)


def test_features_are_read_again_when_zookeeper_refuses_to_return_them():
    async def story(world):
        broker, other = await started(world, features())
        submit, refused = broker.client.submit, []

        async def refuse_once(operations):
            results = await submit(operations)
            if not refused:
                refused.extend(operations)
                results[-1] = Result(Code.THROTTLED)
            return results

        broker.client.submit = refuse_once
        await other.submit([SetData(paths.FEATURE, features(group=1))])
        await broker.sees({"group.version": 1}, 1)
        assert [each.path for each in refused] == [paths.FEATURE] * 2
        await broker.watch.stop()

    run_story(story)
