package kafkacore.peers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Exit;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * Runs many command-line tools in one process, one after another, because the start of a JVM takes longer than
 * most tools.
 *
 * <p>Reads a JSON object {"main", "args", "stdin"} from each line of standard input. Answers each with a line that contains
 * a JSON object {"exit", "out", "err"}.
 */
public final class Runner {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Thrown when a tool would end the process. It is an Error, because tools catch every Exception in their main. */
    private static final class Exited extends Error {
        final int status;

        Exited(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    /** A standard stream, installed only once, because Scala's Console and log4j keep the first streams that they get. */
    private static final class Switch extends OutputStream {
        private final OutputStream idle;
        private volatile OutputStream target;

        Switch(OutputStream idle) {
            this.idle = idle;
            this.target = idle;
        }

        void to(OutputStream next) {
            target = next == null ? idle : next;
        }

        @Override
        public void write(int octet) throws java.io.IOException {
            target.write(octet);
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws java.io.IOException {
            target.write(bytes, start, length);
        }
    }

    private static volatile InputStream stdin = InputStream.nullInputStream();
    private static volatile Exited first;

    /** The shutdown hooks that a tool has registered, for example to flush its producer. */
    private static final List<Runnable> HOOKS = Collections.synchronizedList(new ArrayList<>());

    private Runner() {
    }

    private static void exit(int status, String message) {
        if (message != null)
            System.err.println(message);
        // A tool that catches Throwable exits a second time, with another status. The first status is the right one.
        if (first == null)
            first = new Exited(status);
        throw first;
    }

    private static ObjectNode run(JsonNode request, Switch out, Switch err) throws Exception {
        ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        stdin = new ByteArrayInputStream(request.path("stdin").asText("").getBytes(StandardCharsets.UTF_8));
        String[] args = JSON.convertValue(request.get("args"), String[].class);
        first = null;
        out.to(stdout);
        err.to(stderr);
        int status = 0;
        try {
            Class.forName(request.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException failure) {
            if (first == null) {
                failure.getCause().printStackTrace(System.err);
                status = 1;
            }
        } finally {
            HOOKS.forEach(Runnable::run);
            HOOKS.clear();
            System.out.flush();
            System.err.flush();
            out.to(null);
            err.to(null);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exit", first == null ? status : first.status);
        answer.put("out", stdout.toString(StandardCharsets.UTF_8));
        answer.put("err", stderr.toString(StandardCharsets.UTF_8));
        return answer;
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Switch out = new Switch(OutputStream.nullOutputStream());
        Switch err = new Switch(new java.io.FileOutputStream(java.io.FileDescriptor.err));
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        System.setIn(new InputStream() {
            @Override
            public int read() throws java.io.IOException {
                return stdin.read();
            }

            @Override
            public int read(byte[] bytes, int start, int length) throws java.io.IOException {
                return stdin.read(bytes, start, length);
            }
        });
        Exit.setExitProcedure(Runner::exit);
        Exit.setHaltProcedure(Runner::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = requests.readLine(); line != null; line = requests.readLine())
            answers.println(JSON.writeValueAsString(run(JSON.readTree(line), out, err)));
        Runtime.getRuntime().halt(0);
    }
}
