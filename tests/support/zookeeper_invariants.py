"""The invariants of controllers in ZooKeeper mode, checked from outside: in ZooKeeper's tree, on the brokers, and at
each change of a state. This module has its own tables of legal state changes, written independently from the
document."""

import json
import re

from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.uuid import ZERO
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import ANY_VERSION, Check, Create, Delete, Multi, SetData

STATE_PATH = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
# The numeric codes that Kafka gives to partition and replica states. Each key is a state, and its set contains the
# states that may follow.
PARTITION_MOVES = {3: {0}, 0: {1, 2}, 1: {1, 2}, 2: {1, 2, 3}}
REPLICA_MOVES = {7: {1}, 1: {2, 3}, 2: {2, 3}, 3: {2, 3, 4, 6}, 4: {5, 6}, 5: {7}, 6: {2, 3}}


def _is_fenced(parts):
    """Returns whether the first part of a multi fences the others. The election itself is fenced by the version of
    `/controller_epoch` that it sets."""
    if isinstance(parts[0], Check):
        return parts[0].path == paths.CONTROLLER_EPOCH
    kinds = [(type(each), each.path) for each in parts]
    is_election = kinds == [(Create, paths.CONTROLLER), (SetData, paths.CONTROLLER_EPOCH)]
    return is_election and parts[1].version != ANY_VERSION


def _is_of_broker(write):
    """Returns whether every broker may make this write: its registration, and the first epoch, which fences the later
    writes."""
    made = write.path if isinstance(write, Create) else ""
    return made == paths.CONTROLLER_EPOCH or paths.parent(made) == paths.BROKER_IDS


class Invariants:
    """Collects violations of the invariants in `violations` while the story runs. `check` inspects the cluster after it
    has settled, and asserts that there are no violations."""

    def __init__(self, world):
        self.world = world
        self.violations = []
        self.epochs = {}  # controller epoch: broker
        # Replicas that a reassignment has removed; the controller does not wait until they are deleted.
        self.strays = set()
        self.uncleanly = False  # whether the story allows unclean elections
        tree = world.zookeeper.tree
        self._write = tree.write
        tree.write = self._watched_write

    # --- writes ---

    def _watched_write(self, operation, session_id, *rest):
        nodes = self.world.zookeeper.tree.nodes
        parts = operation.operations if isinstance(operation, Multi) else (operation,)
        before = {each.path: nodes[each.path].data for each in parts if each.path in nodes}
        epoch = self.world.controller_epoch()
        result, changes = self._write(operation, session_id, *rest)
        if result.is_ok:
            is_ours = self.world.admin is None or session_id != self.world.admin.session_id
            if is_ours and not _is_fenced(parts):
                self.violations += [f"unfenced write to {each.path}" for each in parts if not _is_of_broker(each)]
            for each in parts:
                self._note_write(each, is_ours, before.get(each.path), epoch)
        return result, changes

    def _note_write(self, write, is_ours, before, epoch):
        if is_ours and isinstance(write, Create | SetData | Delete) and write.path.startswith(paths.TOPICS + "/"):
            if before and isinstance(write, SetData) and write.path.count("/") == 3:
                self._note_assignment(paths.name(write.path), json.loads(before), json.loads(write.data))
            match = STATE_PATH.fullmatch(write.path)
            if match and not isinstance(write, Delete):
                self._note_state(write.path, json.loads(write.data), before and json.loads(before), epoch)

    def _note_assignment(self, topic, before, now):
        for number, replicas in before["partitions"].items():
            gone = set(replicas) - set(now["partitions"].get(number, ()))
            self.strays.update((topic, int(number), broker_id) for broker_id in gone)

    def _note_state(self, path, now, before, epoch):
        if now["controller_epoch"] != epoch:
            self.violations.append(f"{path} written with epoch {now['controller_epoch']} in epoch {epoch}")
        if now["leader"] != -1 and now["leader"] not in now["isr"]:
            self.violations.append(f"{path}: leader {now['leader']} outside of ISR {now['isr']}")
        if not before:
            return
        if now["leader_epoch"] < before["leader_epoch"]:
            self.violations.append(f"{path}: leader epoch fell from {before['leader_epoch']} to {now['leader_epoch']}")
        changed = now["leader"] not in (-1, before["leader"])
        if changed and now["leader_epoch"] == before["leader_epoch"]:
            self.violations.append(f"{path}: two leaders in epoch {now['leader_epoch']}")
        if changed and now["leader"] not in before["isr"] and not self.uncleanly:
            self.violations.append(f"{path}: leader {now['leader']} was not in ISR {before['isr']}")

    # --- controllers ---

    def watch(self, controller):
        """Observes a controller. The world calls this before the controller starts."""
        begin, forget = controller.begin, controller._forget

        def watched_begin(epoch, version):
            owner = self.epochs.setdefault(epoch, controller.settings.broker_id)
            if owner != controller.settings.broker_id:
                self.violations.append(f"controller epoch {epoch} has two controllers")
            begin(epoch, version)

        def watched_forget():
            forget()
            self._watch_states(controller.context)

        controller.begin, controller._forget = watched_begin, watched_forget
        self._watch_states(controller.context)

    def _watch_states(self, context):
        set_partitions, set_replicas = context.set_partition_states, context.set_replica_states

        def partitions(rows, target):
            rows = list(rows)
            for row in rows:
                if int(target) not in PARTITION_MOVES[context.partition_states[row]]:
                    self.violations.append(
                        f"partition {context.names[row]}: {context.partition_states[row]} -> {target}"
                    )
            set_partitions(rows, target)

        def replicas(moved, target):
            moved = list(moved)
            loading = not any(context.partition_states)  # a new controller sets the states that it finds
            for replica in moved:
                state = int(context.replica_state(replica))
                loads = state == 7 and int(target) in (2, 6) and (loading or context.partition_states[replica.row] == 3)
                if int(target) not in REPLICA_MOVES[state] and not loads:
                    self.violations.append(f"replica {replica}: {state} -> {int(target)}")
            set_replicas(moved, target)

        context.set_partition_states, context.set_replica_states = partitions, replicas

    # --- brokers ---

    def accepted(self, life, api_key, version, request):
        """Checks that a request that a broker has accepted was meant for this generation of the broker."""
        if -1 < request.broker_epoch < life.epoch:
            self.violations.append(
                f"broker {life.broker_id} of generation {life.epoch} accepted request {api_key} for "
                f"{request.broker_epoch}"
            )
        if request.controller_epoch > self.world.controller_epoch():
            self.violations.append(f"request with controller epoch {request.controller_epoch}, which no controller has")
        if api_key == ApiKey.LEADER_AND_ISR and version >= 2 and request.broker_epoch == -1:
            self.violations.append("LeaderAndIsr without a broker epoch")

    # --- the cluster after it has settled ---

    def check(self):
        self.world.settle()
        found = [*self.violations, *self._controllers(), *self._partitions(), *self._leftovers()]
        assert not found, "\n".join(found)

    def _controllers(self):
        active = [life for life in self.world.alive() if life.controller.is_active]
        if len(active) != 1 or active[0] is not self.world.active():
            yield f"{len(active)} controllers are active"
        for life in self.world.alive():
            controller = life.controller
            if controller.context.refused_transitions:
                yield f"refused state changes: {dict(controller.context.refused_transitions)}"
            leftovers = controller.context.topics or controller.context.brokers or len(controller.senders)
            if not controller.is_active and (leftovers or controller._timers):
                yield f"broker {life.broker_id} is not the controller, but its controller still has state"
            if active and controller.active_controller_id != active[0].broker_id:
                yield f"broker {life.broker_id} believes that {controller.active_controller_id} is the controller"

    def _topics(self):
        nodes = self.world.zookeeper.tree.nodes
        doomed = set(nodes[paths.DELETE_TOPICS].children)
        for name in nodes[paths.TOPICS].children:
            if name not in doomed:
                yield name, json.loads(nodes[paths.topic(name)].data)

    def _partitions(self):
        alive = {life.broker_id: life for life in self.world.alive()}
        assigned = set()
        for topic, content in self._topics():
            for number, replicas in content["partitions"].items():
                key = (topic, int(number))
                state = self.world.state(*key)
                assigned.update((*key, broker_id) for broker_id in replicas)
                yield from self._partition(key, state, replicas, alive)
        for broker_id, life in alive.items():
            for key in life.model.hosted:
                stray = (*key, broker_id) in self.strays
                if (*key, broker_id) not in assigned and not stray and key[0] not in self._doomed():
                    yield f"broker {broker_id} still has {key}"

    def _doomed(self):
        return self.world.zookeeper.tree.nodes[paths.DELETE_TOPICS].children

    def _partition(self, key, state, replicas, alive):
        if state is None:
            if any(broker_id in alive for broker_id in replicas):
                yield f"{key} has no state"
            return
        working = [each for each in state["isr"] if each in alive and key not in alive[each].model.failed]
        if working and state["leader"] not in working:
            yield f"{key} has no live leader: {state}"
        for broker_id in replicas:
            if broker_id not in alive or key in alive[broker_id].model.failed:
                continue
            hosted = alive[broker_id].model.hosted.get(key)
            if hosted is None:
                yield f"broker {broker_id} does not serve {key}"
            elif (hosted.leader, hosted.leader_epoch) != (state["leader"], state["leader_epoch"]):
                yield f"broker {broker_id} believes that {hosted.leader} leads {key}, not {state['leader']}"
        for broker_id, life in alive.items():
            known = life.model.metadata.get(key)
            if known is None or known[:3] != (state["leader"], state["leader_epoch"], state["isr"]):
                yield f"the metadata of broker {broker_id} has {known} for {key}, not {state}"

    def _leftovers(self):
        nodes = self.world.zookeeper.tree.nodes
        alive = {life.broker_id for life in self.world.alive()}
        for life in self.world.alive():
            if set(life.model.live) != alive:
                yield f"broker {life.broker_id} knows brokers {life.model.live}, not {sorted(alive)}"
            known = {topic for topic, _ in life.model.metadata}
            # If a controller is deposed before a broker has received a topic's deletion, the next controller cannot
            # know the topic. Apache Kafka has the same gap.
            extra = known - set(nodes[paths.TOPICS].children)
            if extra and len(self.epochs) == 1:
                yield f"broker {life.broker_id} has metadata of deleted topics {extra}"
        ids = {json.loads(nodes[paths.topic(name)].data).get("topic_id") for name in nodes[paths.TOPICS].children}
        for broker_id in alive:
            for key, topic_id in self.world.disks.get(broker_id, {}).items():
                if topic_id != ZERO and str(topic_id) not in ids and (*key, broker_id) not in self.strays:
                    yield f"broker {broker_id} keeps {key} of a deleted topic on its disk"
        for topic, content in self._topics():
            moved = {**content.get("adding_replicas", {}), **content.get("removing_replicas", {})}
            for number in moved:
                if set(content["partitions"][number]) <= alive:
                    yield f"the reassignment of {topic}-{number} does not proceed"
        for name in self._doomed():
            content = json.loads(nodes[paths.topic(name)].data)
            replicas = {each for ids in content["partitions"].values() for each in ids}
            if replicas <= alive:
                yield f"the deletion of {name} does not proceed"
