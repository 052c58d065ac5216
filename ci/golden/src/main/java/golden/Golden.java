package golden;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.PrintWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Writes every message of the Kafka on the class path, in every version, filled in several ways, to a file: one JSON
 * object per line with the message, its version, the filling, Kafka's JSON and Kafka's bytes in hex.
 *
 * Arguments: the output file. Messages are found by their JsonConverter classes and filled by reflection; a version's
 * Schema says which fields it has. Values come from a seeded Random, so two runs write the same file.
 */
public final class Golden {
    /** The ways to fill the fields of a message. */
    enum Filling { DEFAULTS, FULL, NULLS, EXTREMES, MIXED, UNKNOWN_TAGS }

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final int LONG_STRING = 300;    // its length takes two bytes as a varint
    private static final int LONG_ARRAY = 130;  // so does its count

    private final Filling filling;
    private final Random random;

    private Golden(Filling filling, long seed) {
        this.filling = filling;
        this.random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[0]);
        int written = 0;
        try (PrintWriter writer = new PrintWriter(Files.newBufferedWriter(out, StandardCharsets.UTF_8))) {
            for (String converter : converters()) {
                written += writeMessage(Class.forName(converter), writer);
            }
        }
        System.out.println(written + " golden messages in " + out);
    }

    private static Collection<String> converters() throws Exception {
        TreeSet<String> found = new TreeSet<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!entry.endsWith(".jar") || !entry.contains("kafka")) {
                continue;
            }
            try (JarFile jar = new JarFile(entry)) {
                jar.stream().map(each -> each.getName())
                    .filter(name -> name.endsWith("JsonConverter.class") && !name.contains("$"))
                    .filter(name -> !name.contains("/remote/"))
                    .forEach(name -> found.add(name.replace('/', '.').substring(0, name.length() - 6)));
            }
        }
        return found;
    }

    private static int writeMessage(Class<?> converter, PrintWriter writer) throws Exception {
        Class<?> type = Class.forName(converter.getName().replaceAll("JsonConverter$", ""));
        short lowest = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
        short highest = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
        int written = 0;
        for (short version = lowest; version <= highest; version++) {
            for (Filling filling : Filling.values()) {
                long seed = 31L * type.getName().hashCode() + 7L * version + filling.ordinal();
                if (writeOne(converter, type, version, new Golden(filling, seed), writer)) {
                    written++;
                }
            }
        }
        return written;
    }

    private static boolean writeOne(Class<?> converter, Class<?> type, short version, Golden golden, PrintWriter writer)
            throws Exception {
        Message message = (Message) golden.fill(type, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer;
        try {
            buffer = ByteBuffer.allocate(message.size(cache, version));
        } catch (NullPointerException | UnsupportedVersionException refused) {
            return false;  // a default that this version cannot express
        }
        message.write(new ByteBufferAccessor(buffer), cache, version);
        byte[] bytes = new byte[buffer.flip().remaining()];
        buffer.get(bytes);
        Method write = converter.getMethod("write", type, short.class, boolean.class);
        ObjectNode line = MAPPER.createObjectNode();
        line.put("message", type.getSimpleName());
        line.put("version", version);
        line.put("filling", golden.filling.name());
        line.set("json", (JsonNode) write.invoke(null, message, version, false));
        line.put("hex", HexFormat.of().formatHex(bytes));
        writer.println(MAPPER.writeValueAsString(line));
        return true;
    }

    private Object fill(Class<?> type, short version) throws Exception {
        Object made = type.getDeclaredConstructor().newInstance();
        Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
        boolean flexible = false;
        Map<String, Field> fields = new TreeMap<>();
        for (BoundField field : schemas[version].fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                flexible = true;
                tagged(tagged).forEach(each -> fields.put(plain(each.name), each));
            } else {
                fields.put(plain(field.def.name), field.def);
            }
        }
        if (filling != Filling.DEFAULTS) {
            for (Method setter : setters(type)) {
                Field field = fields.get(plain(setter.getName().substring(3)));
                if (field != null && (filling != Filling.MIXED || random.nextBoolean())) {
                    setter.invoke(made, value(field.type, setter.getGenericParameterTypes()[0], version));
                }
            }
        }
        if (flexible && filling == Filling.UNKNOWN_TAGS) {
            addUnknown((Message) made);
        }
        return made;
    }

    /** 3.9 has no accessor for them. */
    @SuppressWarnings("unchecked")
    private static Collection<Field> tagged(TaggedFields fields) throws Exception {
        java.lang.reflect.Field kept = TaggedFields.class.getDeclaredField("fields");
        kept.setAccessible(true);
        return ((Map<Integer, Field>) kept.get(fields)).values();
    }

    /** Unknown tags start at 40, because one between the known tags would be read as a field of this version. */
    private void addUnknown(Message message) {
        message.unknownTaggedFields().add(new RawTaggedField(40, new byte[] {1, 2, 3}));
        message.unknownTaggedFields().add(new RawTaggedField(41, new byte[0]));
        message.unknownTaggedFields().add(new RawTaggedField(70_000, randomBytes(200)));
    }

    private static List<Method> setters(Class<?> type) {
        List<Method> found = new ArrayList<>();
        for (Method method : type.getDeclaredMethods()) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1 && !method.isBridge()) {
                found.add(method);
            }
        }
        found.sort((a, b) -> a.getName().compareTo(b.getName()));
        return found;
    }

    private static String plain(String name) {
        return name.replace("_", "").toLowerCase(Locale.ROOT);
    }

    private Object value(org.apache.kafka.common.protocol.types.Type kind, Type java, short version) throws Exception {
        boolean mayBeNull = kind.isNullable();
        if (mayBeNull && (filling == Filling.NULLS || filling == Filling.MIXED && random.nextInt(3) == 0)) {
            return null;
        }
        if (java instanceof Class<?> plain && Collection.class.isAssignableFrom(plain)) {
            return elements((Collection<Object>) plain.getDeclaredConstructor().newInstance(), kind, element(plain), version);
        }
        if (java instanceof ParameterizedType list) {
            return elements(new ArrayList<>(), kind, list.getActualTypeArguments()[0], version);
        }
        Class<?> type = (Class<?>) java;
        if (Message.class.isAssignableFrom(type)) {
            return fill(type, version);
        }
        return type == String.class ? text() : primitive(kind, type);
    }

    private static Type element(Class<?> collection) {
        return ((ParameterizedType) collection.getGenericSuperclass()).getActualTypeArguments()[0];
    }

    private Collection<Object> elements(
            Collection<Object> made, org.apache.kafka.common.protocol.types.Type kind, Type element, short version)
            throws Exception {
        boolean number = element instanceof Class<?> type && Number.class.isAssignableFrom(type);
        int count = switch (filling) {
            case DEFAULTS, NULLS -> 0;
            case EXTREMES -> number ? LONG_ARRAY : 2;
            default -> 1 + random.nextInt(3);
        };
        org.apache.kafka.common.protocol.types.Type inner = kind.arrayElementType().orElseThrow();
        for (int i = 0; i < count; i++) {
            made.add(value(inner, element, version));
        }
        return made;
    }

    private String text() {
        if (filling == Filling.NULLS) {
            return "";
        }
        if (filling == Filling.EXTREMES) {
            return "\u00e9\u4e16\uD83D\uDE00".repeat(LONG_STRING / 4);
        }
        return "text-" + random.nextInt(1_000_000);
    }

    private Object primitive(org.apache.kafka.common.protocol.types.Type kind, Class<?> type) throws Exception {
        if (kind == org.apache.kafka.common.protocol.types.Type.UINT16) {
            return (int) number(0, 0xFFFF);
        }
        if (type == boolean.class) {
            return filling == Filling.EXTREMES || random.nextBoolean();
        }
        if (type == byte.class || type == Byte.class) {
            return (byte) number(Byte.MIN_VALUE, Byte.MAX_VALUE);
        }
        if (type == short.class || type == Short.class) {
            return (short) number(Short.MIN_VALUE, Short.MAX_VALUE);
        }
        if (type == int.class || type == Integer.class) {
            return (int) number(Integer.MIN_VALUE, Integer.MAX_VALUE);
        }
        if (type == long.class || type == Long.class) {
            return number(Long.MIN_VALUE, Long.MAX_VALUE);
        }
        if (type == double.class) {
            return filling == Filling.EXTREMES ? Double.MAX_VALUE : random.nextGaussian();
        }
        if (type == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        }
        byte[] bytes = randomBytes(filling == Filling.NULLS ? 0 : filling == Filling.EXTREMES ? LONG_STRING : 5);
        if (type == byte[].class) {
            return bytes;
        }
        return type == ByteBuffer.class ? ByteBuffer.wrap(bytes) : records(bytes);
    }

    /** NULLS takes the smallest value of a type and EXTREMES the largest, so that both ends are covered. */
    private long number(long least, long most) {
        return switch (filling) {
            case NULLS -> least;
            case EXTREMES -> most;
            default -> random.nextInt(100);
        };
    }

    private byte[] randomBytes(int size) {
        byte[] bytes = new byte[size];
        random.nextBytes(bytes);
        return bytes;
    }

    /** The class moved between the releases. */
    private static Object records(byte[] bytes) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.common.record.internal.MemoryRecords");
        } catch (ClassNotFoundException older) {
            type = Class.forName("org.apache.kafka.common.record.MemoryRecords");
        }
        try {
            return type.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes));
        } catch (InvocationTargetException failed) {
            throw new IllegalStateException("records", failed.getCause());
        }
    }
}
