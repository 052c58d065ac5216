package golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.AccessControlEntryRecord;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.FenceBrokerRecord;
import org.apache.kafka.common.metadata.NoOpRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RegisterControllerRecord;
import org.apache.kafka.common.metadata.RemoveAccessControlEntryRecord;
import org.apache.kafka.common.metadata.RemoveDelegationTokenRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.RemoveUserScramCredentialRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnfenceBrokerRecord;
import org.apache.kafka.common.metadata.UnregisterBrokerRecord;
import org.apache.kafka.common.metadata.UserScramCredentialRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Writes random histories of metadata records, framed as in the log, each with the snapshot that the Kafka on the class
 * path (4.3) writes of the resulting image.
 *
 * Arguments: the output file.
 */
public final class Images {
    private static final int HISTORIES = 300;
    private static final int RECORDS = 80;
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Random RANDOM = new Random(630);
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    private final MetadataVersion level;
    private final List<ApiMessageAndVersion> records = new ArrayList<>();
    private final Map<Integer, Long> brokers = new HashMap<>();
    private final Map<String, Uuid> topics = new HashMap<>();
    private final Map<String, List<Integer>> replication = new HashMap<>();
    private final Map<String, Integer> partitions = new HashMap<>();
    private final List<Uuid> acls = new ArrayList<>();
    private final List<String> users = new ArrayList<>();
    private final List<String> tokens = new ArrayList<>();
    private long counter;

    private Images(MetadataVersion level) {
        this.level = level;
    }

    public static void main(String[] args) throws Exception {
        ArrayNode out = MAPPER.createArrayNode();
        for (int index = 0; index < HISTORIES; index++) {
            new Images(index % 3 == 0 ? MetadataVersion.IBP_3_9_IV0 : MetadataVersion.IBP_4_3_IV0).tell(out.addObject());
        }
        MAPPER.writeValue(new File(args[0]), out);
    }

    private void tell(ObjectNode out) {
        add(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME).setFeatureLevel(level.featureLevel()));
        while (records.size() < RECORDS) {
            next(RANDOM.nextInt(24));
        }
        MetadataImage image = MetadataImage.EMPTY;
        ArrayNode told = out.putArray("records");
        for (ApiMessageAndVersion record : records) {
            told.add(hex(record));
            // One at a time: within one delta, removing the only user of a mechanism also loses the users added after it.
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            delta.replay(record.message());
            image = delta.apply(new MetadataProvenance(told.size() - 1, 1, 0, true));
        }
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).build());
        ArrayNode snapshot = out.putArray("snapshot");
        writer.records().forEach(each -> snapshot.add(hex(each)));
    }

    private static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(SERDE.recordSize(record, cache));
        SERDE.write(record, cache, new ByteBufferAccessor(buffer));
        StringBuilder made = new StringBuilder();
        for (byte each : buffer.array()) {
            made.append(String.format("%02x", each));
        }
        return made.toString();
    }

    private void add(ApiMessage record) {
        short version = 0;
        if (record instanceof PartitionRecord) {
            version = level.partitionRecordVersion();
        } else if (record instanceof PartitionChangeRecord) {
            version = level.partitionChangeRecordVersion();
        } else if (record instanceof RegisterBrokerRecord) {
            version = level.registerBrokerRecordVersion();
        } else if (record instanceof BrokerRegistrationChangeRecord) {
            version = (short) (newest() ? 3 : 2);
        }
        records.add(new ApiMessageAndVersion(record, version));
    }

    private boolean newest() {
        return level == MetadataVersion.IBP_4_3_IV0;
    }

    private static Uuid uuid() {
        return new Uuid(RANDOM.nextLong(), RANDOM.nextLong());
    }

    private static byte[] bytes(int count) {
        byte[] made = new byte[count];
        RANDOM.nextBytes(made);
        return made;
    }

    private static <T> T one(List<T> from) {
        return from.get(RANDOM.nextInt(from.size()));
    }

    private static <T extends Comparable<T>> T one(Map<T, ?> from) {
        List<T> keys = new ArrayList<>(from.keySet());
        Collections.sort(keys);
        return one(keys);
    }

    private static List<Integer> some(List<Integer> from) {
        List<Integer> chosen = new ArrayList<>(from);
        Collections.shuffle(chosen, RANDOM);
        return new ArrayList<>(chosen.subList(0, RANDOM.nextInt(chosen.size() + 1)));
    }

    private void next(int kind) {
        switch (kind) {
            case 0, 1 -> feature();
            case 2 -> register();
            case 3, 4, 5 -> changeBroker();
            case 6 -> controller();
            case 7, 8 -> topic();
            case 9, 10, 11 -> changePartition();
            case 12 -> removeTopic();
            case 13 -> clearElr();
            case 14, 15, 16 -> config();
            case 17, 18 -> quota();
            case 19 -> add(new ProducerIdsRecord().setBrokerId(1).setBrokerEpoch(2).setNextProducerId(++counter * 1000));
            case 20 -> acl();
            case 21 -> user();
            case 22 -> token();
            default -> add(new NoOpRecord());
        }
    }

    private void feature() {
        String name = one(List.of("share.version", "group.version", "kraft.version",
            newest() ? "eligible.leader.replicas.version" : "transaction.version"));
        add(new FeatureLevelRecord().setName(name).setFeatureLevel((short) RANDOM.nextInt(2)));
    }

    private void register() {
        int id = 1 + RANDOM.nextInt(3);
        RegisterBrokerRecord record = new RegisterBrokerRecord().setBrokerId(id).setIncarnationId(uuid())
            .setBrokerEpoch(++counter).setFenced(RANDOM.nextBoolean()).setInControlledShutdown(RANDOM.nextBoolean())
            .setRack(RANDOM.nextBoolean() ? "r" + id : null).setLogDirs(List.of(uuid(), uuid()));
        record.endPoints().add(new RegisterBrokerRecord.BrokerEndpoint().setName("PLAINTEXT").setHost("h").setPort(9092));
        record.features().add(new RegisterBrokerRecord.BrokerFeature().setName(MetadataVersion.FEATURE_NAME)
            .setMinSupportedVersion((short) 7).setMaxSupportedVersion((short) 30));
        if (newest() && RANDOM.nextBoolean()) {
            record.setCordonedLogDirs(List.of(uuid()));
        }
        brokers.put(id, counter);
        add(record);
    }

    private void changeBroker() {
        if (brokers.isEmpty()) {
            return;
        }
        int id = one(brokers);
        long epoch = brokers.get(id);
        switch (RANDOM.nextInt(6)) {
            case 0 -> add(new FenceBrokerRecord().setId(id).setEpoch(epoch));
            case 1 -> add(new UnfenceBrokerRecord().setId(id).setEpoch(epoch));
            case 2 -> {
                brokers.remove(id);
                add(new UnregisterBrokerRecord().setBrokerId(id).setBrokerEpoch(epoch));
            }
            default -> {
                BrokerRegistrationChangeRecord record = new BrokerRegistrationChangeRecord().setBrokerId(id)
                    .setBrokerEpoch(epoch).setFenced((byte) (RANDOM.nextInt(3) - 1))
                    .setInControlledShutdown((byte) RANDOM.nextInt(2));
                if (RANDOM.nextBoolean()) {
                    record.setLogDirs(List.of(uuid()));
                }
                if (newest() && RANDOM.nextBoolean()) {
                    record.setCordonedLogDirs(RANDOM.nextBoolean() ? List.of() : List.of(uuid()));
                }
                add(record);
            }
        }
    }

    private void controller() {
        RegisterControllerRecord record = new RegisterControllerRecord().setControllerId(RANDOM.nextInt(3))
            .setIncarnationId(uuid()).setZkMigrationReady(RANDOM.nextBoolean());
        record.endPoints().add(new RegisterControllerRecord.ControllerEndpoint().setName("C").setHost("h").setPort(9093));
        record.features().add(new RegisterControllerRecord.ControllerFeature().setName("kraft.version")
            .setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) 1));
        add(record);
    }

    private static List<Uuid> directories(int count) {
        List<Uuid> made = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            made.add(uuid());
        }
        return made;
    }

    private void topic() {
        String name = one(List.of("a", "b", "a.b", "a_b", "c", "d"));
        if (topics.containsKey(name)) {
            partition(name);
            return;
        }
        topics.put(name, uuid());
        partitions.put(name, 0);
        List<Integer> replicas = new ArrayList<>(List.of(1, 2, 3, 4));
        Collections.shuffle(replicas, RANDOM);
        replication.put(name, new ArrayList<>(replicas.subList(0, 1 + RANDOM.nextInt(4))));
        add(new TopicRecord().setName(name).setTopicId(topics.get(name)));
        partition(name);
    }

    private void partition(String name) {
        List<Integer> replicas = replication.get(name);
        int index = partitions.merge(name, 1, Integer::sum) - 1;
        add(new PartitionRecord().setTopicId(topics.get(name)).setPartitionId(index).setReplicas(replicas)
            .setDirectories(directories(replicas.size())).setIsr(replicas).setLeader(replicas.get(0))
            .setLeaderEpoch(RANDOM.nextInt(5)).setPartitionEpoch(RANDOM.nextInt(5)));
    }

    private void changePartition() {
        if (topics.isEmpty()) {
            return;
        }
        String name = one(topics);
        List<Integer> replicas = replication.get(name);
        PartitionChangeRecord record = new PartitionChangeRecord().setTopicId(topics.get(name))
            .setPartitionId(RANDOM.nextInt(partitions.get(name)));
        if (RANDOM.nextBoolean()) {
            record.setIsr(some(replicas));
        }
        if (RANDOM.nextBoolean()) {
            record.setLeader(RANDOM.nextInt(5) - 1);
        }
        if (RANDOM.nextInt(4) == 0) {
            List<Integer> moved = new ArrayList<>(replicas);
            Collections.shuffle(moved, RANDOM);
            record.setReplicas(moved).setDirectories(directories(moved.size()));
            record.setAddingReplicas(some(moved)).setRemovingReplicas(some(moved));
        }
        if (RANDOM.nextInt(4) == 0) {
            record.setLeaderRecoveryState((byte) RANDOM.nextInt(2));
        }
        if (newest() && RANDOM.nextBoolean()) {
            record.setEligibleLeaderReplicas(some(replicas)).setLastKnownElr(some(replicas));
        }
        add(record);
    }

    private void removeTopic() {
        if (!topics.isEmpty()) {
            String name = one(topics);
            add(new RemoveTopicRecord().setTopicId(topics.remove(name)));
        }
    }

    private void clearElr() {
        if (newest() && !topics.isEmpty()) {
            add(new ClearElrRecord().setTopicName(RANDOM.nextBoolean() ? one(topics) : ""));
        }
    }

    private void config() {
        byte[] types = {2, 4, 4, 16, 32};
        int at = RANDOM.nextInt(types.length);
        if (types[at] == 2 && topics.isEmpty()) {
            return;
        }
        String resource = types[at] == 2 ? one(topics) : at == 1 ? "" : String.valueOf(RANDOM.nextInt(2));
        add(new ConfigRecord().setResourceType(types[at]).setResourceName(resource).setName("k" + RANDOM.nextInt(3))
            .setValue(RANDOM.nextInt(3) == 0 ? null : "v" + RANDOM.nextInt(100)));
    }

    private void quota() {
        List<ClientQuotaRecord.EntityData> entity = new ArrayList<>();
        if (RANDOM.nextBoolean()) {
            entity.add(new ClientQuotaRecord.EntityData().setEntityType("client-id").setEntityName(one(List.of("x", "y"))));
        }
        if (entity.isEmpty() || RANDOM.nextBoolean()) {
            entity.add(new ClientQuotaRecord.EntityData().setEntityType("user")
                .setEntityName(RANDOM.nextBoolean() ? null : ""));
        }
        add(new ClientQuotaRecord().setEntity(entity).setKey(one(List.of("p", "q")))
            .setValue(RANDOM.nextInt(100)).setRemove(RANDOM.nextInt(3) == 0));
    }

    private void acl() {
        if (!acls.isEmpty() && RANDOM.nextInt(3) == 0) {
            add(new RemoveAccessControlEntryRecord().setId(acls.remove(RANDOM.nextInt(acls.size()))));
            return;
        }
        acls.add(uuid());
        add(new AccessControlEntryRecord().setId(acls.get(acls.size() - 1)).setResourceType((byte) 2).setResourceName("r")
            .setPatternType((byte) (3 + RANDOM.nextInt(2))).setPrincipal("User:u").setHost("*").setOperation((byte) 3)
            .setPermissionType((byte) (2 + RANDOM.nextInt(2))));
    }

    private void user() {
        if (!users.isEmpty() && RANDOM.nextInt(3) == 0) {
            String[] gone = users.remove(RANDOM.nextInt(users.size())).split("/");
            add(new RemoveUserScramCredentialRecord().setName(gone[0]).setMechanism(Byte.parseByte(gone[1])));
            return;
        }
        byte mechanism = (byte) (1 + RANDOM.nextInt(2));
        String name = "u" + RANDOM.nextInt(3);
        users.remove(name + "/" + mechanism);
        users.add(name + "/" + mechanism);
        add(new UserScramCredentialRecord().setName(name).setMechanism(mechanism).setSalt(bytes(9)).setStoredKey(bytes(8))
            .setServerKey(bytes(7)).setIterations(4096 + RANDOM.nextInt(100)));
    }

    private void token() {
        if (!tokens.isEmpty() && RANDOM.nextInt(3) == 0) {
            add(new RemoveDelegationTokenRecord().setTokenId(tokens.remove(RANDOM.nextInt(tokens.size()))));
            return;
        }
        String id = "t" + RANDOM.nextInt(4);
        tokens.remove(id);
        tokens.add(id);
        add(new DelegationTokenRecord().setTokenId(id).setOwner("User:o").setRequester("User:q")
            .setRenewers(List.of("User:b", "User:a")).setIssueTimestamp(++counter).setMaxTimestamp(++counter)
            .setExpirationTimestamp(++counter));
    }
}
