package example;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Starts one broker for all tests of a run. A test gets it with {@code @ExtendWith(Kafkacore.class)} and a parameter of
 * type {@code Kafkacore.Broker}.
 * Runs {@code kafkacore} from the PATH, or the program that the environment variable KAFKACORE names.
 */
public final class Kafkacore implements ParameterResolver {
    public record Broker(String bootstrap, Process process) implements ExtensionContext.Store.CloseableResource {
        @Override
        public void close() {
            process.destroy();
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Broker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        ExtensionContext.Namespace mine = ExtensionContext.Namespace.create(Kafkacore.class);
        return context.getRoot().getStore(mine).getOrComputeIfAbsent(Broker.class, key -> start(), Broker.class);
    }

    private static Broker start() {
        String program = System.getenv().getOrDefault("KAFKACORE", "kafkacore");
        try {
            // --with-parent: the broker ends when this process ends, even if this process is killed.
            Process process = new ProcessBuilder(program, "dev", "--json", "--with-parent")
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            BufferedReader output = new BufferedReader(
                    new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = output.readLine();
            Matcher bootstrap = Pattern.compile("\"bootstrap\": *\"([^\"]+)\"").matcher(line == null ? "" : line);
            if (!bootstrap.find()) {
                throw new IllegalStateException("kafkacore dev did not start; its log is above. First line of its output: " + line);
            }
            return new Broker(bootstrap.group(1), process);
        } catch (IOException error) {
            throw new UncheckedIOException("cannot run " + program + ": install kafkacore, or set KAFKACORE to its path", error);
        }
    }
}
