package kafkacore.peers;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A tool for {@link Runner} that shows and changes a broker's log directories with the Java admin client.
 *
 * <p>{@code describe BOOTSTRAP BROKER} prints one line for each replica: its directory, its partition, its size, its lag,
 * and whether it is a future replica. It also prints one line for each directory: its path, {@code -}, whether its size
 * is known, and its error. {@code alter BOOTSTRAP BROKER TOPIC PARTITION DIRECTORY} moves a replica.
 */
public final class LogDirs {
    private LogDirs() {
    }

    private static void describe(Admin admin, int broker) throws Exception {
        Map<String, LogDirDescription> found =
            new TreeMap<>(admin.describeLogDirs(List.of(broker)).descriptions().get(broker).get());
        for (Map.Entry<String, LogDirDescription> directory : found.entrySet()) {
            LogDirDescription told = directory.getValue();
            boolean sized = told.totalBytes().isPresent() && told.usableBytes().isPresent();
            String error = told.error() == null ? "none" : told.error().getClass().getSimpleName();
            System.out.println(directory.getKey() + "\t-\t" + sized + "\t" + error);
            Map<String, ReplicaInfo> replicas = new TreeMap<>();
            for (Map.Entry<TopicPartition, ReplicaInfo> replica : told.replicaInfos().entrySet())
                replicas.put(replica.getKey().toString(), replica.getValue());
            for (Map.Entry<String, ReplicaInfo> replica : replicas.entrySet()) {
                ReplicaInfo info = replica.getValue();
                System.out.println(directory.getKey() + "\t" + replica.getKey() + "\t" + info.size() + "\t"
                    + info.offsetLag() + "\t" + info.isFuture());
            }
        }
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[1]))) {
            int broker = Integer.parseInt(args[2]);
            switch (args[0]) {
                case "describe" -> describe(admin, broker);
                case "alter" -> {
                    TopicPartitionReplica replica =
                        new TopicPartitionReplica(args[3], Integer.parseInt(args[4]), broker);
                    admin.alterReplicaLogDirs(Map.of(replica, args[5])).all().get();
                }
                default -> throw new IllegalArgumentException("describe or alter, not " + args[0]);
            }
        }
    }
}
