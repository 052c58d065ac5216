import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import com.yammer.metrics.core.MetricsRegistry;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.JoinGroupResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Runs Apache Kafka's own group coordinator with commands, one per line. Messages are in hex, without their headers.
 *
 *   new NOW MAX_SIZE                              makes a new, empty shard
 *   replay KEY VALUE                              replays a record of the shard's log; VALUE is - for a tombstone
 *   loaded
 *   ask API BODY_VERSION CLIENT_VERSION WAITER CLIENT_ID BODY
 *   wait MS                                       advances the clock; fires each timer on the way when it is due
 *
 * After each command, prints lines "answer WAITER VERSION BODY", "error WAITER CODE" and "record KEY VALUE", and then
 * "done".
 */
public class GroupJudge {
    static final HexFormat HEX = HexFormat.of();
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    static final StringBuilder OUT = new StringBuilder();
    static long now;
    static long offset;
    static GroupCoordinatorShard shard;
    static Timers timers;

    static final class Clock implements Time {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    record Due(String key, long at, long number, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> operation) {
    }

    static final class Timers implements CoordinatorTimer<CoordinatorRecord> {
        final Map<String, Due> due = new HashMap<>();
        long count;

        public void schedule(String key, long delay, TimeUnit unit, boolean retry,
                             TimeoutOperation<CoordinatorRecord> operation) {
            due.put(key, new Due(key, now + unit.toMillis(delay), ++count, operation));
        }

        public void schedule(String key, long delay, TimeUnit unit, boolean retry, long backoff,
                             TimeoutOperation<CoordinatorRecord> operation) {
            schedule(key, delay, unit, retry, operation);
        }

        public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry,
                                     TimeoutOperation<CoordinatorRecord> operation) {
            if (!due.containsKey(key)) schedule(key, delay, unit, retry, operation);
        }

        public void cancel(String key) {
            due.remove(key);
        }

        public boolean isScheduled(String key) {
            return due.containsKey(key);
        }
    }

    static final class NoExecutor implements CoordinatorExecutor<CoordinatorRecord> {
        public <R> boolean schedule(String key, TaskRunnable<R> task, TaskOperation<CoordinatorRecord, R> operation) {
            throw new UnsupportedOperationException();
        }

        public boolean isScheduled(String key) {
            return false;
        }

        public void cancel(String key) {
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "new" -> create(Long.parseLong(words[1]), words[2]);
                case "replay" -> shard.replay(offset++, -1L, (short) -1, SERDE.deserialize(
                    ByteBuffer.wrap(HEX.parseHex(words[1])),
                    words[2].equals("-") ? null : ByteBuffer.wrap(HEX.parseHex(words[2]))));
                case "loaded" -> shard.onLoaded(CoordinatorMetadataImage.EMPTY);
                case "ask" -> ask(words);
                case "wait" -> pass(Long.parseLong(words[1]));
                default -> throw new IllegalArgumentException(line);
            }
            System.out.print(OUT.append("done\n"));
            System.out.flush();
            OUT.setLength(0);
        }
    }

    static void create(long at, String maxSize) {
        now = at;
        offset = 0;
        timers = new Timers();
        LogContext logs = new LogContext();
        SnapshotRegistry snapshots = new SnapshotRegistry(logs);
        GroupCoordinatorConfig config = GroupCoordinatorConfig.fromProps(
            Map.of(GroupCoordinatorConfig.GROUP_MAX_SIZE_CONFIG, maxSize));
        GroupCoordinatorShard.Builder builder = new GroupCoordinatorShard.Builder(
            config, new GroupConfigManager(Map.of(), config, ShareGroupConfig.fromProps(Map.of())));
        builder.withAuthorizerPlugin(Optional.empty());
        shard = builder
            .withLogContext(logs)
            .withSnapshotRegistry(snapshots)
            .withTime(new Clock())
            .withTimer(timers)
            .withExecutor(new NoExecutor())
            .withCoordinatorMetrics(new GroupCoordinatorMetrics(new MetricsRegistry(), new Metrics()))
            .withTopicPartition(new TopicPartition("__consumer_offsets", 0))
            .build();
    }

    static void pass(long ms) {
        long end = now + ms;
        while (true) {
            Due next = timers.due.values().stream()
                .min(Comparator.comparingLong(Due::at).thenComparingLong(Due::number)).orElse(null);
            if (next == null || next.at > end) break;
            now = Math.max(now, next.at);
            timers.due.remove(next.key);
            carryOut(next.operation.generateRecords());
        }
        now = end;
    }

    static <T> T carryOut(CoordinatorResult<T, CoordinatorRecord> result) {
        for (CoordinatorRecord record : result.records()) {
            if (result.replayRecords()) shard.replay(offset, -1L, (short) -1, record);
            offset++;
            byte[] value = SERDE.serializeValue(record);
            OUT.append("record ").append(HEX.formatHex(SERDE.serializeKey(record))).append(' ')
                .append(value == null ? "-" : HEX.formatHex(value)).append('\n');
        }
        if (result.appendFuture() != null) result.appendFuture().complete(null);
        return result.response();
    }

    static void answer(String waiter, ApiMessage message) {
        short version = message.highestSupportedVersion();
        if (message instanceof OffsetCommitResponseData || message instanceof OffsetFetchResponseData) version = 9;
        if (message instanceof JoinGroupResponseData join) message = new JoinGroupResponse(join, version).data();
        ByteBuffer body = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        OUT.append("answer ").append(waiter).append(' ').append(version).append(' ').append(HEX.formatHex(bytes))
            .append('\n');
    }

    static <T extends ApiMessage> CompletableFuture<T> parked(String waiter) {
        CompletableFuture<T> future = new CompletableFuture<>();
        future.thenAccept(message -> answer(waiter, message));
        return future;
    }

    static void ask(String[] words) throws Exception {
        ApiKeys api = ApiKeys.forId(Integer.parseInt(words[1]));
        short body = Short.parseShort(words[2]);
        short client = Short.parseShort(words[3]);
        String waiter = words[4];
        ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(words[6])));
        RequestContext context = new RequestContext(
            new RequestHeader(api, client, words[5], 0), "0", InetAddress.getByAddress(new byte[]{127, 0, 0, 1}),
            KafkaPrincipal.ANONYMOUS, ListenerName.forSecurityProtocol(SecurityProtocol.PLAINTEXT),
            SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
        try {
            serve(api, body, waiter, in, context);
        } catch (ApiException e) {
            OUT.append("error ").append(waiter).append(' ').append(Errors.forException(e).code()).append('\n');
        } catch (IllegalStateException | IllegalArgumentException e) {
            OUT.append("error ").append(waiter).append(" -1\n");
        }
    }

    static void serve(ApiKeys api, short version, String waiter, ByteBufferAccessor in, RequestContext context) {
        long latest = SnapshotRegistry.LATEST_EPOCH;
        switch (api) {
            case JOIN_GROUP -> carryOut(
                shard.classicGroupJoin(context, new JoinGroupRequestData(in, version), parked(waiter)));
            case SYNC_GROUP -> carryOut(
                shard.classicGroupSync(context, new SyncGroupRequestData(in, version), parked(waiter)));
            case HEARTBEAT -> answer(waiter, carryOut(
                shard.classicGroupHeartbeat(context, new HeartbeatRequestData(in, version))));
            case LEAVE_GROUP -> answer(waiter, carryOut(
                shard.classicGroupLeave(context, new LeaveGroupRequestData(in, version))));
            case OFFSET_COMMIT -> answer(waiter, carryOut(
                shard.commitOffset(context, new OffsetCommitRequestData(in, version))));
            case OFFSET_DELETE -> answer(waiter, carryOut(
                shard.deleteOffsets(context, new OffsetDeleteRequestData(in, version))));
            case OFFSET_FETCH -> answer(waiter, new OffsetFetchResponseData().setGroups(List.of(
                shard.fetchOffsets(new OffsetFetchRequestData(in, version).groups().get(0), latest))));
            case DELETE_GROUPS -> answer(waiter, new DeleteGroupsResponseData().setResults(carryOut(
                shard.deleteGroups(context, new DeleteGroupsRequestData(in, version).groupsNames()))));
            case DESCRIBE_GROUPS -> answer(waiter, new DescribeGroupsResponseData().setGroups(
                shard.describeGroups(context, new DescribeGroupsRequestData(in, version).groups(), latest)));
            case LIST_GROUPS -> {
                ListGroupsRequestData asked = new ListGroupsRequestData(in, version);
                answer(waiter, new ListGroupsResponseData().setGroups(
                    new ArrayList<>(shard.listGroups(asked.statesFilter(), asked.typesFilter(), latest))));
            }
            default -> throw new UnsupportedOperationException(api.name);
        }
    }
}
