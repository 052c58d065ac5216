package kafkacore.peers;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.function.Predicate;

/**
 * A tool for {@link Runner} that uses the Java producer and the Java consumer.
 *
 * <p>{@code produce TOPIC COUNT SIZE [key=value ...]} prints the acknowledged offsets. {@code consume TOPIC COUNT
 * [key=value ...]} prints one line for each record of partition 0: the offset, the timestamp, the key, the size of the
 * value, and the headers. {@code group TOPIC PARTITIONS [key=value ...]} makes two members share the partitions, closes
 * one member, commits the end offsets, and prints the assignments.
 */
public final class JavaClient {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private JavaClient() {
    }

    /** Returns the arguments after the first three as settings. */
    static Properties properties(String[] args) {
        Properties properties = new Properties();
        for (int at = 3; at < args.length; at++) {
            int split = args[at].indexOf('=');
            if (split > 0)
                properties.put(args[at].substring(0, split), args[at].substring(split + 1));
        }
        return properties;
    }

    private static void produce(String topic, int count, int size, Properties properties) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                byte[] value = i % 10 == 9 ? null : "v".repeat(size).getBytes(StandardCharsets.UTF_8);
                ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, ("k" + i).getBytes(StandardCharsets.UTF_8), value);
                record.headers().add("n", Integer.toString(i).getBytes(StandardCharsets.UTF_8)).add("none", null);
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> one : sent)
                System.out.println(one.get().offset());
        }
    }

    private static void consume(String topic, int count, Properties properties) {
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            for (int seen = 0; seen < count && System.nanoTime() < deadline; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(line(record));
                    seen++;
                }
            }
        }
    }

    private static void group(String topic, int partitions, Properties properties) {
        List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();
        try {
            for (int i = 0; i < 2; i++) {
                members.add(new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
                members.get(i).subscribe(List.of(topic));
            }
            pollUntil(members, member -> member.assignment().size() == partitions / 2);
            members.forEach(JavaClient::printAssignment);
            members.remove(0).close();
            pollUntil(members, member -> member.assignment().size() == partitions);
            members.forEach(JavaClient::printAssignment);
            KafkaConsumer<byte[], byte[]> last = members.get(0);
            last.seekToEnd(last.assignment());
            last.assignment().forEach(last::position);
            // Without this call, the call after the commit could return the answer to a request that poll() has already sent.
            last.committed(last.assignment());
            last.commitSync();
            last.committed(last.assignment()).entrySet().stream()
                .sorted(Comparator.comparingInt(entry -> entry.getKey().partition()))
                .forEach(entry -> System.out.println(entry.getKey().partition() + " at " + entry.getValue().offset()));
        } finally {
            members.forEach(KafkaConsumer::close);
        }
    }

    private static void pollUntil(
        List<KafkaConsumer<byte[], byte[]>> members, Predicate<KafkaConsumer<byte[], byte[]>> reached
    ) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!members.stream().allMatch(reached)) {
            if (System.nanoTime() > deadline)
                throw new IllegalStateException("the members did not get their partitions");
            members.forEach(member -> member.poll(Duration.ofMillis(20)));
        }
    }

    private static void printAssignment(KafkaConsumer<byte[], byte[]> member) {
        System.out.println(member.assignment().stream().map(TopicPartition::partition).sorted().toList());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(header.key()).append('=').append(text(header.value())).append(',');
        }
        return record.offset() + "\t" + record.timestamp() + "\t" + text(record.key()) + "\t"
            + (record.value() == null ? -1 : record.value().length) + "\t" + headers;
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> produce(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]), properties(args));
            case "consume" -> consume(args[1], Integer.parseInt(args[2]), properties(args));
            case "group" -> group(args[1], Integer.parseInt(args[2]), properties(args));
            default -> throw new IllegalArgumentException("produce, consume or group, not " + args[0]);
        }
    }
}
