"""A simulated ZooKeeper and its clients in virtual time, on one thread.

async def story(world):
    client = await world.client("/chroot")
    ...
    world.zookeeper.expire(client.session_id)

run_story(story, seed=1)
"""

import asyncio
import functools
from random import Random

from kafkacore.simulation.machine import Machine
from kafkacore.simulation.network import SimulatedNetwork
from kafkacore.simulation.schedule import NS_OF_A_S, Schedule
from kafkacore.simulation.zookeeper import SimulatedZooKeeper
from kafkacore.zookeeper.client import ClientSettings, ZooKeeperClient

LIMIT_S = 3_600.0  # virtual time


class ZooKeeperWorld:
    """The servers `zookeeper-1` and so on, each on its own machine, and the machine `client`, on which the story
    runs."""

    def __init__(self, seed=1, servers=3, tick_ms=500):
        self.random = Random(seed)
        self.schedule = Schedule(self.random_of("schedule"))
        self.network = SimulatedNetwork(self.schedule, self.random_of("network"), lambda end, data: None)
        self.names = [f"zookeeper-{number + 1}" for number in range(servers)]
        service = self.machine("service").loop("work")
        self.zookeeper = SimulatedZooKeeper(service, self.random_of("zookeeper"), tick_ms)
        for name in self.names:
            server = self.zookeeper.server(name)
            self.network.listen(self.machine(name).loop("work"), (name, 2181), server.accept)
        self.loop = self.machine("client").loop("work")
        self.connect_string = ",".join(f"{name}:2181" for name in self.names)
        self.clients = []

    def random_of(self, purpose):
        return Random(f"{self.random.random()} {purpose}")

    def machine(self, name):
        return Machine(self.schedule, name, network=self.network)

    def make_client(self, chroot="", loop=None, **settings):
        connect = functools.partial(self.network.connect, loop or self.loop)
        client = ZooKeeperClient(
            self.connect_string + chroot, ClientSettings(**settings), randomness=self.random_of("client"),
            connect=connect,
        )  # fmt: skip
        self.clients.append(client)
        return client

    async def client(self, chroot="", **settings):
        """Returns a connected client of ZooKeeper."""
        client = self.make_client(chroot, **settings)
        await client.start(60_000)
        return client

    def run(self, coroutine, limit_s=LIMIT_S):
        """Runs the coroutine on the client's machine until the coroutine ends. Returns its result."""
        task = self.loop.create_task(coroutine)
        until_ns = self.schedule.now_ns + int(limit_s * NS_OF_A_S)
        while not task.done():
            if not self.schedule.step(until_ns):
                task.cancel()
                raise TimeoutError(f"the story did not end within {limit_s} s of virtual time")
        return task.result()


def run_story(story, seed=1, **options):
    """Runs `story(world)` in a new world. Returns the result."""
    world = ZooKeeperWorld(seed, **options)
    return world.run(story(world))


async def until(condition, limit_s=60.0):
    """Waits in virtual time until the condition holds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition is any state of the world
            await asyncio.sleep(0.01)
