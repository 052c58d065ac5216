import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;

import com.sun.management.OperatingSystemMXBean;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import kafka.log.LogManager;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Loads log directories with Apache Kafka's own LogManager, as a broker does when it starts.
 *
 *   load THREADS DIR        Loads all logs of DIR. Prints "LOGS MILLISECONDS CPU-MILLISECONDS", the times of this call.
 *   describe BASE DIR...    Loads each DIR. Prints a line for each log, with all that a client would find in the log.
 *                           The lookups by time begin at BASE milliseconds.
 *   old FILE BASE           Writes a segment with messages of magic 0 and 1, both uncompressed and in wrappers of every
 *                           codec that these support.
 */
public class LogJudge {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "load" -> load(Integer.parseInt(args[1]), new File(args[2]));
            case "old" -> writeOld(Path.of(args[1]), Long.parseLong(args[2]));
            default -> {
                for (int i = 2; i < args.length; i++)
                    describe(new File(args[i]), Long.parseLong(args[1]));
            }
        }
        System.exit(0);
    }

    static LogManager manager(File dir, int threads, KafkaScheduler scheduler) {
        LogConfig config = LogConfig.fromProps(Map.of("log.cleaner.enable", "false"), new Properties());
        return new LogManager(
            CollectionConverters.asScala(List.of(dir)).toSeq(), CollectionConverters.asScala(List.<File>of()).toSeq(),
            resource -> new Properties(), config, new CleanerConfig(false), threads, Long.MAX_VALUE, Long.MAX_VALUE,
            Long.MAX_VALUE, Long.MAX_VALUE, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            scheduler, new BrokerTopicStats(false), new LogDirFailureChannel(1), Time.SYSTEM, false, 30_000L,
            LogManager.$lessinit$greater$default$20());
    }

    static LogManager loaded(File dir, int threads, KafkaScheduler scheduler) {
        LogManager manager = manager(dir, threads, scheduler);
        manager.loadLogs(manager.currentDefaultConfig(), CollectionConverters.asScala(Map.<String, LogConfig>of()),
            log -> false);
        return manager;
    }

    static void load(int threads, File dir) {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        long cpu = system.getProcessCpuTime(), began = System.nanoTime();
        LogManager manager = loaded(dir, threads, scheduler);
        long took = System.nanoTime() - began;
        System.out.println(manager.allLogs().size() + " " + took / 1_000_000 + " "
            + (system.getProcessCpuTime() - cpu) / 1_000_000);
    }

    static void describe(File dir, long baseMs) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            for (UnifiedLog log : CollectionConverters.asJava(loaded(dir, 1, scheduler).allLogs()))
                System.out.println(dir + " " + describe(log, baseMs));
        } catch (Exception error) {
            System.out.println(dir + " refused " + error.getClass().getSimpleName());
        }
        scheduler.shutdown();
    }

    static String describe(UnifiedLog log, long baseMs) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        List<String> batches = new ArrayList<>();
        long offset = log.logStartOffset();
        while (offset < log.logEndOffset()) {
            FetchDataInfo found = log.read(offset, 1 << 30, FetchIsolation.LOG_END, true);
            long before = offset;
            for (RecordBatch batch : found.records.batches()) {
                batches.add(batch.magic() + ":" + batch.lastOffset() + ":" + batch.sizeInBytes());
                offset = batch.lastOffset() + 1;
            }
            if (offset == before)
                break;
        }
        TreeSet<String> aborted = new TreeSet<>();
        for (offset = log.logStartOffset(); offset < log.lastStableOffset(); ) {
            FetchDataInfo found = log.read(offset, 1 << 30, FetchIsolation.TXN_COMMITTED, true);
            found.abortedTransactions.orElse(List.of()).forEach(
                one -> aborted.add(one.producerId() + ":" + one.firstOffset()));
            long before = offset;
            for (RecordBatch batch : found.records.batches())
                offset = batch.lastOffset() + 1;
            if (offset == before)
                break;
        }
        String producers = log.activeProducers().stream()
            .map(one -> one.producerId() + ":" + one.producerEpoch() + ":" + one.lastSequence() + ":"
                + one.currentTxnStartOffset())
            .sorted().collect(Collectors.joining(","));
        String epochs = log.leaderEpochCache().epochEntries().stream()
            .map(one -> one.epoch() + ":" + one.startOffset()).collect(Collectors.joining(","));
        String segments = log.logSegments().stream().map(one -> Long.toString(one.baseOffset()))
            .collect(Collectors.joining(","));
        List<String> times = new ArrayList<>();
        for (long ago = 0; ago <= 40; ago += 5) {
            Optional<FileRecords.TimestampAndOffset> found =
                log.fetchOffsetByTimestamp(baseMs + ago, Optional.empty()).timestampAndOffsetOpt();
            times.add(found.map(one -> one.offset + "@" + one.timestamp).orElse("-"));
        }
        times.add(log.fetchOffsetByTimestamp(-3L, Optional.empty()).timestampAndOffsetOpt()
            .map(one -> one.offset + "@" + one.timestamp).orElse("-"));
        return String.join(" ", "log=" + log.topicPartition(), "start=" + log.logStartOffset(),
            "end=" + log.logEndOffset(), "stable=" + log.lastStableOffset(), "segments=" + segments,
            "epochs=" + epochs, "producers=" + producers, "aborted=" + String.join(",", aborted), "batches=" + String.join(",", batches),
            "times=" + String.join(",", times));
    }

    static void writeOld(Path path, long baseMs) throws Exception {
        try (FileRecords out = FileRecords.open(path.toFile())) {
            long offset = 0;
            for (byte magic = 0; magic < 2; magic++) {
                for (Compression codec : List.of(Compression.NONE, Compression.gzip().build(),
                        Compression.snappy().build(), Compression.lz4().build())) {
                    SimpleRecord[] records = new SimpleRecord[3];
                    for (int i = 0; i < records.length; i++) {
                        byte[] value = Utils.utf8("value " + (offset + i));
                        records[i] = new SimpleRecord(baseMs + offset + i, Utils.utf8("key"), value);
                    }
                    out.append(MemoryRecords.withRecords(magic, offset, codec, TimestampType.CREATE_TIME, records));
                    offset += records.length;
                }
            }
        }
    }
}
