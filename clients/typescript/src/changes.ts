/** Following what is new: server-sent events over fetch, for that alone can send a key. */
import type { components } from "./api.js";
import type { Call, Connection } from "./calls.js";
import { ATTEMPTS, isRetryable, pause, pauseBefore, read, told } from "./calls.js";
import { ConnectionFailed, NoAnswer, RecollectError, UnexpectedAnswer } from "./errors.js";

export type Change = components["schemas"]["Change"];

export interface ChangesOptions {
  /** Only events of this session; default all. */
  session?: string;
  /** Only events of these kinds; default all. */
  kinds?: readonly NonNullable<Change["kind"]>[];
  /** `now` (default), `0` for the beginning, or the `global_position` of an event. */
  since?: string;
  /** In whose view. */
  user?: string;
  /** False: end where all that is there has been seen. */
  wait?: boolean;
  /** Ends the waiting. */
  signal?: AbortSignal;
}

const PATH = "/v1/changes";
const EVENT_STREAM = "text/event-stream";
/** A stream that says nothing for so long is dead; the API shows every 15 s that it lives. */
const SILENCE_MS = 60_000;
const PAGE_MS = 30_000;

/** Each event once, in the order of the ledger; over breaks of the connection. */
export async function* changes(
  connection: Connection,
  { session, kinds, since = "now", user, wait = true, signal }: ChangesOptions,
): AsyncGenerator<Change, void, undefined> {
  const query = { session, kinds, user_id: user, from: since };
  for (let isEnd = wait; !isEnd; ) {
    const call = { method: "GET", path: PATH, query: { ...query, wait: false } } as const;
    const page = await connection.exchange<components["schemas"]["ChangeList"]>(call, PAGE_MS);
    yield* page.changes;
    query.from = page.position;
    isEnd = page.is_end;
  }
  let hasBegun = false;
  for (let failures = 0; wait && !signal?.aborted; ) {
    let failure: unknown;
    try {
      const call: Call = { method: "GET", path: PATH, query, accept: EVENT_STREAM };
      for await (const { id, change } of frames(connection, call, signal)) {
        [query.from, hasBegun, failures] = [id ?? query.from, true, 0];
        if (change !== undefined) yield change;
      }
      failure = new ConnectionFailed("The stream is over");
    } catch (error) {
      failure = error;
    }
    if (signal?.aborted) return;
    failures += 1;
    if (!isRetryable(failure) || (!hasBegun && failures >= ATTEMPTS)) throw failure;
    await pause(pauseBefore(failure, failures), signal);
  }
}

interface Frame {
  id: string | undefined;
  change: Change | undefined;
}

/** The frames of one stream. */
async function* frames(
  connection: Connection,
  call: Call,
  signal: AbortSignal | undefined,
): AsyncGenerator<Frame, void, undefined> {
  const over = new AbortController();
  const abort = () => over.abort();
  let timer = setTimeout(abort, SILENCE_MS);
  signal?.addEventListener("abort", abort);
  try {
    const response = await connection.send(call, over.signal);
    if (!response.headers.get("content-type")?.startsWith(EVENT_STREAM) || response.body === null) {
      throw new UnexpectedAnswer("What answered is not the API that is known here (no stream)");
    }
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let waiting = "";
    for (;;) {
      const { done, value } = await told(() => reader.read());
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(abort, SILENCE_MS);
      const parts = (waiting + decoder.decode(value, { stream: true })).split("\n\n");
      waiting = parts.pop() ?? "";
      for (const part of parts) yield frameOf(call, part);
    }
  } catch (error) {
    if (over.signal.aborted && !(error instanceof RecollectError && !error.retryable)) {
      throw new NoAnswer("The stream has been silent for too long", { cause: error });
    }
    throw error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    over.abort(); // whoever goes on no further leaves no connection open
  }
}

function frameOf(call: Call, text: string): Frame {
  const fields = new Map<string, string>();
  for (const line of text.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon >= 0) fields.set(line.slice(0, colon), line.slice(colon + 2));
  }
  const data = fields.get("data");
  return { id: fields.get("id"), change: data === undefined ? undefined : read<Change>(call, data) };
}
