package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Kafkacore.class)
class OrdersTest {
    @Test
    void ordersAreReadByAGroup(Kafkacore.Broker kafka) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", kafka.bootstrap()))) {
            admin.createTopics(List.of(new NewTopic("orders", 3, (short) 1))).all().get();
        }
        Map<String, Object> sends = Map.of("bootstrap.servers", kafka.bootstrap());
        try (var producer = new KafkaProducer<>(sends, new StringSerializer(), new StringSerializer())) {
            for (String item : List.of("tea", "milk", "sugar")) {
                producer.send(new ProducerRecord<>("orders", item, "one " + item)).get();
            }
        }
        Map<String, Object> reads = Map.of(
                "bootstrap.servers", kafka.bootstrap(), "group.id", "orders", "auto.offset.reset", "earliest");
        List<String> read = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            long until = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (read.size() < 3 && System.nanoTime() < until) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    read.add(each.value());
                }
            }
            consumer.commitSync();
        }
        read.sort(null);
        assertEquals(List.of("one milk", "one sugar", "one tea"), read);
    }
}
