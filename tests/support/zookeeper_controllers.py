"""Brokers with ZooKeeper controllers in a simulated world: real clients of ZooKeeper, and model brokers that apply the
controllers' requests.

    def story(world):            # runs outside of every loop; `world.settle()` lets time pass
        world.start_brokers(1, 2, 3)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()

    run_cluster(story, seed=1)
"""

import asyncio
import json
from random import Random

from tests.support.model_broker import ModelBroker
from tests.support.simulated_zookeepers import ZooKeeperWorld
from tests.support.zookeeper_invariants import Invariants

from kafkacore.controller.zookeeper.controller import ZooKeeperController
from kafkacore.controller.zookeeper.inter_broker_protocol import LATEST
from kafkacore.controller.zookeeper.surroundings import ControllerSettings
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import AlterPartitionRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.simulation.schedule import NS_OF_A_S
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import (
    ANY_VERSION,
    Code,
    Create,
    CreateMode,
    Delete,
    GetData,
    Result,
    SetData,
)

REQUEST_TIMEOUT_S = 5.0
SESSION_TIMEOUT_MS = 6_000


class Surroundings:
    """The environment of a controller, for one generation of a broker."""

    def __init__(self, life):
        self._life = life

    async def send(self, broker, listener, api_key, api_version, body):
        world = self._life.world
        request = type(body).decode(memoryview(bytes(body.encode(api_version))), api_version)
        world.requests.append((self._life.broker_id, broker.broker_id, listener, api_key, api_version, request))
        # Bytes in flight still arrive if the sender gives up on the request.
        return await asyncio.shield(self._life.loop.create_task(self._deliver(broker, api_key, api_version, request)))

    async def _deliver(self, broker, api_key, api_version, request):
        world = self._life.world
        await asyncio.sleep(world.delay_s())
        while (target := world.lives.get(broker.broker_id)) is None or not target.reachable_from(self._life):
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            raise TimeoutError(f"broker {broker.broker_id} does not answer")
        response = target.model.handle(api_key, api_version, request)
        await asyncio.sleep(world.delay_s())
        if not target.reachable_from(self._life):
            raise ConnectionResetError
        return response

    def call_later(self, delay_ms, callback):
        return self._life.loop.call_later(delay_ms / 1000, callback)

    def now_ms(self):
        return self._life.world.schedule.now_ns // 1_000_000

    def new_topic_id(self):
        return self._life.world.uuids()

    async def register_broker(self):
        return await self._life.register()


class Life:
    """One generation of a broker, from its start to its end. It has a machine, a ZooKeeper client, a controller, and a
    model of the rest of the broker."""

    def __init__(self, world, broker_id, **settings):
        self.world = world
        self.broker_id = broker_id
        world.births += 1
        self.machine = world.machine(f"broker-{broker_id}-{world.births}")
        self.loop = self.machine.loop("work")
        self.client = world.make_client(loop=self.loop, session_timeout_ms=SESSION_TIMEOUT_MS)
        self.settings = ControllerSettings(broker_id, **({"inter_broker_protocol": LATEST} | settings))
        self.model = ModelBroker(self)
        self.controller = None
        self.epoch = -1
        self.is_cut = False
        self.client.on_state(self._state_changed)
        self._restarting = None

    def reachable_from(self, other):
        machine = self.machine
        # A broker answers no request until it knows its broker epoch.
        return machine.is_alive and not machine.is_paused and not (self.is_cut or other.is_cut) and self.epoch >= 0

    async def start(self):
        await self.client.start(600_000)
        await self.register()
        self.controller = ZooKeeperController(self.settings, self.client, Surroundings(self), self.world.faults.append)
        self.world.invariants.watch(self.controller)
        await self.controller.start()

    async def register(self):
        """Registers the broker. First waits until the ephemeral znode of its former generation disappears with its
        session."""
        endpoints = tuple(
            znodes.Endpoint(listener, "PLAINTEXT", f"host-{self.broker_id}", port)
            for listener, port in (("PLAINTEXT", 9092), ("CONTROLLER", 9090))
        )
        features = self.world.broker_features
        data = znodes.encode_broker(znodes.BrokerRegistration(self.broker_id, endpoints, features=features))
        while True:
            (result,) = await self.client.submit([Create(paths.broker(self.broker_id), data, CreateMode.EPHEMERAL)])
            if result.is_ok:
                self.epoch = result.value.stat.czxid
                break
            (found,) = await self.client.submit([GetData(paths.broker(self.broker_id))])
            if found.is_ok and found.value[1].ephemeral_owner == self.client.session_id:
                self.epoch = found.value[1].czxid
                break
            await asyncio.sleep(0.2)
        self.model.registered(self.epoch)
        return self.epoch

    def _state_changed(self, state, _session):
        if state.name == "CLOSED" and self.controller is not None and self.machine.is_alive:
            self._restarting = self.loop.create_task(self.client.start(600_000))

    async def end(self):
        if self.controller is not None:
            await self.controller.stop()
        if self._restarting is not None:
            self._restarting.cancel()
        await self.client.close()

    def kill(self):
        self.machine.kill()


class ControllerWorld(ZooKeeperWorld):
    def __init__(self, seed=1, **options):
        super().__init__(seed, **options)
        self.lives = {}
        self.births = 0
        self.faults = []  # reported by controllers that can handle no more events
        self.requests = []  # (from, to, listener, api key, version, body)
        source = self.random_of("uuids")
        self.uuids = lambda: Uuid(source.randbytes(16))
        self.latency_s = (0.0005, 0.003)
        self._delays = self.random_of("delays")
        self.operator = self.random_of("operator")
        self.broker_features = {}  # the features that every broker announces: the lowest and the highest level
        self.disks = {}  # broker: {(topic, partition): topic id}
        self.invariants = Invariants(self)
        self.admin = None

    def delay_s(self):
        return self._delays.uniform(*self.latency_s)

    # --- time ---

    def step_for(self, seconds):
        until_ns = self.schedule.now_ns + int(seconds * NS_OF_A_S)
        while self.schedule.now_ns < until_ns and self.schedule.step(until_ns):
            pass

    def wait_for(self, condition, limit_s=120.0):
        until_ns = self.schedule.now_ns + int(limit_s * NS_OF_A_S)
        while not condition():
            if not self.schedule.step(until_ns):
                raise TimeoutError(f"the condition did not hold within {limit_s} s of virtual time")

    def on(self, life, coroutine, limit_s=120.0):
        """Runs a coroutine on the broker's loop and returns its result."""
        task = life.loop.create_task(coroutine)
        self.wait_for(task.done, limit_s)
        return task.result()

    def settle(self, seconds=3.0):
        """Lets time pass until no controller has work left and no ISR has to change."""
        for _ in range(40):
            self.step_for(seconds / 3)
            if all(self._is_idle(life) for life in self.alive()):
                return
        raise AssertionError("the cluster does not settle")

    def _is_idle(self, life):
        controller = life.controller
        if controller is None or len(controller.events) or controller.state != "Idle":
            return False
        waiting = sum(len(sender) for sender in controller.senders._senders.values())
        return not waiting and not life.model.is_asking

    # --- brokers ---

    def alive(self):
        return [life for life in self.lives.values() if life.machine.is_alive and not life.machine.is_paused]

    def prepare(self):
        """Creates the znodes that every broker ensures when it starts."""
        if self.admin is None:
            self.admin = self.run(self.client())
            for path in paths.PERSISTENT:
                for each in [*paths.ancestors(path), path]:
                    self.do(Create(each))

    def start_broker(self, broker_id, **settings):
        self.prepare()
        life = self.lives[broker_id] = Life(self, broker_id, **settings)
        self.on(life, life.start())
        return life

    def start_brokers(self, *broker_ids, **settings):
        for broker_id in broker_ids:
            self.start_broker(broker_id, **settings)
        self.wait_for(lambda: self.active() is not None)
        self.settle()

    def kill(self, broker_id, *, expire=True):
        """Kills a broker, as SIGKILL does. With `expire`, ZooKeeper ends its session immediately."""
        life = self.lives[broker_id]
        session_id = life.client.session_id
        life.kill()
        if expire:
            self.zookeeper.expire(session_id)

    def bounce(self, broker_id, **settings):
        """Ends a broker and starts it again before the controller notices."""
        self.kill(broker_id)
        return self.start_broker(broker_id, **settings)

    def active(self):
        """Returns the generation (`Life`) of the broker whose controller is active and has the epoch that ZooKeeper
        stores."""
        epoch = self.controller_epoch()
        for life in self.alive():
            if life.controller is not None and life.controller.is_active and life.controller.epoch == epoch:
                return life
        return None

    def controller_epoch(self):
        node = self.zookeeper.tree.nodes.get(paths.CONTROLLER_EPOCH)
        return int(node.data) if node is not None and node.data.isdigit() else 0

    def close(self):
        """Ends all tasks, so that Python does not destroy a waiting task."""
        for life in self.lives.values():
            if life.machine.is_alive and not life.machine.is_paused:
                self.on(life, life.end())
            life.machine.kill()
        self.zookeeper.stop()

    # --- an administrator ---

    def do(self, operation):
        """Runs an operation, and repeats it if the connection breaks."""
        while True:
            (result,) = self.run(self.admin.submit([operation]))
            if result.code is not Code.CONNECTION_LOSS:
                return result

    def put_znode(self, path, data):
        if self.node(path) is None:
            return self.do(Create(path, data))
        return self.do(SetData(path, data, ANY_VERSION))

    def node(self, path):
        return self.zookeeper.tree.nodes.get(path)

    def create_topic(self, name, partitions, topic_id=None):
        data = znodes.encode_topic(
            znodes.TopicAssignment(topic_id, {number: znodes.Assignment(each) for number, each in partitions.items()})
        )
        return self.do(Create(paths.topic(name), data))

    def delete_topic(self, name):
        return self.do(Create(paths.delete_topic(name)))

    def reassign(self, moves):
        return self.put_znode(paths.REASSIGN_PARTITIONS, znodes.encode_reassignments(moves))

    def elect_preferred(self, *names):
        return self.put_znode(paths.PREFERRED_ELECTION, znodes.encode_preferred_election(names))

    def move_controller(self):
        return self.do(Delete(paths.CONTROLLER))

    def state(self, topic, number):
        """Returns the content of the partition's state znode as a dict, or None if the znode does not exist."""
        node = self.node(paths.partition_state(topic, number))
        return None if node is None else json.loads(node.data)

    def assignment(self, topic, number):
        return json.loads(self.node(paths.topic(topic)).data)["partitions"][str(number)]

    def ask(self, method, request, api_version=0):
        """Sends a request to the active controller. `method` is the name of the controller's coroutine for this
        request."""
        life = self.active()
        return self.on(life, getattr(life.controller, method)(request, api_version))

    def run_shrink(self, topic, number, isr):
        """Makes the leader of a partition remove all replicas from the ISR that are not in `isr`."""
        state = self.state(topic, number)
        leader = self.lives[state["leader"]]
        hosted = leader.model.hosted[topic, number]
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=hosted.topic_id,
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=number,
                            leader_epoch=hosted.leader_epoch,
                            partition_epoch=hosted.partition_epoch,
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=self.lives[each].epoch)
                                for each in isr
                            ],
                        )
                    ],
                )
            ],
        )
        response = self.ask("alter_partition", request, 3)
        assert response.topics[0].partitions[0].error_code == 0, response
        return response

    def sent(self, api_key, to=None):
        return [each for each in self.requests if each[3] == api_key and to in (None, each[1])]


def run_cluster(story, seed=1, **options):
    """Runs the story, lets the cluster settle, and checks the invariants. Returns the world."""
    world = ControllerWorld(seed, **options)
    try:
        story(world)
        world.invariants.check()
    finally:
        world.close()
    return world


def refuse_once(life, path):
    """Makes ZooKeeper refuse the next operations of this broker that begin with an operation on the path. Returns a
    list, which is empty until then."""
    submit, refused = life.client.submit, []

    async def submit_or_refuse(operations):
        if not refused and getattr(operations[0], "path", "") == path:
            refused.append(operations)
            return [Result(Code.THROTTLED)] * len(operations)
        return await submit(operations)

    life.client.submit = submit_or_refuse
    return refused


def error_of(world, method, request, api_version=0):
    """Returns the active controller's error code for a whole request, if it rejects the request."""
    try:
        world.ask(method, request, api_version)
    except KafkaError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE


def seeds(count, salt):
    source = Random(salt)
    return [source.randrange(1 << 30) for _ in range(count)]
