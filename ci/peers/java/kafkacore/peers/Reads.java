package kafkacore.peers;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A tool for {@link Runner} that prints everything that clients can read about topics. {@code BOOTSTRAP TOPIC ...} prints
 * one JSON object: {"topics": {name: {"id", "configs"}}, isolation level: {partition: {"first", "end", "position",
 * "records"}}}.
 *
 * <p>A record is one line: offset, leader epoch, timestamp and its type, key, value, headers.
 */
public final class Reads {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private Reads() {
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : HexFormat.of().formatHex(bytes);
    }

    /** Prints a long value as its size and its hash, so that the output of a failed test stays readable. */
    private static String value(byte[] bytes) {
        return bytes == null || bytes.length < 64 ? hex(bytes) : bytes.length + "#" + Arrays.hashCode(bytes);
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers())
            headers.append(header.key()).append('=').append(hex(header.value())).append(',');
        return String.join(" ", Long.toString(record.offset()), record.leaderEpoch().map(Object::toString).orElse("-"),
            Long.toString(record.timestamp()), record.timestampType().name, hex(record.key()), value(record.value()),
            headers);
    }

    private static ObjectNode records(String bootstrap, String isolation, List<TopicPartition> partitions) {
        Map<TopicPartition, List<String>> found = new TreeMap<>((one, other) -> one.toString().compareTo(other.toString()));
        partitions.forEach(partition -> found.put(partition, new ArrayList<>()));
        ObjectNode told = JSON.createObjectNode();
        Map<String, Object> properties = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation,
            "auto.offset.reset", "none", "fetch.max.wait.ms", "10");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> first = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            first.forEach(consumer::seek);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (System.nanoTime() < deadline
                    && partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one)))
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)))
                    found.get(new TopicPartition(record.topic(), record.partition())).add(line(record));
            found.forEach((partition, lines) -> {
                ObjectNode one = told.putObject(partition.toString());
                one.put("first", first.get(partition)).put("end", ends.get(partition));
                one.put("position", consumer.position(partition));
                one.set("records", JSON.valueToTree(lines));
            });
        }
        return told;
    }

    private static ObjectNode topics(Admin admin, Map<String, TopicDescription> described) throws Exception {
        ObjectNode told = JSON.createObjectNode();
        for (TopicDescription topic : described.values()) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic.name());
            Map<String, String> configs = new TreeMap<>();
            for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries())
                if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                    configs.put(entry.name(), entry.value());
            ObjectNode one = told.putObject(topic.name());
            one.put("id", topic.topicId().toString());
            one.set("configs", JSON.valueToTree(configs));
        }
        return told;
    }

    public static void main(String[] args) throws Exception {
        ObjectNode told = JSON.createObjectNode();
        List<TopicPartition> partitions = new ArrayList<>();
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            Map<String, TopicDescription> described = new TreeMap<>(
                admin.describeTopics(Arrays.asList(args).subList(1, args.length)).allTopicNames().get());
            for (TopicDescription topic : described.values())
                for (TopicPartitionInfo partition : topic.partitions())
                    partitions.add(new TopicPartition(topic.name(), partition.partition()));
            told.set("topics", topics(admin, described));
        }
        for (String isolation : List.of("read_uncommitted", "read_committed"))
            told.set(isolation, records(args[0], isolation, partitions));
        System.out.println(JSON.writeValueAsString(told));
    }
}
