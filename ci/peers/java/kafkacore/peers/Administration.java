package kafkacore.peers;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * A tool for {@link Runner} that writes and prints metadata that only Apache Kafka uses: users, quotas, access
 * control and client metrics.
 *
 * <p>{@code write BOOTSTRAP} creates some metadata of each kind. {@code tell BOOTSTRAP} prints all of it in order, one
 * item per line. {@code features BOOTSTRAP} prints the finalised feature levels in the same way. {@code upgrade BOOTSTRAP
 * FEATURE=LEVEL ...} finalises features.
 */
public final class Administration {
    private static final ConfigResource METRICS = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "seen");

    private Administration() {
    }

    private static ClientQuotaAlteration quota(Map<String, String> entity, String key, double value) {
        return new ClientQuotaAlteration(new ClientQuotaEntity(entity), List.of(new ClientQuotaAlteration.Op(key, value)));
    }

    private static AclBinding acl(String topic, PatternType kind, String who, AclOperation what, AclPermissionType how) {
        return new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, kind),
            new AccessControlEntry(who, "*", what, how));
    }

    private static void write(Admin admin) throws Exception {
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), "secret"),
            new UserScramCredentialUpsertion("carol", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), "more")
        )).all().get();
        admin.alterClientQuotas(List.of(
            quota(Map.of("user", "alice", "client-id", "app"), "producer_byte_rate", 1024),
            quota(Collections.singletonMap("client-id", null), "request_percentage", 12.5),
            quota(Map.of("ip", "10.0.0.1"), "connection_creation_rate", 5)
        )).all().get();
        admin.createAcls(List.of(
            acl("theirs", PatternType.LITERAL, "User:alice", AclOperation.READ, AclPermissionType.ALLOW),
            acl("the", PatternType.PREFIXED, "User:bob", AclOperation.ALL, AclPermissionType.DENY)
        )).all().get();
        ConfigEntry interval = new ConfigEntry("interval.ms", "10000");
        admin.incrementalAlterConfigs(Map.of(METRICS, List.of(new AlterConfigOp(interval, AlterConfigOp.OpType.SET))))
            .all().get();
    }

    private static void tell(Admin admin) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        admin.describeUserScramCredentials().all().get().values().forEach(user -> user.credentialInfos().forEach(
            credential -> lines.add("user " + user.name() + " " + credential)));
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach(
            (entity, quotas) -> lines.add("quota " + new TreeMap<>(entity.entries()) + " " + new TreeMap<>(quotas)));
        admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(each -> lines.add("acl " + each));
        for (ConfigEntry entry : admin.describeConfigs(List.of(METRICS)).all().get().get(METRICS).entries())
            if (!entry.isDefault())
                lines.add("metrics " + entry.name() + "=" + entry.value());
        lines.forEach(System.out::println);
    }

    private static void features(Admin admin) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach(
            (name, range) -> lines.add(name + "=" + range.maxVersionLevel()));
        lines.forEach(System.out::println);
    }

    private static void upgrade(Admin admin, List<String> features) throws Exception {
        Map<String, FeatureUpdate> updates = new HashMap<>();
        for (String each : features) {
            String[] halves = each.split("=");
            updates.put(halves[0], new FeatureUpdate(Short.parseShort(halves[1]), FeatureUpdate.UpgradeType.UPGRADE));
        }
        admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[1]))) {
            switch (args[0]) {
                case "write" -> write(admin);
                case "tell" -> tell(admin);
                case "features" -> features(admin);
                case "upgrade" -> upgrade(admin, List.of(args).subList(2, args.length));
                default -> throw new IllegalArgumentException(args[0]);
            }
        }
    }
}
