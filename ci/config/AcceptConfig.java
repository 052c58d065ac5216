import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.HexFormat;
import java.util.Properties;

/**
 * Reads one server.properties from each line of standard input, in hexadecimal, and prints whether this release of Apache Kafka
 * starts with it: `taken`, or `refused` and the reason.
 *
 *     java -cp '.peers/kafka-4.3.1/*' ci/config/AcceptConfig.java
 */
public class AcceptConfig {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(HexFormat.of().parseHex(line)));
            System.out.println(answer(properties).replaceAll("\\s+", " "));
        }
    }

    static String answer(Properties properties) throws Exception {
        Class<?> config = Class.forName("kafka.server.KafkaConfig");
        try {
            config.getMethod("fromProps", Properties.class, boolean.class).invoke(null, properties, false);
            return "taken";
        } catch (InvocationTargetException refused) {
            return "refused " + refused.getCause();
        }
    }
}
