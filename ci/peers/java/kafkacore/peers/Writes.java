package kafkacore.peers;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

/**
 * A tool for {@link Runner} that writes to a cluster before another broker takes over its directory.
 *
 * <p>{@code create BOOTSTRAP} creates the topics. {@code turn BOOTSTRAP NUMBER} writes to each topic with every codec, with
 * keys whose values keep changing, and a thousand batches from a new idempotent producer. {@code transactions BOOTSTRAP
 * NUMBER} commits some transactions, aborts some, and leaves three open. {@code end BOOTSTRAP} ends these three: their own
 * producers, which this process has kept, commit the first and abort the second. A new producer with the third's
 * transactional.id ends the third. {@code lag BOOTSTRAP MS} sets the age from which the log cleaner may compact records.
 * {@code forget} drops the producers without sending anything.
 */
public final class Writes {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final int PARTITIONS = 2;
    private static final int BATCHES = 1000;
    private static final int RECORDS = 14;
    /** A batch.size of 0 puts each record into a batch of its own. */
    private static final int ALONE_BYTES = 64;
    private static final int KEYS = 8;
    private static final int ROUNDS = 3;
    private static final long TIME = 1_700_000_000_000L;
    private static final long TURN_MS = 1_000_000;
    /** This is more than segment.ms, so records that are this far apart are in different segments. */
    private static final long ROUND_MS = 10_000;
    private static final String TEN_YEARS_MS = Long.toString(10L * 365 * 24 * 3600 * 1000);
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();

    private Writes() {
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String... more) {
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", "20"));
        for (int at = 0; at < more.length; at += 2)
            properties.put(more[at], more[at + 1]);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaProducer<byte[], byte[]> transactional(String bootstrap, String id, String codec) {
        KafkaProducer<byte[], byte[]> made = producer(bootstrap, "transactional.id", id, "compression.type", codec,
            "transaction.timeout.ms", "900000");
        made.initTransactions();
        return made;
    }

    private static void create(Admin admin) throws Exception {
        Map<String, String> forever = Map.of("retention.ms", "-1");
        Map<String, String> stamped = Map.of("retention.ms", "-1", "message.timestamp.type", "LogAppendTime");
        Map<String, String> compacted = Map.of("cleanup.policy", "compact", "segment.ms", "100",
            "min.cleanable.dirty.ratio", "0.01", "min.compaction.lag.ms", TEN_YEARS_MS);
        List<NewTopic> topics = List.of(
            new NewTopic("codecs", PARTITIONS, (short) 1).configs(forever),
            new NewTopic("stamped", 1, (short) 1).configs(stamped),
            new NewTopic("transactions", PARTITIONS, (short) 1).configs(forever),
            new NewTopic("compacted", PARTITIONS, (short) 1).configs(compacted),
            new NewTopic("ids", 1, (short) 1).configs(forever));
        admin.createTopics(topics).all().get();
    }

    private static void lag(Admin admin, String lagMs) throws Exception {
        ConfigEntry entry = new ConfigEntry("min.compaction.lag.ms", lagMs.equals("-") ? TEN_YEARS_MS : lagMs);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "compacted");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
    }

    /** Returns records whose keys, values and headers are present, empty or null, with timestamps that go back and forth. */
    private static List<ProducerRecord<byte[], byte[]>> variety(String topic, int partition, String name, long time) {
        List<ProducerRecord<byte[], byte[]>> made = new ArrayList<>();
        for (int at = 0; at < RECORDS; at++) {
            byte[] key = at % 3 == 0 ? null : bytes(at % 3 == 1 ? "" : name + "é" + at);
            byte[] value = at % 7 == 6 ? null : bytes((name + at).repeat(at * at));
            ProducerRecord<byte[], byte[]> one =
                new ProducerRecord<>(topic, partition, time + (at % 2 == 0 ? at : -at), key, value);
            for (int header = 0; header < at % 4; header++)
                one.headers().add("h" + header % 2, header == 1 ? null : bytes(name));
            made.add(one);
        }
        return made;
    }

    private static List<ProducerRecord<byte[], byte[]>> changes(int partition, String name, long time, int gone) {
        List<ProducerRecord<byte[], byte[]>> made = new ArrayList<>();
        for (int key = 0; key < KEYS; key++)
            made.add(new ProducerRecord<>("compacted", partition, time, bytes("k" + key),
                key == gone ? null : bytes(name + key)));
        return made;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records)
            sent.add(producer.send(record));
        producer.flush();
        for (Future<RecordMetadata> one : sent)
            one.get();
    }

    private static void turn(String bootstrap, int number) throws Exception {
        long time = TIME + number * TURN_MS;
        for (int at = 0; at < CODECS.size(); at++) {
            String codec = CODECS.get(at);
            String name = number + codec;
            try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, "compression.type", codec)) {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    send(producer, variety("codecs", partition, name, time));
                    // These records come after the open transactions.
                    send(producer, variety("transactions", partition, name, time));
                    if (at < ROUNDS)
                        send(producer, changes(partition, name, time + at * ROUND_MS, number + at));
                }
                send(producer, variety("stamped", 0, name, time));
            }
        }
        List<ProducerRecord<byte[], byte[]>> many = new ArrayList<>();
        for (int at = 0; at < BATCHES; at++)
            many.add(new ProducerRecord<>("ids", 0, time + at, null, bytes("v".repeat(ALONE_BYTES) + number + "/" + at)));
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, "batch.size", "0", "linger.ms", "0")) {
            send(producer, many);
        }
    }

    private static void transactions(String bootstrap, int number) throws Exception {
        long time = TIME + number * TURN_MS - ROUNDS * ROUND_MS;
        for (boolean committed : new boolean[] {true, false}) {
            String id = committed ? "committed" : "aborted";
            try (KafkaProducer<byte[], byte[]> producer = transactional(bootstrap, id, committed ? "lz4" : "snappy")) {
                for (int round = 0; round < ROUNDS; round++) {
                    producer.beginTransaction();
                    send(producer, variety("transactions", round % PARTITIONS, number + id, time));
                    send(producer, changes(1, number + id + round, time + round * ROUND_MS, round));
                    if (committed)
                        producer.commitTransaction();
                    else
                        producer.abortTransaction();
                }
            }
        }
        for (String id : List.of("commit", "left", "abort")) {
            KafkaProducer<byte[], byte[]> producer = transactional(bootstrap, id, "zstd");
            producer.beginTransaction();
            for (int partition = 0; partition < PARTITIONS; partition++)
                send(producer, variety("transactions", partition, number + id, time));
            if (id.equals("left"))
                producer.close(Duration.ZERO);  // this does not end the transaction
            else
                OPEN.put(id, producer);
        }
    }

    private static void end(String bootstrap) {
        OPEN.get("commit").commitTransaction();
        OPEN.get("abort").abortTransaction();
        transactional(bootstrap, "left", "none").close();
        forget();
    }

    private static void forget() {
        OPEN.values().forEach(producer -> producer.close(Duration.ZERO));
        OPEN.clear();
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "turn" -> turn(args[1], Integer.parseInt(args[2]));
            case "transactions" -> transactions(args[1], Integer.parseInt(args[2]));
            case "end" -> end(args[1]);
            case "forget" -> forget();
            case "create", "lag" -> {
                try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[1]))) {
                    if (args[0].equals("create"))
                        create(admin);
                    else
                        lag(admin, args[2]);
                }
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }
}
