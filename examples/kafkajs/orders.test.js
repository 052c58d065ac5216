import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import kafkajs from "kafkajs";
import { startKafka } from "./kafkacore.js";

const { Kafka, logLevel } = kafkajs;
let broker;
let kafka;

before(async () => {
  broker = await startKafka("--topic", "orders:2");
  kafka = new Kafka({ brokers: [broker.bootstrap], logLevel: logLevel.ERROR });
});

after(() => broker?.stop());

test("orders are read by a group", { timeout: 30_000 }, async () => {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ key: "tea", value: "two" }, { key: "milk", value: "one" }] });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "orders" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const read = [];
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        if (read.push(`${message.key}: ${message.value}`) === 2) resolve();
      },
    });
  });
  await consumer.disconnect();
  assert.deepEqual(read.sort(), ["milk: one", "tea: two"]);
});
