import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import static java.nio.charset.StandardCharsets.UTF_16BE;

/**
 * Reads one file of properties from each line of standard input, in hexadecimal, and prints its keys and values as
 * `key=value` fields in UTF-16 and hexadecimal, sorted, or `malformed`.
 *
 *     java ci/config/ReadProperties.java
 */
public class ReadProperties {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            System.out.println(read(HexFormat.of().parseHex(line)));
    }

    static String read(byte[] file) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(file));
        } catch (IllegalArgumentException malformed) {
            return "malformed";
        }
        StringBuilder fields = new StringBuilder();
        for (Map.Entry<Object, Object> entry : new TreeMap<>(properties).entrySet())
            fields.append(hex(entry.getKey())).append('=').append(hex(entry.getValue())).append(' ');
        return fields.toString().trim();
    }

    static String hex(Object text) {
        return HexFormat.of().formatHex(((String) text).getBytes(UTF_16BE));
    }
}
