import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import com.sun.management.OperatingSystemMXBean;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import kafka.log.LogManager;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Compacts the logs of log directories with Apache Kafka's own log cleaner.
 *
 *   MAP-BYTES RETENTION-MS NOW-MS,... DIR...    Compacts every log in each DIR up to its active segment, once for each
 *                                       NOW-MS. Prints "DIR NEXT-DIRTY MILLISECONDS CPU-MILLISECONDS BYTES-READ" for
 *                                       each compaction.
 */
public class CleanerJudge {
    public static void main(String[] args) throws Exception {
        int mapBytes = Integer.parseInt(args[0]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (int i = 3; i < args.length; i++)
            compact(new File(args[i]), mapBytes, args[1], args[2].split(","), scheduler);
        System.exit(0);
    }

    static void compact(File dir, int mapBytes, String retentionMs, String[] times, KafkaScheduler scheduler)
            throws Exception {
        Map<String, String> wanted = Map.of("cleanup.policy", "compact", "delete.retention.ms", retentionMs);
        LogManager manager = new LogManager(
            CollectionConverters.asScala(List.of(dir)).toSeq(), CollectionConverters.asScala(List.<File>of()).toSeq(),
            resource -> new Properties(), new LogConfig(wanted), new CleanerConfig(false), 1, Long.MAX_VALUE,
            Long.MAX_VALUE, Long.MAX_VALUE, Long.MAX_VALUE, 900_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, scheduler, new BrokerTopicStats(false),
            new LogDirFailureChannel(1), Time.SYSTEM, false, 30_000L, LogManager.$lessinit$greater$default$20());
        manager.loadLogs(manager.currentDefaultConfig(), CollectionConverters.asScala(Map.<String, LogConfig>of()),
            log -> false);
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            log.updateHighWatermark(log.logEndOffset());
            for (String now : times)
                compact(dir, log, mapBytes, Long.parseLong(now));
            log.close();
        }
    }

    static void compact(File dir, UnifiedLog log, int mapBytes, long now) throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 256 << 10, 64 << 20, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM), Time.SYSTEM, name -> { });
        long upper = log.activeSegment().baseOffset(), next = 0, before = -1, read = 0;
        long cpu = system.getProcessCpuTime(), began = System.nanoTime();
        while (next < upper && next != before) {
            before = next;
            var done = cleaner.doClean(new LogToClean(log, next, upper, false), now);
            next = done.getKey();
            read += done.getValue().bytesRead();
        }
        System.out.println(dir + " " + next + " " + (System.nanoTime() - began) / 1_000_000 + " "
            + (system.getProcessCpuTime() - cpu) / 1_000_000 + " " + read);
    }
}
