"""Bugs that tests plant in the controller of ZooKeeper mode. Each bug is a context manager, and `BUGS` names all of
them. The random histories of `controller_stories` must find every bug."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.support.model_broker import ModelBroker

from kafkacore.controller.zookeeper import replica_changes
from kafkacore.controller.zookeeper.access import Access
from kafkacore.controller.zookeeper.controller import ZooKeeperController
from kafkacore.controller.zookeeper.protocols import broker_join, topic_deletion
from kafkacore.controller.zookeeper.protocols.partition_expansion import PartitionModifications
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.controller.zookeeper.topic_store import TopicStore
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import SessionState
from kafkacore.zookeeper.operations import Code, Multi


@contextmanager
def unfenced_write():
    """Writes do not check the version of /controller_epoch."""

    async def write(self, writes, epoch_version):
        del epoch_version
        if not writes:
            return []
        (result,) = await self.submit([Multi(list(writes))])
        if result.code is Code.CONNECTION_LOSS:
            return await self.write(writes, -1)
        return result.value

    with patch.object(Access, "write", write):
        yield


@contextmanager
def watch_lost_over_a_reconnect():
    """After a reconnect, the client drops the events of watches that fired because of changes during its absence."""
    changed, fired = ZooKeeperController._state_changed, ZooKeeperController._watch_fired

    def state_changed(self, state, session_id):
        self._was_away = state is SessionState.CONNECTING
        if state is SessionState.CONNECTED:
            self._is_back_until = self.surroundings.now_ms() + 20
        changed(self, state, session_id)

    def watch_fired(self, event):
        if self.surroundings.now_ms() > getattr(self, "_is_back_until", -1) and not getattr(self, "_was_away", False):
            fired(self, event)

    with (
        patch.object(ZooKeeperController, "_state_changed", state_changed),
        patch.object(ZooKeeperController, "_watch_fired", watch_fired),
    ):
        yield


@contextmanager
def state_captured_when_queued():
    """BrokerChange uses the brokers that were alive when the event was queued, instead of those that are alive when it
    runs."""
    put, children = ZooKeeperController.put, TopicStore.children
    captured = []

    def capturing_put(self, event):
        if isinstance(event, broker_join.BrokerChange):
            tree = self.surroundings._life.world.zookeeper.tree
            event.captured = sorted(tree.nodes[paths.BROKER_IDS].children)
        put(self, event)

    process = broker_join.BrokerChange.process

    async def capturing_process(self, controller):
        captured[:] = [getattr(self, "captured", None)]
        try:
            await process(self, controller)
        finally:
            captured.clear()

    async def captured_children(self, path, *, watch=True):
        found = await children(self, path, watch=watch)
        return captured[0] if captured and captured[0] is not None and path == paths.BROKER_IDS else found

    with (
        patch.object(ZooKeeperController, "put", capturing_put),
        patch.object(broker_join.BrokerChange, "process", capturing_process),
        patch.object(TopicStore, "children", captured_children),
    ):
        yield


@contextmanager
def czxid_not_checked():
    """A broker accepts requests that were meant for an earlier generation of the same broker."""
    with patch.object(ModelBroker, "fences_generations", False):
        made = ModelBroker.__init__

        def init(self, *args, **options):
            made(self, *args, **options)
            self.fences_generations = False

        with patch.object(ModelBroker, "__init__", init):
            yield


@contextmanager
def resignation_that_leaves_state():
    """A controller that resigns keeps its context and its senders."""

    def resign(self):
        self.is_active = False
        self.events.clear(self._drop)

    with patch.object(ZooKeeperController, "resign", resign):
        yield


@contextmanager
def deletion_that_ignores_ineligible_replicas():
    """The controller completes the deletion of a topic when the replicas on live brokers have been deleted, even if
    other replicas are ineligible."""

    def is_finished(context, topic):
        replicas = context.replicas_of(context.rows_of([topic]))
        settled = (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE)
        return all(context.replica_state(each) in settled for each in replicas)

    with (
        patch.object(topic_deletion, "_is_finished", is_finished),
        patch.object(topic_deletion.replica_changes, "forget", lambda controller, replicas: None),
    ):
        yield


@contextmanager
def stop_replica_to_the_new_life():
    """The controller sends a StopReplica that is meant for the former generation of a broker to the generation that is
    live at the end of the event.

    The controller itself would not add such a request to the batch, and a broker that joins gets its first requests
    before the end of the event. So the bug needs two changes: one records the replicas of failed brokers, and the other
    sends the requests for these replicas after everything else.
    """
    take_offline, process = replica_changes.take_offline, broker_join.BrokerChange.process

    async def noting_take_offline(controller, replicas):
        live = controller.context.brokers
        controller.__dict__.setdefault("late", []).extend(each for each in replicas if each.broker_id not in live)
        await take_offline(controller, replicas)

    async def late_process(self, controller):
        controller.late = []
        await process(self, controller)
        controller.batch.flush()
        for row, broker_id in controller.late:
            if controller.context.names[row] is not None:
                controller.batch.stop_replica(broker_id, row)

    with (
        patch.object(replica_changes, "take_offline", noting_take_offline),
        patch.object(broker_join.BrokerChange, "process", late_process),
    ):
        yield


@contextmanager
def merged_event_that_drops_the_later_one():
    """When the same kind of event is already queued, the controller merges the new event into it and loses the content
    of the new one."""
    with ExitStack() as stack:
        for event in (PartitionModifications, topic_deletion.StopReplicaResponses):
            stack.enter_context(patch.object(event, "merge", lambda self, later: None))
        yield


BUGS = {
    bug.__name__: bug
    for bug in (
        unfenced_write,
        watch_lost_over_a_reconnect,
        state_captured_when_queued,
        czxid_not_checked,
        resignation_that_leaves_state,
        deletion_that_ignores_ineligible_replicas,
        stop_replica_to_the_new_life,
        merged_event_that_drops_the_later_one,
    )
}
