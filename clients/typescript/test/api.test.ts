/** The client against a running API, whose graph a worker keeps up. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { ConnectionFailed, InvalidInput, Memory, NotFound, Unauthenticated } from "../src/index.js";

const url = process.env.RECOLLECT_API_URL ?? "";
const key = process.env.RECOLLECT_API_KEY ?? "";
const timeoutMs = 30_000;

function opened(): Memory {
  return new Memory(url, { key, agent: "payments" });
}

test("what is logged is found at once, and explained when it is folded", async () => {
  const memory = opened();
  const session = memory.session(`s-${randomUUID()}`, { user: "ana" });
  const asked = session.log("user", "Why was the walrus charged twice for order 4711?");
  const call = session.log("call", { order: "4711" }, { tool: "charge" });
  const failed = session.log("failure", "the gateway did not answer", { tool: "charge" });
  session.log("decision", "Try again tomorrow");

  const answer = await memory.ask("which walrus was charged?", { session, timeoutMs });
  assert.ok(answer.nodes.some((node) => node.node_id === asked));
  assert.match(answer.text, /walrus charged twice/);
  assert.deepEqual(memory.counts, { waiting: 0, accepted: 4, refused: 0, dropped: 0 });

  await memory.wait(timeoutMs);
  const context = await memory.context(session, { timeoutMs, max_nodes: 10 });
  const causes = new Map(
    context.edges.filter((edge) => edge.type === "CAUSED_BY").map((e) => [e.source, e.target]),
  );
  assert.equal(causes.get(failed), call);
  assert.equal(causes.get(call), asked);
  const why = await memory.why("why did the charge fail?", { session, timeoutMs });
  assert.match(why.text, /charge failed/);
  const facts = await memory.facts("what is known of order 4711?", { session, timeoutMs });
  assert.ok(Array.isArray(facts.facts));
  await memory.close();
});

test("changes come in order, each once, and until now where nobody waits", async () => {
  const memory = opened();
  const session = memory.session(`s-${randomUUID()}`);
  const logged = [1, 2, 3].map((n) => session.log("user", `harbour ${n}\n\nline \u2028 ${n}`));
  await memory.flush();
  const seen: string[] = [];
  for await (const change of memory.changes({ session: session.id, since: "0", wait: false })) {
    seen.push(change.event_id);
  }
  assert.deepEqual(seen, logged);

  const came: string[] = [];
  for await (const change of memory.changes({ session: session.id, since: "0" })) {
    assert.match((change.payload as { content: string }).content, /^harbour \d+\n\nline \u2028 \d+$/);
    came.push(change.event_id);
    if (came.length >= 3 && logged.length < 12) {
      logged.push(session.log("user", `harbour ${came.length}\n\nline \u2028 ${came.length}`));
      await new Promise((resolve) => setTimeout(resolve, 40)); // streams of this API end soon
    }
    if (came.length === 12) break;
  }
  assert.deepEqual(came, logged);

  const messages = memory.changes({ session: session.id, since: "0", kinds: ["call"], wait: false });
  assert.equal((await messages.next()).done, true);
  const signal = AbortSignal.timeout(300);
  for await (const _ of memory.changes({ session: session.id, signal })) assert.fail("nothing new");
  await memory.close();
});

test("errors are typed by problem, with field and rule", async () => {
  const memory = opened();
  await assert.rejects(memory.ask("charged?", { max_nodes: 1_000 }), (error) => {
    assert.ok(error instanceof InvalidInput);
    assert.equal(error.errors?.[0]?.field, "max_nodes");
    assert.ok(error.requestId);
    return !error.retryable;
  });
  await assert.rejects(memory.context(`none-${randomUUID()}`), NotFound);
  await assert.rejects(memory.changes({ since: "yesterday" }).next(), InvalidInput);
  await assert.rejects(new Memory(url, { key: "no" }).ask("who?"), Unauthenticated);
  await assert.rejects(new Memory("http://127.0.0.1:1").ask("is anybody there?"), ConnectionFailed);
  assert.throws(() => new Memory("127.0.0.1:8080"), /no address of an API/);
  await memory.close();
});

test("an event that breaks a rule is refused alone, and told", async () => {
  const told: string[] = [];
  const memory = new Memory(url, { key, onUndelivered: ({ reason }) => told.push(reason) });
  const session = memory.session(`s-${randomUUID()}`);
  session.log("user", "before");
  session.log("user", "x".repeat(300_000));
  session.log("result", { text: "y".repeat(300_000), n: 10n, x: Infinity }, { tool: "read" });
  session.log("user", "after");
  assert.equal(await memory.flush(), true);
  assert.deepEqual(memory.counts, { waiting: 0, accepted: 3, refused: 1, dropped: 0 });
  assert.equal(told.length, 1);
  assert.match(told[0] ?? "", /^refused: .*payload: at most 256 KiB/);
  assert.throws(() => session.log("gossip" as "user"), /kind: gossip is none of/);
  await memory.close();
});
