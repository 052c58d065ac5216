package kafkacore.peers;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.TimeoutException;

/**
 * A tool for {@link Runner} that counts values with Kafka Streams: {@code FROM TO COUNT [key=value ...]}.
 *
 * <p>The values go from topic FROM through a repartition topic into a store in memory, whose changelog is a compacted
 * topic. The counts go to topic TO. When their sum is COUNT, the program prints the counts and ends.
 */
public final class WordCount {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final String STORE = "counts";

    private WordCount() {
    }

    private static KafkaStreams counting(String from, String to, Properties properties) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(from)
            .map((key, value) -> KeyValue.pair(value, value))
            .groupByKey()
            .count(Materialized.as(Stores.inMemoryKeyValueStore(STORE)))
            .toStream()
            .to(to, Produced.with(Serdes.String(), Serdes.Long()));
        return new KafkaStreams(builder.build(), properties);
    }

    private static Map<String, Long> counts(KafkaStreams streams) {
        ReadOnlyKeyValueStore<String, Long> store =
            streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        Map<String, Long> counts = new TreeMap<>();
        try (KeyValueIterator<String, Long> all = store.all()) {
            all.forEachRemaining(each -> counts.put(each.key, each.value));
        }
        return counts;
    }

    private static long sum(Map<String, Long> counts) {
        return counts.values().stream().mapToLong(Long::longValue).sum();
    }

    private static Map<String, Long> await(KafkaStreams streams, long count) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < deadline) {
            if (streams.state() == KafkaStreams.State.RUNNING) {
                Map<String, Long> counts = counts(streams);
                if (sum(counts) >= count)
                    return counts;
            }
            Thread.sleep(50);
        }
        throw new TimeoutException("still " + streams.state());
    }

    public static void main(String[] args) throws Exception {
        Properties properties = JavaClient.properties(args);
        properties.put("default.key.serde", Serdes.StringSerde.class);
        properties.put("default.value.serde", Serdes.StringSerde.class);
        try (KafkaStreams streams = counting(args[0], args[1], properties)) {
            streams.start();
            System.out.println(await(streams, Long.parseLong(args[2])));
            streams.close(PATIENCE);
        }
    }
}
