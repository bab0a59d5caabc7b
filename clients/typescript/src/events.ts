/** Events as the ledger takes them: id and time are fixed here, so sending one again is safe. */

export type Role = "user" | "assistant" | "system" | "developer";
/** What is logged: a message, an agent's words to itself, a tool's, or a type of your own. */
export type Kind =
  | Role
  | ("thought" | "plan" | "decision")
  | ("call" | "result" | "failure")
  | `${string}.${string}`;
export type Status = "pending" | "running" | "completed" | "failed" | "timeout";

/** An event, ready to be sent: never changed again. */
export interface Made {
  readonly eventId: string;
  readonly sessionId: string;
  readonly json: string;
}

export interface Content {
  eventType: string;
  payload: unknown;
  status?: Status;
}

export const ROLES: readonly string[] = ["user", "assistant", "system", "developer"];
const OWN_WORDS: readonly string[] = ["thought", "plan", "decision"];
const OF_TOOLS: Readonly<Record<string, [type: string, field: string, status?: Status]>> = {
  call: ["tool.call", "arguments"],
  result: ["tool.result", "result", "completed"],
  failure: ["tool.result", "error", "failed"],
};
/** The ledger takes payloads of 256 KiB; what a tool got or gave beyond this is cut. */
const MAX_TOOL_BYTES = 250 * 1024;
const CUT_CHARACTERS = 32_000;

/** What a kind and its content become. */
export function contentOf(kind: string, content: unknown): Content {
  if (ROLES.includes(kind)) return { eventType: `message.${kind}`, payload: { role: kind, content } };
  if (OWN_WORDS.includes(kind)) return { eventType: `agent.${kind}`, payload: worded(content) };
  const tool = Object.hasOwn(OF_TOOLS, kind) ? OF_TOOLS[kind] : undefined;
  if (tool !== undefined) {
    const [eventType, field, status] = tool;
    return { eventType, payload: { [field]: content }, ...(status === undefined ? {} : { status }) };
  }
  if (!kind.includes(".")) {
    const names = [...ROLES, ...OWN_WORDS, ...Object.keys(OF_TOOLS)].sort().join(", ");
    throw new TypeError(`kind: ${kind} is none of ${names}, nor a type with a dot (order.placed)`);
  }
  return { eventType: kind, payload: worded(content) };
}

function worded(content: unknown): unknown {
  return typeof content === "string" ? { text: content } : content;
}

/** The envelope as JSON, taken now: what changes later in the payload changes nothing here. */
export function eventJson(fields: { payload: unknown } & Record<string, unknown>, isCut: boolean): string {
  const envelope = Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined && value !== null),
  );
  const data = jsonOf(envelope) ?? jsonOf({ ...envelope, payload: { text: String(fields.payload) } });
  if (data === undefined) throw new TypeError("the envelope has no form in JSON");
  if (!isCut || data.length * 3 <= MAX_TOOL_BYTES) return data;
  const bytes = new TextEncoder().encode(data).length;
  if (bytes <= MAX_TOOL_BYTES) return data;
  const parts = Object.entries(fields.payload as object).map(([name, value]) => [
    name,
    (jsonOf(value) ?? String(value)).slice(0, CUT_CHARACTERS),
  ]);
  return JSON.stringify({
    ...envelope,
    payload: { ...Object.fromEntries(parts), cut_from_bytes: bytes },
  });
}

/**
 * JSON of anything, as the ledger takes it; undefined: it has no form in it. Numbers beyond
 * 2^53 - 1 are told as text, half a surrogate pair as U+FFFD.
 */
function jsonOf(value: unknown): string | undefined {
  try {
    const json = JSON.stringify(value, (_, inner: unknown) =>
      typeof inner === "bigint" || (typeof inner === "number" && !(Math.abs(inner) <= Number.MAX_SAFE_INTEGER))
        ? String(inner)
        : inner,
    ) as string | undefined;
    // JSON.stringify escapes no surrogate but half a pair.
    return json?.replace(/\\(?:\\|ud[89a-f][0-9a-f]{2})/g, (mark) => (mark === "\\\\" ? mark : "\ufffd"));
  } catch {
    return undefined;
  }
}

let lastMs = 0;
let number = 0;

/** A UUID of version 7; those of one process sort as they were made. */
export function newEventId(nowMs: number): string {
  number = nowMs > lastMs ? 0 : number + 1;
  lastMs = Math.max(nowMs, lastMs);
  if (number > 0xfff) [lastMs, number] = [lastMs + 1, 0];
  const chance = crypto.getRandomValues(new Uint8Array(8));
  chance[0] = 0x80 | ((chance[0] ?? 0) & 0x3f);
  const random = [...chance].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const text = `${lastMs.toString(16).padStart(12, "0")}7${number.toString(16).padStart(3, "0")}${random}`;
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
