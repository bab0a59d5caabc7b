/** What becomes of events when the API is away, slow, full or cut off: a server that is told what to do. */
import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Memory } from "../src/index.js";

interface Sent {
  event_id: string;
  parent_event_id?: string;
  payload: { content?: string };
}
type Answer = (events: Sent[], response: ServerResponse, request: IncomingMessage) => void;

/** A server that answers each batch by the next of these, and by the last of them for ever. */
async function serving(...answers: Answer[]) {
  const batches: Sent[][] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part));
    request.on("end", () => {
      const { events } = JSON.parse(body) as { events: Sent[] };
      const answer = answers[Math.min(batches.length, answers.length - 1)];
      batches.push(events);
      answer?.(events, response, request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { batches, url: `http://127.0.0.1:${port}`, [Symbol.dispose]: () => server.close() };
}

const accept: Answer = (events, response) => {
  const results = events.map((_, n) => ({ status: 201, global_position: `1-${n}`, error: null }));
  response.end(JSON.stringify({ results, counts: {} }));
};
const lose: Answer = (_, response) => response.destroy();
const overloaded: Answer = (_, response) => {
  response.writeHead(429, { "Retry-After": "0" }).end("not a problem");
};

test("a batch whose answer is lost is sent again, the same to the byte", async () => {
  const server = await serving(lose, overloaded, accept);
  const memory = new Memory(server.url);
  const ids = ["one", "two"].map((text) => memory.log("user", text));
  assert.equal(await memory.flush(), true);
  assert.equal(server.batches.length, 3);
  assert.deepEqual(server.batches[0], server.batches[2]);
  assert.deepEqual(server.batches[2]?.map((event) => event.event_id), ids);
  assert.deepEqual(ids, [...ids].sort());
  assert.deepEqual(memory.counts, { waiting: 0, accepted: 2, refused: 0, dropped: 0 });
  server[Symbol.dispose]();
});

test("what the ledger would refuse goes as text", async () => {
  const server = await serving(accept);
  const memory = new Memory(server.url);
  memory.log("user", "half \ud83d, whole \ud83d\ude00, words \\ud83d");
  memory.log("order.placed", { "\ud800": [2 ** 53, -(2 ** 53), 2 ** 53 - 1, 1e300, NaN, 2n ** 60n] });
  assert.equal(await memory.flush(), true);
  assert.deepEqual(
    server.batches.flat().map((event) => event.payload),
    [
      { role: "user", content: "half \ufffd, whole \ud83d\ude00, words \\ud83d" },
      { "\ufffd": ["9007199254740992", "-9007199254740992", 2 ** 53 - 1, "1e+300", "NaN", "1152921504606846976"] },
    ],
  );
  await memory.close();
  server[Symbol.dispose]();
});

test("an answer of another form is told, and ends nothing", async () => {
  const broken = (body: string): Answer => (_, response) => response.end(body);
  const server = await serving(broken("null"), broken('{"results":[{"error":{}}]}'), accept);
  const memory = new Memory(server.url);
  for (const text of ["one", "two", "three"]) {
    memory.log("user", text);
    assert.equal(await memory.flush(), true);
  }
  assert.deepEqual(memory.counts, { waiting: 0, accepted: 1, refused: 2, dropped: 0 });
  server[Symbol.dispose]();
});

test("what does not fit into the queue is dropped, counted and told", async () => {
  const server = await serving(accept);
  const told: { reason: string; wasRefused: boolean }[] = [];
  const memory = new Memory(server.url, { queueEvents: 3, onUndelivered: (e) => told.push(e) });
  for (let n = 0; n < 5; n += 1) memory.log("user", `${n}`);
  await memory.close();
  memory.log("user", "too late");
  assert.deepEqual(memory.counts, { waiting: 0, accepted: 3, refused: 0, dropped: 3 });
  assert.deepEqual(
    told.map(({ reason, wasRefused }) => [reason, wasRefused]),
    [
      ["dropped: the queue is full", false],
      ["dropped: the queue is full", false],
      ["dropped: the client is closed", false],
    ],
  );
  server[Symbol.dispose]();
});

test("closing waits no longer than it may, and tells what is left", async () => {
  const memory = new Memory("http://127.0.0.1:1");
  memory.log("user", "hello");
  const beganMs = Date.now();
  await memory.close(200);
  assert.ok(Date.now() - beganMs < 2_000);
  while (memory.counts.waiting > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(memory.counts.dropped, 1);
});

test("large batches are halved until the event that is too large stands alone", async () => {
  const tooLarge: Answer = (events, response, request) => {
    if (!events.some((event) => event.payload.content === "large")) accept(events, response, request);
    else response.writeHead(413).end("{}");
  };
  const server = await serving(tooLarge);
  const memory = new Memory(server.url);
  for (const text of ["a", "b", "large", "c", "d"]) memory.log("user", text);
  await memory.flush();
  assert.deepEqual(memory.counts, { waiting: 0, accepted: 4, refused: 1, dropped: 0 });
  server[Symbol.dispose]();
});

test("a result finds its call, and what comes next comes after what was before", async () => {
  const server = await serving(accept);
  const session = new Memory(server.url).session("s-1");
  const [user, first, second] = [
    session.log("user", "charge it"),
    session.log("call", {}, { tool: "a" }),
    session.log("call", {}, { tool: "b" }),
  ];
  session.log("result", 1, { tool: "a" });
  session.log("failure", "no", { tool: "b" });
  session.log("order.refunded", { n: 1 }, { parent: null });
  while (server.batches.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  const parents = server.batches[0]?.map((event) => event.parent_event_id);
  assert.deepEqual(parents, [undefined, user, user, first, second, undefined]);
  server[Symbol.dispose]();
});
