// Starts a broker for tests: `const kafka = await startKafka(); ... await kafka.stop()`.
// Runs `kafkacore` from the PATH, or the program that the environment variable KAFKACORE names.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

export async function startKafka(...options) {
  const program = process.env.KAFKACORE ?? "kafkacore";
  const child = spawn(
    program,
    // --with-parent: the broker ends when this process ends, even if this process is killed.
    ["dev", "--json", "--with-parent", ...options],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const failed = once(child, "exit").then(
    ([code]) => {
      throw new Error(`kafkacore dev ended with ${code} before it was ready`);
    },
    (error) => {
      throw new Error(`cannot run ${program}: install kafkacore, or set KAFKACORE to its path`, { cause: error });
    },
  );
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), "line"), failed]);
  failed.catch(() => {});
  return {
    ...JSON.parse(line),
    async stop() {
      child.kill();
      await once(child, "exit");
    },
  };
}
