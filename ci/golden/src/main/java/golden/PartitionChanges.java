package golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.IntPredicate;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Writes how the controller of the Kafka on the class path (4.x) changes random partitions when their ISR, their replicas
 * or the live brokers change: each case, its record, and the partition after it.
 *
 * Arguments: the output file.
 */
public final class PartitionChanges {
    private static final int CASES = 6000;
    private static final int BROKERS = 5;
    private static final Uuid TOPIC = new Uuid(1, 1);
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Random RANDOM = new Random(20966);

    private PartitionChanges() {
    }

    public static void main(String[] args) throws Exception {
        ArrayNode out = MAPPER.createArrayNode();
        for (int index = 0; index < CASES; index++) {
            one(out.addObject());
        }
        MAPPER.writeValue(new File(args[0]), out);
    }

    private static Uuid directory(int broker) {
        return new Uuid(7, broker);
    }

    private static List<Integer> some(List<Integer> from) {
        List<Integer> chosen = new ArrayList<>(from);
        Collections.shuffle(chosen, RANDOM);
        return chosen.isEmpty() ? chosen : new ArrayList<>(chosen.subList(0, RANDOM.nextInt(chosen.size() + 1)));
    }

    private static int[] array(List<Integer> values) {
        return values.stream().mapToInt(Integer::intValue).toArray();
    }

    private static void put(ObjectNode node, String name, List<Integer> values) {
        ArrayNode made = node.putArray(name);
        values.forEach(made::add);
    }

    private static void put(ObjectNode node, String name, int[] values) {
        ArrayNode made = node.putArray(name);
        for (int value : values) {
            made.add(value);
        }
    }

    private static void one(ObjectNode out) throws Exception {
        List<Integer> all = new ArrayList<>();
        for (int broker = 1; broker <= BROKERS; broker++) {
            all.add(broker);
        }
        Collections.shuffle(all, RANDOM);
        List<Integer> replicas = new ArrayList<>(all.subList(0, 1 + RANDOM.nextInt(4)));
        List<Integer> isr = some(replicas);
        List<Integer> rest = new ArrayList<>(replicas);
        rest.removeAll(isr);
        List<Integer> elr = RANDOM.nextBoolean() ? some(rest) : List.of();
        List<Integer> last = RANDOM.nextInt(3) == 0 ? new ArrayList<>(replicas.subList(0, 1 + RANDOM.nextInt(2) % replicas.size())) : List.of();
        int leader = isr.isEmpty() || RANDOM.nextInt(4) == 0 ? -1 : isr.get(RANDOM.nextInt(isr.size()));
        boolean reassigned = RANDOM.nextInt(4) == 0;
        List<Integer> adding = reassigned ? some(replicas) : List.of();
        List<Integer> removing = new ArrayList<>(reassigned ? some(replicas) : List.of());
        removing.removeAll(adding);
        LeaderRecoveryState recovery = RANDOM.nextInt(4) == 0 ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED;
        PartitionRegistration before = new PartitionRegistration.Builder()
            .setReplicas(array(replicas)).setDirectories(replicas.stream().map(PartitionChanges::directory).toArray(Uuid[]::new))
            .setIsr(array(isr)).setElr(array(elr)).setLastKnownElr(array(last)).setLeader(leader)
            .setAddingReplicas(array(adding)).setRemovingReplicas(array(removing)).setLeaderRecoveryState(recovery)
            .setLeaderEpoch(5).setPartitionEpoch(9).build();
        ask(out, before, replicas, all);
    }

    private static void ask(ObjectNode out, PartitionRegistration before, List<Integer> replicas, List<Integer> all)
        throws Exception {
        tell(out.putObject("before"), before);
        Set<Integer> alive = new TreeSet<>(some(all));
        int minIsr = 1 + RANDOM.nextInt(3);
        boolean elrEnabled = RANDOM.nextInt(4) != 0;
        PartitionChangeBuilder.Election election =
            PartitionChangeBuilder.Election.values()[RANDOM.nextInt(3)];
        PartitionChangeBuilder builder = make(before, alive::contains, minIsr, elrEnabled)
            .setElection(election).setDefaultDirProvider(PartitionChanges::directory);
        ObjectNode asked = out.putObject("asked").put("min_isr", minIsr).put("elr", elrEnabled)
            .put("election", election.name());
        put(asked, "alive", new ArrayList<>(alive));
        if (RANDOM.nextBoolean()) {
            List<Integer> isr = some(replicas);
            builder.setTargetIsr(isr);
            put(asked, "isr", isr);
        }
        if (RANDOM.nextInt(4) == 0) {
            List<Integer> moved = new ArrayList<>(all);
            Collections.shuffle(moved, RANDOM);
            moved = new ArrayList<>(moved.subList(0, 1 + RANDOM.nextInt(4)));
            builder.setTargetReplicas(moved);
            put(asked, "replicas", moved);
        }
        if (RANDOM.nextInt(4) == 0) {
            List<Integer> unclean = some(replicas);
            builder.setUncleanShutdownReplicas(unclean);
            put(asked, "unclean_shutdown", unclean);
        }
        if (RANDOM.nextInt(6) == 0) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.RECOVERED);
            asked.put("recovery_state", 0);
        }
        Optional<ApiMessageAndVersion> record = builder.build();
        if (record.isPresent()) {
            PartitionChangeRecord change = (PartitionChangeRecord) record.get().message();
            tell(out.putObject("record"), change);
            tell(out.putObject("after"), before.merge(change));
        }
    }

    /** By reflection, because the releases have different constructors and must all compile this. */
    private static PartitionChangeBuilder make(
        PartitionRegistration before, IntPredicate mayLead, int minIsr, boolean elrEnabled
    ) throws Exception {
        return (PartitionChangeBuilder) PartitionChangeBuilder.class.getConstructors()[0]
            .newInstance(before, TOPIC, 0, mayLead, MetadataVersion.latestProduction(), minIsr, elrEnabled);
    }

    private static void tell(ObjectNode out, PartitionRegistration partition) {
        put(out, "replicas", partition.replicas);
        put(out, "isr", partition.isr);
        put(out, "removing", partition.removingReplicas);
        put(out, "adding", partition.addingReplicas);
        put(out, "elr", partition.elr);
        put(out, "last_known_elr", partition.lastKnownElr);
        out.put("leader", partition.leader).put("recovery_state", partition.leaderRecoveryState.value())
            .put("leader_epoch", partition.leaderEpoch).put("partition_epoch", partition.partitionEpoch);
        ArrayNode directories = out.putArray("directories");
        for (Uuid directory : partition.directories) {
            directories.add(directory.getLeastSignificantBits());
        }
    }

    private static void tell(ObjectNode out, PartitionChangeRecord record) {
        out.put("leader", record.leader()).put("leader_recovery_state", record.leaderRecoveryState());
        tell(out, "isr", record.isr());
        tell(out, "replicas", record.replicas());
        tell(out, "removing_replicas", record.removingReplicas());
        tell(out, "adding_replicas", record.addingReplicas());
        tell(out, "eligible_leader_replicas", record.eligibleLeaderReplicas());
        tell(out, "last_known_elr", record.lastKnownElr());
    }

    private static void tell(ObjectNode out, String name, List<Integer> values) {
        if (values == null) {
            out.putNull(name);
        } else {
            put(out, name, values);
        }
    }
}
