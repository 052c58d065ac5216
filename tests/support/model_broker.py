"""A model of a broker in ZooKeeper mode. It fences and applies the requests of controllers, and proposes ISRs for the
partitions that it leads.

The model shares no code with the code under test. Replication takes no time: a replica is in sync as soon as it follows
its leader in the current leader epoch.
"""

from dataclasses import dataclass, field

from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterPartitionRequest,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kafkacore.protocol.uuid import ZERO

PROPOSE_S = 0.05
DELETING = -2


@dataclass
class Hosted:
    """A replica that this broker hosts."""

    leader: int
    leader_epoch: int
    isr: list
    partition_epoch: int
    replicas: list
    topic_id: object


@dataclass
class ModelBroker:
    life: object
    epoch: int = -1
    controller_epoch: int = 0
    hosted: dict = field(default_factory=dict)  # (topic, partition): Hosted
    metadata: dict = field(default_factory=dict)  # (topic, partition): (leader, leader epoch, isr, replicas, offline)
    live: tuple = ()
    fences_generations: bool = True
    failed: set = field(default_factory=set)  # the (topic, partition) of replicas in a failed log directory
    # The (topic, partition) of replicas for which StopReplica returns KAFKA_STORAGE_ERROR.
    refuses_deletion: set = field(default_factory=set)
    stopped: list = field(default_factory=list)  # the StopReplica requests: (topic, partition, delete, broker epoch)
    is_asking: bool = False
    proposes: bool = True
    is_leaving: bool = False  # whether the broker is in its controlled shutdown and fetches no more

    def registered(self, epoch):
        """Starts a new generation of this broker. It has the replicas on disk, but no roles and no metadata."""
        self.epoch = epoch

    @property
    def disk(self):
        """Returns the replicas on disk. The next generation of this broker will find them."""
        return self.life.world.disks.setdefault(self.life.broker_id, {})

    # --- requests of controllers ---

    def handle(self, api_key, version, request):
        error = self._fence(request)
        if not error:
            self.controller_epoch = request.controller_epoch
            self.life.world.invariants.accepted(self.life, api_key, version, request)
        if api_key == ApiKey.LEADER_AND_ISR:
            return self._leader_and_isr(version, request, error)
        if api_key == ApiKey.UPDATE_METADATA:
            return self._update_metadata(version, request, error)
        return self._stop_replica(version, request, error)

    def _fence(self, request):
        if self.fences_generations and -1 < request.broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def _leader_and_isr(self, version, request, error):
        response = LeaderAndIsrResponse(error_code=error)
        if error:
            return response
        if version < 2:
            grouped = {}
            for each in request.ungrouped_partition_states:
                grouped.setdefault(each.topic_name, []).append(each)
            topics = [(name, ZERO, states) for name, states in grouped.items()]
        else:
            topics = [(topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states]
        for name, topic_id, states in topics:
            errors = [self._apply(name, topic_id, each) for each in states]
            if version < 5:
                for each in errors:
                    each.topic_name = name
                response.partition_errors += errors
            else:
                response.topics.append(
                    LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors)
                )
        self.propose_soon()
        return response

    def _apply(self, name, topic_id, state):
        key = (name, state.partition_index)
        result = LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=state.partition_index)
        known = self.hosted.get(key)
        if key in self.failed:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif known is not None and known.leader_epoch > state.leader_epoch:
            result.error_code = ErrorCode.STALE_CONTROLLER_EPOCH
        elif self.life.broker_id not in state.replicas:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            self.hosted[key] = Hosted(
                state.leader, state.leader_epoch, list(state.isr), state.partition_epoch, list(state.replicas), topic_id
            )
            self.disk[key] = topic_id
            leader = self.life.world.lives.get(state.leader)
            if leader is not None and leader is not self.life and leader.machine.is_alive:
                leader.model.propose_soon()
        return result

    def _update_metadata(self, version, request, error):
        if not error:
            self.live = tuple(sorted(each.id for each in request.live_brokers))
            states = [(each.topic_name, each) for each in request.ungrouped_partition_states]
            if version >= 5:
                states = [(topic.topic_name, each) for topic in request.topic_states for each in topic.partition_states]
            for name, each in states:
                key = (name, each.partition_index)
                if each.leader == DELETING:
                    self.metadata.pop(key, None)
                else:
                    self.metadata[key] = (
                        each.leader, each.leader_epoch, list(each.isr), list(each.replicas), list(each.offline_replicas)
                    )  # fmt: skip
        return UpdateMetadataResponse(error_code=error)

    def _stop_replica(self, version, request, error):
        response = StopReplicaResponse(error_code=error)
        for name, number, delete in stops(version, request):
            key = (name, number)
            refused = delete and key in self.refuses_deletion
            if not error and not refused:
                self.hosted.pop(key, None)
                if delete:
                    self.disk.pop(key, None)
                self.stopped.append((*key, delete, request.broker_epoch))
            response.partition_errors.append(
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=name,
                    partition_index=number,
                    error_code=error or (ErrorCode.KAFKA_STORAGE_ERROR if refused else ErrorCode.NONE),
                )
            )
        return response

    # --- ISRs ---

    def propose_soon(self):
        if self.proposes and not self.is_asking:
            self.is_asking = True
            self.life.loop.call_later(PROPOSE_S, self._propose)

    def _wanted(self, key, hosted):
        """Returns the replicas that are in sync because they follow in this leader epoch."""
        isr = list(hosted.isr)
        for broker_id in hosted.replicas:
            other = self.life.world.lives.get(broker_id)
            if broker_id in isr or other is None or not other.machine.is_alive or other.machine.is_paused:
                continue
            follows = other.model.hosted.get(key)
            if other.model.is_leaving:
                continue
            if follows is not None and follows.leader_epoch == hosted.leader_epoch:
                isr.append(broker_id)
        return isr

    def _propose(self):
        self.is_asking = False
        topics = {}
        for key, hosted in self.hosted.items():
            if hosted.leader == self.life.broker_id and (isr := self._wanted(key, hosted)) != hosted.isr:
                topics.setdefault(hosted.topic_id, []).append((key, hosted, isr))
        active = self.life.world.active()
        if not topics or active is None:
            if topics:
                self.propose_soon()
            return
        lives = self.life.world.lives
        request = AlterPartitionRequest(
            broker_id=self.life.broker_id,
            broker_epoch=self.epoch,
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=topic_id,
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=key[1],
                            leader_epoch=hosted.leader_epoch,
                            partition_epoch=hosted.partition_epoch,
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=lives[each].epoch)
                                for each in isr
                            ],
                        )
                        for key, hosted, isr in proposals
                    ],
                )
                for topic_id, proposals in topics.items()
            ],
        )
        self.is_asking = True
        task = active.loop.create_task(active.controller.alter_partition(request, 3))
        task.add_done_callback(lambda done: self._answered(done, topics))

    def _answered(self, task, topics):
        self.is_asking = False
        if not self.life.machine.is_alive or task.cancelled() or task.exception() is not None:
            return
        keys = {(topic_id, key[1]): key for topic_id, proposals in topics.items() for key, _, _ in proposals}
        retry = task.result().error_code != ErrorCode.NONE
        for topic in task.result().topics:
            for each in topic.partitions:
                hosted = self.hosted.get(keys[topic.topic_id, each.partition_index])
                if each.error_code:
                    retry = True
                elif hosted is not None and hosted.leader_epoch == each.leader_epoch:
                    hosted.isr, hosted.partition_epoch = list(each.isr), each.partition_epoch
        if retry:
            self.is_asking = True
            self.life.loop.call_later(0.5, self._propose)
        else:
            self.propose_soon()


def stops(version, request):
    """Returns (topic, partition, delete) for each partition of a StopReplica request in any version."""
    if version >= 3:
        return [
            (topic.topic_name, each.partition_index, each.delete_partition)
            for topic in request.topic_states
            for each in topic.partition_states
        ]
    delete = request.delete_partitions
    if version == 0:
        return [(each.topic_name, each.partition_index, delete) for each in request.ungrouped_partitions]
    return [(topic.name, index, delete) for topic in request.topics for index in topic.partition_indexes]
