"""The simulated ZooKeeper compared with a real server of 3.8.4. Random operations must have the same results, zxids,
versions and watch events on both."""

from random import Random

import pytest

from kafkacore.zookeeper.client import ClientSettings, ZooKeeperClient
from kafkacore.zookeeper.operations import Create
from seeds import SEED
from simulated_zookeepers import run_story
from zookeeper_stories import Story, run, start_all, tell
from zookeepers import ZooKeeperServer, need_zookeeper

OPERATIONS = 300
DIGESTS = (None, ("alice", "secret"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    need_zookeeper()
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper") / "server") as one:
        yield one


async def told_by_real_server(connect, chroot, seed):
    maker = ZooKeeperClient(connect)
    await maker.start(20_000)
    await maker.submit([Create(chroot)])
    await maker.close()
    clients = [ZooKeeperClient(connect + chroot, ClientSettings(digest=digest)) for digest in DIGESTS]
    return await tell(Story(clients, await start_all(*clients)), Random(seed), OPERATIONS)


def told_by_simulation(chroot, seed):
    async def story(world):
        maker = await world.client()
        await maker.submit([Create(chroot)])
        await maker.close()
        clients = [world.make_client(chroot, digest=digest) for digest in DIGESTS]
        return await tell(Story(clients, await start_all(*clients)), Random(seed), OPERATIONS)

    return run_story(story, seed=1)


@pytest.mark.parametrize("number", range(2))
def test_simulated_server_answers_as_a_real_one_when_clients_do_anything(server, number):
    seed = SEED + number
    chroot = f"/story-{number}"
    real = run(told_by_real_server(server.connect, chroot, seed))
    simulated = told_by_simulation(chroot, seed)
    for position, (theirs, ours) in enumerate(zip(real, simulated, strict=True)):
        assert ours == theirs, f"operation {position} of seed {seed}"
    codes = {code for _, _, (code, _), _ in real}
    assert {"OK", "NO_NODE", "NODE_EXISTS", "BAD_VERSION"} <= codes, codes
    assert sum(len(events) for *_, events in real) > 5
