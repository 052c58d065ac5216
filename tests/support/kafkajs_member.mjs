// A member of a group by kafkajs, a process of its own. Usage: node kafkajs_member.mjs KAFKAJS BOOTSTRAP GROUP TOPIC SESSION_MS
// Commands are lines on standard input (commit, committed, close); what happens is told as one JSON object a line.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [kafkajs, bootstrap, groupId, topic, sessionMs] = process.argv.slice(2);
const { Kafka, logLevel } = createRequire(import.meta.url)(kafkajs);
const tell = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);

const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50, maxRetryTime: 200 } });
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: Number(sessionMs),
  heartbeatInterval: 100,
  maxWaitTimeInMs: 50,
});
const next = new Map(); // partition: the offset to go on with

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => tell({ partitions: payload.memberAssignment[topic] ?? [] }));
consumer.on(consumer.events.REBALANCING, () => tell({ partitions: [] }));
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachMessage: async ({ partition, message }) => {
    next.set(partition, Number(message.offset) + 1);
    tell({ value: message.value.toString() });
  },
});

const commands = {
  async commit() {
    const offsets = [...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) }));
    try {
      await consumer.commitOffsets(offsets);
      tell({ done: offsets.length });
    } catch (error) {
      if (!error.retriable && error.type !== "UNKNOWN_MEMBER_ID" && error.type !== "ILLEGAL_GENERATION") throw error;
      tell({ done: 0 }); // a rebalance has begun
    }
  },
  async committed() {
    const admin = kafka.admin();
    await admin.connect();
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
    await admin.disconnect();
    tell({ done: partitions.map(({ partition, offset }) => [partition, Number(offset)]) });
  },
  async close() {
    await consumer.disconnect();
    tell({ done: true });
    process.exit(0);
  },
};
for await (const command of createInterface({ input: process.stdin })) await commands[command]();
process.exit(0); // who started this has ended
