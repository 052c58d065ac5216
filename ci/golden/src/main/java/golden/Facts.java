package golden;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.Method;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Writes the errors, APIs, metadata versions and features of the Kafka on the class path as one JSON object.
 *
 * Arguments: the output file.
 */
public final class Facts {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Facts() {
    }

    public static void main(String[] args) throws Exception {
        ObjectNode facts = MAPPER.createObjectNode();
        errors(facts.putArray("errors"));
        apis(facts.putArray("apis"));
        metadataVersions(facts.putArray("metadata_versions"));
        features(facts.putArray("features"));
        MAPPER.writeValue(new File(args[0]), facts);
    }

    private static void errors(ArrayNode out) {
        for (Errors error : Errors.values()) {
            out.addObject().put("code", error.code()).put("name", error.name())
                .put("retriable", error.exception() instanceof RetriableException);
        }
    }

    private static void apis(ArrayNode out) {
        for (ApiKeys api : ApiKeys.values()) {
            ApiMessageType type = api.messageType;
            ObjectNode row = out.addObject().put("key", api.id).put("name", api.name())
                .put("lowest", type.lowestSupportedVersion()).put("highest", type.highestSupportedVersion(false))
                .put("forwardable", api.forwardable);
            type.listeners().forEach(each -> row.withArray("listeners").add(each.name()));
            for (short version = row.get("lowest").shortValue(); version <= row.get("highest").shortValue(); version++) {
                row.withArray("request_headers").add(type.requestHeaderVersion(version));
                row.withArray("response_headers").add(type.responseHeaderVersion(version));
            }
        }
    }

    private static void metadataVersions(ArrayNode out) throws Exception {
        for (MetadataVersion version : MetadataVersion.values()) {
            ObjectNode row = out.addObject().put("level", version.featureLevel()).put("name", version.version())
                .put("production", version.isProduction()).put("changes_records", version.didMetadataChange());
            for (String method : new String[] {"partitionRecordVersion", "partitionChangeRecordVersion",
                "registerBrokerRecordVersion", "fetchRequestVersion", "listOffsetRequestVersion"}) {
                row.put(method, (short) MetadataVersion.class.getMethod(method).invoke(version));
            }
        }
    }

    /** The enumeration has this name since 4.0. */
    private static void features(ArrayNode out) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.server.common.Feature");
        } catch (ClassNotFoundException older) {
            return;
        }
        Method level = type.getMethod("defaultLevel", MetadataVersion.class);
        for (Object feature : (Iterable<?>) type.getField("PRODUCTION_FEATURES").get(null)) {
            ObjectNode row = out.addObject().put("name", (String) type.getMethod("featureName").invoke(feature))
                .put("lowest", (short) type.getMethod("minimumProduction").invoke(feature))
                .put("highest", (short) type.getMethod("latestProduction").invoke(feature));
            ObjectNode levels = row.putObject("defaults");
            for (MetadataVersion version : MetadataVersion.values()) {
                if (version.isProduction()) {
                    levels.put(Short.toString(version.featureLevel()), (short) level.invoke(feature, version));
                }
            }
        }
    }
}
