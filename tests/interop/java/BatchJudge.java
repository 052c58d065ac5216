import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.CRC32;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Judges and makes record batches with Apache Kafka's own code.
 *
 *   judge IN OUT   Reads entries (size i32, rules u8, bytes) from IN. Bit 0 of the rules means a compacted topic, bit 1
 *                  log append time. Writes a line for each entry to OUT: "0 maxTimestamp crc32-of-the-stored-bytes",
 *                  "code errors i,j,..." or "code exception message".
 *   build DIR      Writes a file NAME-COUNT for each codec and each number of records.
 *   read FILE...   Prints the name, the number of records, and a hash of all keys, values and headers.
 */
public class BatchJudge {
    static final long NOW = 1_700_000_000_000L;
    static final int MAX_MESSAGE_BYTES = 1048588;

    public static void main(String[] args) throws IOException {
        switch (args[0]) {
            case "judge" -> judgeAll(Path.of(args[1]), Path.of(args[2]));
            case "build" -> buildAll(Path.of(args[1]));
            default -> readAll(Arrays.copyOfRange(args, 1, args.length));
        }
    }

    static void judgeAll(Path in, Path out) throws IOException {
        StringBuilder lines = new StringBuilder();
        try (DataInputStream cases = new DataInputStream(new BufferedInputStream(Files.newInputStream(in)))) {
            while (cases.available() > 0) {
                byte[] data = new byte[cases.readInt()];
                int rules = cases.readUnsignedByte();
                cases.readFully(data);
                lines.append(judge(data, (rules & 1) != 0, (rules & 2) != 0)).append('\n');
            }
        }
        Files.writeString(out, lines);
    }

    static String judge(byte[] data, boolean compacted, boolean logAppendTime) {
        try {
            return append(data, compacted, logAppendTime);
        } catch (RecordValidationException e) {
            StringBuilder line = new StringBuilder();
            line.append(Errors.forException(e.invalidException()).code()).append(" errors ");
            e.recordErrors().forEach(error -> line.append(error.batchIndex).append(','));
            return line.toString();
        } catch (Throwable e) {
            String message = String.valueOf(e.getMessage()).replace('\n', ' ');
            return Errors.forException(e).code() + " " + e.getClass().getSimpleName() + " " + message;
        }
    }

    /** Does what a Produce does: the check of the request, the log's check of the batches, and LogValidator. */
    static String append(byte[] data, boolean compacted, boolean logAppendTime) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        ProduceRequest.validateRecords((short) 9, records);
        CompressionType source = CompressionType.NONE;
        int validBytes = 0;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.baseOffset() != 0) throw new InvalidRecordException("base offset");
            if (batch.sizeInBytes() > MAX_MESSAGE_BYTES) throw new RecordTooLargeException("size");
            if (!batch.isValid()) throw new CorruptRecordException("checksum");
            validBytes += batch.sizeInBytes();
            if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
        }
        ByteBuffer trimmed = ByteBuffer.wrap(data);
        trimmed.limit(validBytes);
        LogValidator validator = new LogValidator(MemoryRecords.readableRecords(trimmed), new TopicPartition("topic", 0),
            frozen(), source, Compression.of(source).build(), compacted, (byte) 2,
            logAppendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME, 1000L, 1000L, 5, AppendOrigin.CLIENT);
        LogValidator.ValidationResult result =
            validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(100), silent(), BufferSupplier.NO_CACHING);
        CRC32 crc = new CRC32();
        crc.update(result.validatedRecords().buffer());
        return "0 " + result.maxTimestampMs() + " " + crc.getValue();
    }

    static Time frozen() {
        return (Time) Proxy.newProxyInstance(BatchJudge.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, args) -> method.getName().equals("milliseconds") ? (Object) NOW : (Object) 0L);
    }

    static LogValidator.MetricsRecorder silent() {
        return new LogValidator.MetricsRecorder() {
            public void recordInvalidMagic() { }
            public void recordInvalidOffset() { }
            public void recordInvalidSequence() { }
            public void recordInvalidChecksums() { }
            public void recordNoKeyCompactedTopic() { }
        };
    }

    static void buildAll(Path directory) throws IOException {
        for (CompressionType type : CompressionType.values()) {
            for (int count : new int[] {1, 50, 5000}) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), (byte) 2,
                    Compression.of(type).build(), TimestampType.CREATE_TIME, 0L);
                for (int i = 0; i < count; i++) {
                    Header[] headers = {new RecordHeader("header", ("h" + i).getBytes())};
                    builder.append(NOW + i, ("key" + i).getBytes(), ("a value " + i % 97).getBytes(), headers);
                }
                ByteBuffer built = builder.build().buffer();
                byte[] data = new byte[built.remaining()];
                built.get(data);
                Files.write(directory.resolve(type.name + "-" + count), data);
            }
        }
    }

    static void readAll(String[] files) throws IOException {
        for (String file : files) {
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(file)));
            CRC32 crc = new CRC32();
            int count = 0;
            for (RecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                batch.ensureValid();
                for (org.apache.kafka.common.record.internal.Record record : batch) {
                    crc.update(record.key());
                    crc.update(record.value());
                    for (Header header : record.headers()) {
                        crc.update(header.key().getBytes());
                        crc.update(header.value());
                    }
                    count++;
                }
            }
            System.out.println(Path.of(file).getFileName() + " " + count + " " + crc.getValue());
        }
    }
}
