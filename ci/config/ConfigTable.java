import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Prints every key of brokers and topics as this release of Apache Kafka defines it, one line of tab-separated fields each:
 * scope, name, type, default (! for none, null), importance, validator, internal. A test compares the lines with our tables.
 * For 4.3 it also prints the keys of groups and of client metrics, and the keys that a running broker can change: mode, name,
 * per-broker or cluster-wide.
 *
 *     java -cp '.peers/kafka-4.3.1/*' ci/config/ConfigTable.java
 */
public class ConfigTable {
    public static void main(String[] arguments) throws Exception {
        print("broker", (ConfigDef) call("kafka.server.KafkaConfig", "configDef"));
        print("topic", (ConfigDef) call("org.apache.kafka.storage.internals.log.LogConfig", "configDefCopy"));
        if (AppInfoParser.getVersion().startsWith("3."))
            return;
        Class<?> group = Class.forName("org.apache.kafka.coordinator.group.GroupConfig");
        print("group", (ConfigDef) group.getField("CONFIG_DEF").get(null));
        print("client_metrics", (ConfigDef) call("org.apache.kafka.server.metrics.ClientMetricsConfigs", "configDef"));
        Map<?, ?> modes = (Map<?, ?>) call("org.apache.kafka.server.config.DynamicBrokerConfig", "dynamicConfigUpdateModes");
        modes.forEach((name, mode) -> System.out.println("mode\t" + name + "\t" + mode));
    }

    /** A static method of a class, or one of a Scala object, which has a static twin. */
    static Object call(String name, String method) throws Exception {
        for (Method found : Class.forName(name).getDeclaredMethods())
            if (found.getName().equals(method) && Modifier.isStatic(found.getModifiers()) && found.getParameterCount() == 0) {
                found.setAccessible(true);
                return found.invoke(null);
            }
        throw new NoSuchMethodException(name + "." + method);
    }

    static void print(String scope, ConfigDef definition) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : new TreeMap<>(definition.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "!";
            System.out.println(String.join("\t", scope, key.name, key.type.toString().toLowerCase(), String.valueOf(value),
                key.importance.toString().toLowerCase(), String.valueOf(key.validator).replaceAll("[\\t\\n]", " "),
                String.valueOf(key.internalConfig)));
        }
    }
}
