"""Changes of topics, partitions and settings that clients request in ZooKeeper mode.

The rules and the placement of replicas are the same as in KRaft mode: the same code makes the decisions, from the image
that clients see. The decisions are written to znodes instead of a log, and the controller notices them through its
watches. Topics are changed by the node of the active controller; any node can change settings (KafkaApis and
ZkAdminManager of Apache Kafka 3.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.controller.quorum.config_rules import exists
from kafkacore.controller.quorum.configuration import ConfigAlteration
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.controller.quorum.deletion import delete_topics
from kafkacore.controller.quorum.topics import PartitionGrowth, TopicCreation, TopicDescriptions
from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.metadata.image import BROKER, TOPIC, ConfigKey, MetadataImage
from kafkacore.metadata.partition_records import PartitionRun
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.slices import Slice, Work, finish
from kafkacore.runtime.world import World
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, Create, CreateMode, GetData, Multi, Operation, Result, SetData

LOG: Final = logging.getLogger("kafkacore.server")
ATTEMPTS: Final = 10  # the number of attempts to change a znode while other nodes change that znode
OPERATIONS_AT_ONCE: Final = 1_000
_OF_CONFIGS: Final = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
_ENTITY_TYPES: Final = {TOPIC: "topics", BROKER: "brokers"}


class ZooKeeperAdmin:
    """Runs on the data plane's loop; `session` belongs to `loop`. `read_view` returns the image that clients see.
    `applied` waits until that image changes. `decide` passes a request to this node's controller."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        world: World,
        session: BrokerSession,
        loop: LoopThread,
        read_view: Callable[[], MetadataImage],
        applied: Callable[[], Coroutine[Any, Any, None]],
        decide: Callable[[Any, int], Coroutine[Any, Any, Any]],
        is_controller: Callable[[], bool],
    ) -> None:
        self._settings = Settings(cluster_id, config, world.random)
        self._new_id = world.new_uuid
        self._has_topic_ids = InterBrokerProtocol(config.inter_broker_protocol_version).has_topic_ids
        self._session, self._loop = session, loop
        self._read_view, self._applied = read_view, applied
        self._decide, self._is_controller = decide, is_controller
        self._descriptions = TopicDescriptions(config)
        self._changing = asyncio.Lock()  # held while settings are read, changed and written back

    async def answer(self, call: RequestContext, request: Any) -> Any:
        """Carries out a client's request and returns the response. Raises NOT_CONTROLLER, and other errors that concern
        the whole request."""
        if call.api_key in _OF_CONFIGS:
            async with self._changing:
                return await self._alter_configs(call.api_key, request)
        if not self._is_controller():
            raise error_for(ErrorCode.NOT_CONTROLLER)
        if call.api_key == ApiKey.CREATE_TOPICS:
            answer = await self.create_topics(request)
            await self._seen([(topic, topic.num_partitions) for topic in answer.topics], request)
            return answer
        if call.api_key == ApiKey.CREATE_PARTITIONS:
            return await self._create_partitions(request)
        if call.api_key == ApiKey.DELETE_TOPICS:
            return await self._delete_topics(request, call.api_version)
        return await asyncio.wrap_future(self._loop.submit(self._decide(request, call.api_version)))

    async def _submit(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._in_parts(self._session.client.submit, operations)

    async def _sure(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._in_parts(self._session.sure, operations)

    async def _in_parts(
        self,
        submit: Callable[[Sequence[Operation]], Coroutine[Any, Any, list[Result]]],
        operations: Sequence[Operation],
    ) -> list[Result]:
        """Submits the operations, a part at a time. The session sends its calls in order, so this node's controller
        would otherwise wait until all operations of a large request are sent."""
        results: list[Result] = []
        for first in range(0, len(operations), OPERATIONS_AT_ONCE):
            part = operations[first : first + OPERATIONS_AT_ONCE]
            results += await asyncio.wrap_future(self._loop.submit(submit(part)))
        return results

    # --- topics ---

    async def create_topics(self, request: Any) -> Any:
        """Writes the znodes of new topics. Does not wait until the controller has seen them."""
        creation = TopicCreation(self._read_view(), self._settings, self._new_id, self._descriptions)
        decision: Any = await finish(creation.decide(request))
        configs: dict[str, dict[str, str]] = {}
        assignments: dict[Uuid, dict[int, znodes.Assignment]] = {}
        names: dict[Uuid, str] = {}
        for record in decision.records:
            if isinstance(record, PartitionRun):
                assignments[record.topic_id] = _assignment(record)
            elif record.NAME == "TopicRecord":
                names[record.topic_id] = record.name
            else:
                configs.setdefault(record.resource_name, {})[record.name] = record.value
        acl = self._session.acl
        writes = {}
        for topic_id, name in names.items():
            path, config = paths.topic(name), paths.config("topics", name)
            assignment = znodes.TopicAssignment(topic_id if self._has_topic_ids else None, assignments[topic_id])
            topic = Create(path, znodes.encode_topic(assignment), acl=acl(path))
            data = znodes.encode_config(configs.get(name, {}))
            writes[name] = (
                Multi([Create(config, data, acl=acl(config)), topic]),
                Multi([SetData(config, data), topic]),
            )
        failed = await self._write_topics(writes)
        for result in decision.response.topics:
            if result.name in failed:
                result.error_code, result.error_message = failed[result.name], None
            if not self._has_topic_ids:
                result.topic_id = ZERO
        return decision.response

    async def _write_topics(self, writes: Mapping[str, tuple[Multi, Multi]]) -> dict[str, ErrorCode]:
        """Creates each topic. There are two writes for each: the first creates the topic. The second replaces the first
        if an earlier topic of the same name has left settings behind. Returns the errors of the topics that were not
        created."""
        names = list(writes)
        results = dict(zip(names, await self._submit([writes[name][0] for name in names]), strict=True))
        again = [name for name in names if results[name].code == Code.NODE_EXISTS and _failed_first(results[name])]
        results |= dict(zip(again, await self._submit([writes[name][1] for name in again]), strict=True))
        return {name: error for name in names if (error := _error_of(results[name].code)) != ErrorCode.NONE}

    async def _seen(self, counts: Sequence[tuple[Any, int]], request: Any) -> None:
        """Waits until the controller has elected the leaders of new partitions, but at most as long as the client
        allows. `counts` has the result of each topic and its number of partitions."""
        if request.validate_only or request.timeout_ms <= 0:
            return
        made = [(topic, count) for topic, count in counts if not topic.error_code]
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                while not all(has_leaders(self._read_view(), topic.name, count) for topic, count in made):
                    await self._applied()
        except TimeoutError:
            image = self._read_view()
            for topic, count in made:
                if not has_leaders(image, topic.name, count):
                    topic.error_code = ErrorCode.REQUEST_TIMED_OUT

    async def _create_partitions(self, request: Any) -> Any:
        image = self._read_view()
        decision: Any = await finish(PartitionGrowth(image, self._settings).decide(request))
        failed: dict[str, tuple[ErrorCode, str | None]] = {}
        for run in decision.records:
            topic = image.topic_by_id(run.topic_id)
            if topic is None:
                continue
            try:
                error, message = await self._add_partitions(topic.name, run), None
            except znodes.MalformedZnodeError as malformed:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                message = f"{paths.topic(topic.name)} cannot be read: {malformed}"
            if error:
                failed[topic.name] = error, message
        for result in decision.response.results:
            if result.name in failed:
                result.error_code, result.error_message = failed[result.name]
        wanted = {topic.name: topic.count for topic in request.topics}
        await self._seen([(result, wanted[result.name]) for result in decision.response.results], request)
        return decision.response

    async def _add_partitions(self, name: str, run: Any) -> ErrorCode:
        """Adds partitions to a topic's znode. Raises MalformedZnodeError."""
        path, added = paths.topic(name), _assignment(run)
        for _ in range(ATTEMPTS):
            [found] = await self._sure([GetData(path)])
            if not found.is_ok:
                return _error_of(found.code)
            known = znodes.decode_topic(found.value[0])
            if any(known.partitions.values()) and min(added) < len(known.partitions):
                return ErrorCode.INVALID_PARTITIONS  # partitions were added meanwhile, or this write is already done
            if any(each.adding or each.removing for each in known.partitions.values()):
                return ErrorCode.REASSIGNMENT_IN_PROGRESS
            data = znodes.encode_topic(known._replace(partitions=known.partitions | added))
            [written] = await self._submit([SetData(path, data, found.value[1].version)])
            if written.code != Code.BAD_VERSION:
                return _error_of(written.code)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    async def _delete_topics(self, request: Any, api_version: int) -> Any:
        image = self._read_view()
        decision: Any = await finish(delete_topics(image, self._settings, request, api_version))
        names = [topic.name for record in decision.records if (topic := image.topic_by_id(record.topic_id))]
        asked = [Create(path, acl=self._session.acl(path)) for path in map(paths.delete_topic, names)]
        results = dict(zip(names, await self._submit(asked), strict=True))
        for answer in decision.response.responses:
            written = results.get(answer.name)
            if written is not None and written.code not in (Code.OK, Code.NODE_EXISTS):
                answer.error_code = _error_of(written.code)
        await self._gone(names, request.timeout_ms, decision.response.responses)
        return decision.response

    async def _gone(self, names: Sequence[str], timeout_ms: int, answers: Sequence[Any]) -> None:
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                while any(self._read_view().topic(name) is not None for name in names):
                    await self._applied()
        except TimeoutError:
            image, deleted = self._read_view(), frozenset(names)
            for answer in answers:
                if not answer.error_code and answer.name in deleted and image.topic(answer.name) is not None:
                    answer.error_code = ErrorCode.REQUEST_TIMED_OUT

    # --- settings ---

    async def _alter_configs(self, api_key: int, request: Any) -> Any:
        """Changes settings. Decides from the settings that ZooKeeper has now, not from those that this broker has
        cached. Decides again if another node changes the same settings meanwhile."""
        for _ in range(ATTEMPTS):
            view = self._read_view()
            image, versions = await self._with_settings(view, await finish(self._keys(view, request.resources)))
            alteration = ConfigAlteration(image, self._settings, forwarded=True)
            decide = alteration.incremental if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS else alteration.legacy
            decision: Any = await finish(decide(request))
            changed: dict[ConfigKey, dict[str, str]] = {}
            for record in decision.records:
                key = record.resource_type, record.resource_name
                values = changed.setdefault(key, dict(image.set_config(*key)))
                if record.value is None:
                    values.pop(record.name, None)
                else:
                    values[record.name] = record.value
            written = {key: await self._write_settings(key, each, versions.get(key)) for key, each in changed.items()}
            if None not in written.values():
                break
        pause = Slice()
        for answer in decision.response.responses:
            await pause.give_way()
            error = written.get((answer.resource_type, answer.resource_name), ErrorCode.NONE)
            if error != ErrorCode.NONE:
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error
        return decision.response

    def _keys(self, view: MetadataImage, resources: Sequence[Any]) -> Work[list[ConfigKey]]:
        """Returns the resources whose settings must be read. Leaves out topics and brokers that do not exist, because
        the decision refuses them without reading any settings."""
        keys: dict[ConfigKey, None] = {}
        for each in resources:
            yield
            key = each.resource_type, each.resource_name
            if key[0] in _ENTITY_TYPES and exists(view, self._settings, key):
                keys[key] = None
        return list(keys)

    async def _with_settings(
        self, image: MetadataImage, keys: Sequence[ConfigKey]
    ) -> tuple[MetadataImage, dict[ConfigKey, int]]:
        """Returns the image with the settings that ZooKeeper has, and the versions of their znodes. A znode that does
        not exist has no version."""
        found = await self._sure([GetData(_config_path(key)) for key in keys])
        edit = image.configs.edit()
        versions: dict[ConfigKey, int] = {}
        for key, result in zip(keys, found, strict=True):
            if result.is_ok:
                data, stat = result.value
                versions[key] = stat.version
                try:
                    values = znodes.decode_config(data)
                except znodes.MalformedZnodeError as error:
                    raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{_config_path(key)}: {error}") from None
            elif result.code == Code.NO_NODE:
                values = {}
            else:
                raise error_for(_error_of(result.code))
            if values:
                edit[key] = dict(values)
            else:
                edit.pop(key)
        return image._replace(configs=edit.freeze()), versions

    async def _write_settings(self, key: ConfigKey, values: Mapping[str, str], version: int | None) -> ErrorCode | None:
        """Writes the settings of an entity and the notification for all brokers in one multi, if the znode still has
        this version. Returns None if the znode has another version. Without the notification, the brokers would keep
        the old settings. If the client then repeated the request, this node would find the new settings in ZooKeeper
        and still notify no broker."""
        if key[0] not in _ENTITY_TYPES:
            return ErrorCode.INVALID_REQUEST
        path, data = _config_path(key), znodes.encode_config(values)
        change_path = paths.config_change()
        change = Create(
            change_path,
            znodes.encode_config_change(path.removeprefix(f"{paths.CONFIG}/")),
            CreateMode.PERSISTENT_SEQUENTIAL,
            self._session.acl(change_path),
        )
        write = Create(path, data, acl=self._session.acl(path)) if version is None else SetData(path, data, version)
        [written] = await self._sure([Multi([write, change])])
        if _failed_first(written) and written.code in (Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS):
            return None
        return _error_of(written.code)


def _assignment(run: Any) -> dict[int, znodes.Assignment]:
    columns = run.columns
    return {
        columns.partition[at]: znodes.Assignment(
            [each for each in columns.replicas[at * columns.width : (at + 1) * columns.width] if each >= 0]
        )
        for at in range(run.first, run.first + run.count)
    }


def has_leaders(image: MetadataImage, name: str, count: int) -> bool:
    """Returns whether the image has the topic, and a leader for each of its partitions."""
    topic = image.topic(name)
    return topic is not None and all(
        (state := image.partition(topic, index)) is not None and state.leader >= 0 for index in range(count)
    )


def _config_path(key: ConfigKey) -> str:
    kind, name = key
    return paths.config(_ENTITY_TYPES[kind], paths.sanitize(name) if name else paths.DEFAULT_ENTITY)


def _failed_first(result: Result) -> bool:
    """Returns whether the first operation of a multi is the operation that failed."""
    return bool(result.value) and not result.value[0].is_ok


def _error_of(code: Code) -> ErrorCode:
    return _ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


_ERRORS: Final = {
    Code.OK: ErrorCode.NONE,
    Code.NODE_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    Code.NO_NODE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.CONNECTION_LOSS: ErrorCode.REQUEST_TIMED_OUT,
    Code.SESSION_EXPIRED: ErrorCode.REQUEST_TIMED_OUT,
}
