import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData.EpochEndOffset;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TopicIdPartition;
import org.apache.kafka.server.partition.AlterPartitionListener;
import org.apache.kafka.server.partition.PartitionState;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchParams;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpoints;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogReadInfo;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import kafka.cluster.DelayedOperations;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.AlterPartitionManager;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs Apache Kafka's own Partition on broker 1 with commands, one per line. A list is written as "2,3". An empty list or
 * a missing number is written as "-".
 *
 *   new TOPIC LAG_MS MIN_ISR                      makes a new partition with an empty log
 *   time MS                                       sets the clock
 *   broker ID STATE EPOCH                         STATE is active, leaving, fenced or gone
 *   role LEADER EPOCH PARTITION_EPOCH REPLICAS ISR RECOVERY
 *   append COUNT ACKS
 *   fetch REPLICA BROKER_EPOCH OFFSET LOG_START CURRENT_EPOCH LAST_FETCHED_EPOCH
 *   consume OFFSET ISOLATION CURRENT_EPOCH LAST_FETCHED_EPOCH
 *   shrink                                        makes the periodic check for followers that have fallen behind
 *   agree ISR EPOCH PARTITION_EPOCH               the controller accepts the AlterPartition
 *   refuse CODE                                   the controller refuses it
 *   follow EPOCH HEX                              appends, as a follower, the batches of a Fetch answer
 *   note HIGH_WATERMARK LOG_START                 handles the other fields of the same answer
 *   truncate OFFSET, restart OFFSET, delete OFFSET, reached OFFSET, latest CURRENT_EPOCH, ends CURRENT_EPOCH EPOCH
 *
 * Each answer is a line of fields "name=value": the error code, the results of the command, the high watermark, and the
 * state after the high watermark was checked again.
 */
public class PartitionJudge {
    static final int NODE = 1;
    static final OffsetCheckpoints NO_CHECKPOINTS = (dir, partition) -> Optional.empty();
    static final Map<Integer, String[]> BROKERS = new HashMap<>();
    static final Map<String, String> FOUND = new TreeMap<>();
    static long now;
    static int minIsr;
    static LogManager logs;
    static Partition partition;
    static Uuid topicId;
    static LeaderAndIsr sent;
    static CompletableFuture<LeaderAndIsr> pending;

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

    static final class Nothing extends DelayedOperations {
        Nothing(TopicPartition partition) {
            super(Option.empty(), partition, null, null, null, null);
        }

        @Override
        public void checkAndCompleteAll() {
        }

        @Override
        public int numDelayedDelete() {
            return 0;
        }
    }

    static final class Listener implements AlterPartitionListener {
        public void markIsrExpand() {
        }

        public void markIsrShrink() {
        }

        public void markFailed() {
        }
    }

    static final class Controller implements AlterPartitionManager {
        public CompletableFuture<LeaderAndIsr> submit(TopicIdPartition partition, LeaderAndIsr asked) {
            sent = asked;
            return pending = new CompletableFuture<>();
        }
    }

    static MetadataCache metadata() {
        return (MetadataCache) Proxy.newProxyInstance(PartitionJudge.class.getClassLoader(),
            new Class<?>[] {MetadataCache.class}, (self, method, arguments) -> {
                String[] broker = BROKERS.getOrDefault((Integer) arguments[0], new String[] {"gone", "-1"});
                boolean alive = !broker[0].equals("gone") && !broker[0].equals("fenced");
                return switch (method.getName()) {
                    case "hasAliveBroker" -> alive;
                    case "getAliveBrokerEpoch" -> alive ? Optional.of(Long.parseLong(broker[1])) : Optional.empty();
                    case "isBrokerFenced" -> broker[0].equals("fenced");
                    case "isBrokerShuttingDown" -> broker[0].equals("leaving");
                    default -> throw new UnsupportedOperationException(method.getName());
                };
            });
    }

    static void open(File dir, KafkaScheduler scheduler) {
        LogConfig config = LogConfig.fromProps(Map.of("log.cleaner.enable", "false"), new Properties());
        logs = new LogManager(
            CollectionConverters.asScala(List.of(dir)).toSeq(), CollectionConverters.asScala(List.<File>of()).toSeq(),
            resource -> {
                Properties topic = new Properties();
                topic.setProperty("min.insync.replicas", Integer.toString(minIsr));
                return topic;
            }, config, new CleanerConfig(false), 1, Long.MAX_VALUE, Long.MAX_VALUE,
            Long.MAX_VALUE, Long.MAX_VALUE, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            scheduler, new BrokerTopicStats(false), new LogDirFailureChannel(1), new Clock(), false, 30_000L,
            LogManager.$lessinit$greater$default$20());
        logs.loadLogs(logs.currentDefaultConfig(), CollectionConverters.asScala(Map.<String, LogConfig>of()),
            log -> false);
    }

    public static void main(String[] args) {
        try {
            judge(args);
        } catch (Throwable unexpected) {
            System.out.println("unexpected=" + unexpected.toString().replaceAll("\\s", "_"));
        }
        System.exit(0);
    }

    static void judge(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        open(new File(args[0]), scheduler);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            FOUND.clear();
            sent = null;
            int error = 0;
            try {
                run(line.split(" "));
            } catch (Throwable thrown) {
                error = Errors.forException(thrown).code();
                if (error == Errors.UNKNOWN_SERVER_ERROR.code())
                    FOUND.put("unexpected", thrown.toString().replace(' ', '_').replace('\n', '_'));
            }
            FOUND.put("error", Integer.toString(error));
            if (partition != null && partition.log().isDefined()) {
                FOUND.put("hw_before", Long.toString(partition.localLogOrException().highWatermark()));
                lookAtHighWatermark();
            }
            if (sent != null)
                FOUND.put("asked", joined(sent.isr()));
            describe();
            System.out.println(FOUND.entrySet().stream().map(one -> one.getKey() + "=" + one.getValue())
                .collect(Collectors.joining(" ")));
            System.out.flush();
        }
    }

    static void run(String[] words) throws Throwable {
        switch (words[0]) {
            case "new" -> create(words[1], Long.parseLong(words[2]), Integer.parseInt(words[3]));
            case "time" -> now = Long.parseLong(words[1]);
            case "broker" -> BROKERS.put(Integer.parseInt(words[1]), new String[] {words[2], words[3]});
            case "role" -> become(words);
            case "append" -> partition.appendRecordsToLeader(
                MemoryRecords.withRecords(Compression.NONE, records(Integer.parseInt(words[1]))), AppendOrigin.CLIENT,
                Integer.parseInt(words[2]), RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 0);
            case "fetch" -> fetch(new FetchParams(Integer.parseInt(words[1]), Long.parseLong(words[2]), 0, 1,
                1 << 20, FetchIsolation.LOG_END, Optional.empty()), words, 3, Long.parseLong(words[4]), 5);
            case "consume" -> fetch(new FetchParams(-1, -1, 0, 1, 1 << 20,
                words[2].equals("1") ? FetchIsolation.TXN_COMMITTED : FetchIsolation.HIGH_WATERMARK,
                Optional.empty()), words, 1, -1L, 3);
            case "shrink" -> partition.maybeShrinkIsr();
            case "agree" -> answered().complete(new LeaderAndIsr(NODE, Integer.parseInt(words[2]),
                Arrays.stream(ints(words[1])).boxed().toList(), LeaderRecoveryState.RECOVERED,
                Integer.parseInt(words[3])));
            case "refuse" -> answered().completeExceptionally(
                Errors.forCode(Short.parseShort(words[1])).exception());
            case "follow" -> partition.appendRecordsToFollowerOrFutureReplica(
                MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(words[2]))), false,
                Integer.parseInt(words[1]));
            case "note" -> {
                UnifiedLog log = partition.localLogOrException();
                log.maybeUpdateHighWatermark(Long.parseLong(words[1]));
                log.maybeIncrementLogStartOffset(Long.parseLong(words[2]),
                    LogStartOffsetIncrementReason.LeaderOffsetIncremented);
            }
            case "truncate" -> partition.truncateTo(Long.parseLong(words[1]), false);
            case "restart" -> partition.truncateFullyAndStartAt(Long.parseLong(words[1]), false, Optional.empty());
            case "delete" -> FOUND.put("low",
                Long.toString(partition.deleteRecordsOnLeader(Long.parseLong(words[1])).lowWatermark()));
            case "reached" -> {
                Tuple2<Object, Errors> reached = partition.checkEnoughReplicasReachOffset(Long.parseLong(words[1]));
                FOUND.put("reached", (Boolean) reached._1() ? Short.toString(reached._2().code())
                    : reached._2() == Errors.NONE ? "-" : Short.toString(reached._2().code()));
            }
            case "latest" -> partition.fetchOffsetForTimestamp(-1L,
                Option.apply(org.apache.kafka.common.IsolationLevel.READ_UNCOMMITTED), epoch(words[1]), true,
                Option.empty());
            case "ends" -> {
                EpochEndOffset end = partition.lastOffsetForLeaderEpoch(epoch(words[1]), Integer.parseInt(words[2]),
                    true);
                FOUND.put("ends", end.errorCode() + ":" + end.leaderEpoch() + ":" + end.endOffset());
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static void create(String topic, long lagMs, int least) {
        minIsr = least;
        BROKERS.clear();
        pending = null;
        topicId = Uuid.randomUuid();
        TopicPartition name = new TopicPartition(topic, 0);
        partition = new Partition(name, lagMs, NODE, () -> 11L, new Clock(), new Listener(), new Nothing(name),
            metadata(), logs, new Controller(), Option.apply(topicId));
    }

    static void become(String[] words) {
        int[] replicas = ints(words[4]);
        PartitionRegistration role = new PartitionRegistration.Builder().setLeader(Integer.parseInt(words[1]))
            .setLeaderEpoch(Integer.parseInt(words[2])).setPartitionEpoch(Integer.parseInt(words[3]))
            .setReplicas(replicas).setDirectories(DirectoryId.unassignedArray(replicas.length))
            .setIsr(ints(words[5])).setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(words[6]))).build();
        if (role.leader == NODE)
            partition.makeLeader(role, true, NO_CHECKPOINTS, Option.apply(topicId), Option.empty());
        else
            partition.makeFollower(role, true, NO_CHECKPOINTS, Option.apply(topicId), Option.empty());
    }

    static void fetch(FetchParams params, String[] words, int at, long logStart, int epochs) {
        LogReadInfo read = partition.fetchRecords(params, new FetchRequest.PartitionData(topicId,
            Long.parseLong(words[at]), logStart, 1 << 20, epoch(words[epochs]), epoch(words[epochs + 1])), now, 1 << 20,
            true, true);
        long end = -1;
        for (RecordBatch batch : read.fetchedData().records.batches())
            end = batch.nextOffset();
        FOUND.put("read", Long.toString(end));
        FOUND.put("diverges", read.divergingEpoch().map(one -> one.epoch() + ":" + one.endOffset()).orElse("-1:-1"));
        FOUND.put("seen", read.highWatermark() + ":" + read.lastStableOffset() + ":" + read.logStartOffset());
    }

    /** Returns the future of the request that has no answer yet, or a new future if there is no such request. */
    static CompletableFuture<LeaderAndIsr> answered() {
        CompletableFuture<LeaderAndIsr> answered = pending == null ? new CompletableFuture<>() : pending;
        pending = null;
        return answered;
    }

    /** Advances the high watermark if possible. A Partition does not do so when only time passes or a broker is fenced. */
    static void lookAtHighWatermark() throws Exception {
        Method look = Partition.class.getDeclaredMethod("maybeIncrementLeaderHW", UnifiedLog.class, long.class);
        look.setAccessible(true);
        if (partition.isLeader())
            look.invoke(partition, partition.localLogOrException(), now);
    }

    static void describe() {
        PartitionState state = partition == null ? null : partition.partitionState();
        if (state == null || partition.log().isEmpty())
            return;
        UnifiedLog log = partition.localLogOrException();
        FOUND.put("role", partition.isLeader() ? "leader" : "follower");
        FOUND.put("epochs", partition.getLeaderEpoch() + ":" + partition.getPartitionEpoch());
        FOUND.put("log", log.logStartOffset() + ":" + log.logEndOffset());
        FOUND.put("hw", Long.toString(log.highWatermark()));
        FOUND.put("history", log.leaderEpochCache().epochEntries().stream()
            .map(one -> one.epoch() + ":" + one.startOffset()).collect(Collectors.joining(",")));
        if (!partition.isLeader())
            return;
        FOUND.put("isr", joined(state.isr()));
        FOUND.put("maximal", joined(state.maximalIsr()));
        FOUND.put("inflight", Boolean.toString(state.isInflight()));
        FOUND.put("low_now", Long.toString(partition.lowWatermarkIfLeader()));
        FOUND.put("followers", CollectionConverters.asJava(partition.remoteReplicas().toList()).stream()
            .map(one -> one.brokerId() + ":" + one.stateSnapshot().logEndOffset() + ":"
                + one.stateSnapshot().logStartOffset() + ":" + one.stateSnapshot().brokerEpoch().orElse(-1L))
            .sorted().collect(Collectors.joining(",")));
    }

    static SimpleRecord[] records(int count) {
        SimpleRecord[] made = new SimpleRecord[count];
        Arrays.setAll(made, index -> new SimpleRecord(now, new byte[] {'v'}));
        return made;
    }

    static int[] ints(String list) {
        return list.equals("-") ? new int[0] : Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    static Optional<Integer> epoch(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(Integer.parseInt(word));
    }

    static String joined(Collection<Integer> ids) {
        return ids.stream().sorted().map(String::valueOf).collect(Collectors.joining(","));
    }
}
