// mqtt.js over WebSocket: every QoS both ways, retained, will, a lasting session, properties. Prints one JSON object.
import mqtt from "mqtt";

const [url, version, mark] = process.argv.slice(2);
const options = { protocolVersion: Number(version), reconnectPeriod: 0, connectTimeout: 20000 };
const opened = [];

async function connect(extra) {
  const client = await mqtt.connectAsync(url, { ...options, ...extra });
  client.inbox = [];
  client.waiting = [];
  client.on("message", (topic, payload, packet) => {
    client.inbox.push({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain, packet });
    client.waiting.splice(0).forEach((wake) => wake());
  });
  opened.push(client);
  return client;
}

async function take(client, count) {
  while (client.inbox.length < count) await new Promise((wake) => client.waiting.push(wake));
  return client.inbox.splice(0, count);
}

const result = {};
const reader = await connect({});
result.granted = (await reader.subscribeAsync(`${mark}/#`, { qos: 2 })).map((grant) => grant.qos);
const writer = await connect({});
for (const qos of [0, 1, 2]) await writer.publishAsync(`${mark}/q`, `hello ${qos}`, { qos });
result.messages = (await take(reader, 3)).map(({ payload, qos }) => [payload, qos]);

const large = "x".repeat(300000);
await writer.publishAsync(`${mark}/large`, large, { qos: 1 });
result.large = (await take(reader, 1))[0].payload === large;

await writer.publishAsync(`${mark}/kept`, "kept", { qos: 1, retain: true });
await take(reader, 1);
const late = await connect({});
await late.subscribeAsync(`${mark}/kept`, { qos: 1 });
result.retained = (await take(late, 1)).map(({ payload, retain }) => [payload, retain]);

const doomed = await connect({ will: { topic: `${mark}/will`, payload: Buffer.from("gone"), qos: 1, retain: false } });
doomed.stream.destroy();
result.will = (await take(reader, 1)).map(({ topic, payload }) => [topic, payload]);

if (version === "5") {
  const properties = { contentType: "text/plain", correlationData: Buffer.from([0, 1]), userProperties: { k: "v" } };
  await writer.publishAsync(`${mark}/p`, "p", { qos: 1, properties });
  const [{ packet }] = await take(reader, 1);
  result.properties = [packet.properties.contentType, [...packet.properties.correlationData], packet.properties.userProperties.k];
}

for (const client of opened) client.end(true);
console.log(JSON.stringify(result));
