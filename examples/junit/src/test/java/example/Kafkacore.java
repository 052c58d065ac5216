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
 * One broker for all tests of a run: {@code @ExtendWith(Kafkacore.class)} and a parameter {@code Kafkacore.Broker}.
 * The program is {@code kafkacore} on the PATH, or what the environment variable KAFKACORE names.
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
            // It ends with this process, whatever becomes of it.
            Process process = new ProcessBuilder(program, "dev", "--json", "--with-parent")
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            BufferedReader told = new BufferedReader(
                    new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = told.readLine();
            Matcher bootstrap = Pattern.compile("\"bootstrap\": *\"([^\"]+)\"").matcher(line == null ? "" : line);
            if (!bootstrap.find()) {
                throw new IllegalStateException("kafkacore dev did not start; it said: " + line);
            }
            return new Broker(bootstrap.group(1), process);
        } catch (IOException error) {
            throw new UncheckedIOException("no kafkacore: pip install kafkacore, or set KAFKACORE", error);
        }
    }
}
