"""Random histories of a cluster with ZooKeeper controllers. A seed decides what operators do and which nodes fail. At
the end of each history, the faults end and the cluster becomes stable.
"""

from random import Random

from tests.support.zookeeper_controllers import run_cluster

from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ControlledShutdownRequest,
)
from kafkacore.zookeeper import paths, znodes

BROKERS = (1, 2, 3, 4)


class Story:
    def __init__(self, seed, steps=14):
        self.source = Random(seed)
        self.steps = steps
        self.made = 0
        self.log = []

    def __call__(self, world):
        self.world = world
        world.start_brokers(*BROKERS)
        for _ in range(2):
            self.create()
        world.settle()
        moves = [
            self.create, self.create, self.delete, self.delete, self.expand, self.reassign, self.reassign_by_request,
            self.elect, self.kill, self.kill, self.bounce, self.bounce, self.pause, self.expire, self.cut,
            self.move_controller, self.shut_down, self.slow_down, self.refuse, self.two_changes, self.burst, self.burst,
        ]  # fmt: skip
        for _ in range(self.steps):
            move = self.source.choice(moves)
            self.log.append(move.__name__)
            move()
            world.step_for(self.source.choice([0, 0.001, 0.01, 0.1, 1.0]))
        self.heal()

    # --- operators ---

    def replicas(self):
        return self.source.sample(BROKERS, self.source.randint(1, 3))

    def burst(self):
        """Makes brokers fail one after another while the controller is busy with a topic."""
        active = self.world.active()
        if active is None or len(self.world.alive()) < 4:
            return
        self.create()
        others = [life for life in self.world.alive() if life is not active]
        for life in self.source.sample(others, 2):
            self.world.step_for(self.source.choice([0.0, 0.0005, 0.001, 0.002]))
            self.world.kill(life.broker_id)

    def create(self):
        self.made += 1
        partitions = {number: self.replicas() for number in range(self.source.randint(1, 4))}
        self.world.create_topic(f"topic-{self.made}", partitions, self.world.uuids())

    def topic(self):
        names = sorted(self.world.node(paths.TOPICS).children)
        return self.source.choice(names) if names else None

    def content(self, topic):
        return znodes.decode_topic(self.world.node(paths.topic(topic)).data)

    def delete(self):
        if (topic := self.topic()) is not None:
            self.world.delete_topic(topic)

    def expand(self):
        """Adds partitions as a tool does: reads the topic's znode and writes it back. Does nothing while partitions are
        being reassigned."""
        if (topic := self.topic()) is None:
            return
        content = self.content(topic)
        if any(each.adding or each.removing for each in content.partitions.values()):
            return
        content.partitions[max(content.partitions) + 1] = znodes.Assignment(self.replicas())
        self.world.put_znode(paths.topic(topic), znodes.encode_topic(content))

    def two_changes(self):
        """Changes two topics while the controller is busy with other work."""
        active = self.world.active()
        if active is not None:
            active.machine.pause()
        for _ in range(3):
            self.expand()
        self.delete()
        self.create()
        if active is not None:
            self.world.step_for(0.05)
            active.machine.resume()

    def reassign(self):
        if (topic := self.topic()) is not None and self.world.node(paths.REASSIGN_PARTITIONS) is None:
            number = self.source.choice(list(self.content(topic).partitions))
            self.world.reassign({(topic, number): self.replicas()})

    def reassign_by_request(self):
        active, topic = self.world.active(), self.topic()
        if active is None or topic is None:
            return
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=self.source.choice(list(self.content(topic).partitions)),
            replicas=self.source.choice([None, self.replicas()]),
        )
        self.ask_without_waiting(
            active,
            active.controller.alter_reassignments,
            AlterPartitionReassignmentsRequest(
                topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])]
            ),
            0,
        )

    def elect(self):
        if (topic := self.topic()) is not None:
            self.world.elect_preferred(*((topic, number) for number in self.content(topic).partitions))

    def ask_without_waiting(self, life, method, request, version):
        task = life.loop.create_task(method(request, version))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    # --- failures ---

    def victim(self):
        alive = self.world.alive()
        return self.source.choice(alive).broker_id if len(alive) > 2 else None

    def kill(self):
        if (victim := self.victim()) is not None:
            self.world.kill(victim, expire=self.source.random() < 0.8)

    def bounce(self):
        """Restarts a broker. Often the controller is paused meanwhile, so that it sees both generations of the broker
        at once."""
        victim, active = self.victim(), self.world.active()
        if victim is None:
            return
        if active is not None and active.broker_id != victim and self.source.random() < 0.7:
            active.machine.pause()
        self.world.bounce(victim)
        if active is not None and active.machine.is_paused:
            active.machine.resume()

    def pause(self):
        """Pauses a broker, as SIGSTOP does, sometimes for longer than its session timeout."""
        if (victim := self.victim()) is not None:
            life = self.world.lives[victim]
            life.machine.pause()
            self.world.step_for(self.source.choice([0.1, 3, 20]))
            life.machine.resume()

    def expire(self):
        if (victim := self.victim()) is not None:
            self.world.zookeeper.expire(self.world.lives[victim].client.session_id)

    def cut(self):
        """Breaks all connections to ZooKeeper, and makes changes while no client can receive notifications."""
        for server in self.world.zookeeper.servers.values():
            server.cut_connections()
        for change in self.source.sample([self.create, self.delete, self.expand, self.elect], 2):
            change()

    def move_controller(self):
        self.world.move_controller()

    def shut_down(self):
        """Runs the controlled shutdown of a broker. Then either kills the broker or restarts it, sometimes before the
        shutdown is complete."""
        victim, active = self.victim(), self.world.active()
        if victim is None or active is None or active.broker_id == victim:
            return
        life = self.world.lives[victim]
        life.model.is_leaving = True
        request = ControlledShutdownRequest(broker_id=victim, broker_epoch=life.epoch)
        self.ask_without_waiting(active, active.controller.controlled_shutdown, request, 3)
        self.world.step_for(self.source.choice([0.001, 0.01, 0.5]))
        if self.source.random() < 0.5:
            self.world.bounce(victim)
        else:
            self.world.kill(victim)

    def slow_down(self):
        self.world.latency_s = self.source.choice([(0.0005, 0.003), (0.05, 0.4), (0.5, 2.0)])

    def refuse(self):
        """Makes a broker refuse to delete replicas for some time."""
        life = self.source.choice(self.world.alive())
        life.model.refuses_deletion.update(life.model.hosted)

    def heal(self):
        world = self.world
        world.latency_s = (0.0005, 0.003)
        for broker_id in BROKERS:
            life = world.lives[broker_id]
            life.machine.resume()
            if not life.machine.is_alive:
                world.start_broker(broker_id)
            world.lives[broker_id].model.refuses_deletion.clear()
            world.lives[broker_id].model.is_leaving = False
        world.wait_for(lambda: world.active() is not None)
        world.step_for(30)
        for life in world.alive():
            life.model.propose_soon()
        world.settle()


def run_story(seed, steps=14):
    """Runs one random history. Raises AssertionError with the violated invariants and the steps of the history."""
    story = Story(seed, steps)
    try:
        return run_cluster(story, seed)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {', '.join(story.log)}\n{error}") from error
