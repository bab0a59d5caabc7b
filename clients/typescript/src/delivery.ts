/**
 * Events on their way to the ledger: a bounded queue, sent in batches behind the caller's back.
 *
 * `put` never waits and never fails. What cannot be delivered is counted, called back and warned of.
 */
import type { components } from "./api.js";
import type { Connection } from "./calls.js";
import { pause, pauseBefore, read } from "./calls.js";
import { apiError, InvalidInput, RecollectError, UnexpectedAnswer } from "./errors.js";
import { ApiError } from "./errors.js";
import type { Made } from "./events.js";

type BatchResult = components["schemas"]["BatchResult"];

const MAX_BATCH_EVENTS = 500;
const MAX_BATCH_CHARACTERS = 2 ** 20; // four bytes each at most: half of what the API takes
const LINGER_MS = 10; // what is logged so shortly after one another goes in one batch
const GIVE_UP_MS = 300_000;
const TIMEOUT_MS = 30_000;
const REQUEST_TIMEOUT = 408;
const SESSIONS_REMEMBERED = 1_000;

/** An event that is not in the ledger. */
export interface Undelivered {
  eventId: string;
  /** Why, with field and rule where one was broken. */
  reason: string;
  /** The API refused it; else it was dropped here: the queue was full, or nobody answered. */
  wasRefused: boolean;
  /** The event as it was to be sent. */
  eventJson: string;
  error?: RecollectError;
}

/** What became of the events that were logged; each is counted once. */
export interface Counts {
  waiting: number;
  accepted: number;
  refused: number;
  dropped: number;
}

interface Waiting {
  event: Made;
  sinceMs: number;
}

/** The queue, and what sends what is in it. */
export class Outbox {
  readonly #connection: Connection;
  readonly #most: number;
  readonly #told: ((event: Undelivered) => void) | undefined;
  readonly #undecided = new Set<Waiting>();
  readonly #positions = new Map<string, string>();
  #queue: Waiting[] = [];
  #counts = { accepted: 0, refused: 0, dropped: 0 };
  #changed: (() => void)[] = [];
  #isSending = false;
  #isClosed = false;
  #hasWarned = false;

  constructor(
    connection: Connection,
    most: number,
    told: ((event: Undelivered) => void) | undefined,
  ) {
    this.#connection = connection;
    this.#most = most;
    this.#told = told;
  }

  get counts(): Counts {
    return { waiting: this.#undecided.size, ...this.#counts };
  }

  /** Take an event; it goes out by itself. */
  put(event: Made): void {
    if (this.#isClosed || this.#undecided.size >= this.#most) {
      const state = this.#isClosed ? "the client is closed" : "the queue is full";
      this.#giveUp(event, `dropped: ${state}`, false);
      return;
    }
    const waiting = { event, sinceMs: 0 };
    this.#undecided.add(waiting);
    this.#queue.push(waiting);
    if (!this.#isSending) void this.#run();
  }

  /** Wait until all that was taken is decided; whether it is. */
  async flush(timeoutMs: number): Promise<boolean> {
    const wanted = [...this.#undecided];
    const endMs = Date.now() + timeoutMs;
    while (wanted.some((waiting) => this.#undecided.has(waiting))) {
      const leftMs = endMs - Date.now();
      if (leftMs <= 0) return false;
      let timer: ReturnType<typeof setTimeout> | undefined;
      await new Promise<void>((resolve) => {
        this.#changed.push(resolve);
        timer = setTimeout(resolve, leftMs);
      });
      clearTimeout(timer);
    }
    return true;
  }

  /** Of the newest event of the session that was accepted, else of any. */
  position(sessionId: string): string | undefined {
    return this.#positions.get(sessionId) ?? [...this.#positions.values()].at(-1);
  }

  /** The newest position of each session. */
  get positions(): ReadonlyMap<string, string> {
    return this.#positions;
  }

  /** Send what waits, and take nothing more; what is left then is dropped, and told. */
  async close(timeoutMs: number): Promise<void> {
    await this.flush(timeoutMs);
    this.#isClosed = true;
    const reason = `dropped: not delivered within ${timeoutMs} ms of the end`;
    const left = this.#queue.splice(0);
    for (const { event } of left) this.#giveUp(event, reason, false);
    this.#decide(left);
  }

  async #run(): Promise<void> {
    this.#isSending = true;
    for (let attempt = 0; ; ) {
      await pause(attempt === 0 ? LINGER_MS : 0);
      const batch = this.#nextBatch();
      if (batch.length === 0) break;
      const failure = await this.#deliver(batch);
      attempt = failure === undefined ? 0 : attempt + 1;
      if (failure !== undefined) await this.#pauseUnlessClosed(pauseBefore(failure, attempt));
    }
    this.#isSending = false;
  }

  async #pauseUnlessClosed(ms: number): Promise<void> {
    const endMs = Date.now() + ms;
    while (!this.#isClosed && Date.now() < endMs) await pause(Math.min(100, ms));
  }

  #nextBatch(): Waiting[] {
    let size = 0;
    let count = 0;
    for (const { event } of this.#queue.slice(0, MAX_BATCH_EVENTS)) {
      size += event.json.length;
      if (count > 0 && size > MAX_BATCH_CHARACTERS) break;
      count += 1;
    }
    const batch = this.#queue.splice(0, count);
    for (const waiting of batch) waiting.sinceMs ||= Date.now();
    return batch;
  }

  /** Send a batch; returns why all of it is to be sent again, later. */
  async #deliver(batch: Waiting[]): Promise<RecollectError | undefined> {
    try {
      const results = await this.#send(batch.map(({ event }) => event));
      if (results.length !== batch.length) {
        throw new UnexpectedAnswer(`${batch.length} events sent, ${results.length} answered`);
      }
      return this.#settle(batch, results);
    } catch (failure) {
      const error = failure instanceof RecollectError ? failure : misunderstood(failure);
      if (maySucceed(error)) {
        this.#waitAgain(batch, error, true);
        return error;
      }
      if (error instanceof InvalidInput && batch.length > 1) {
        // One event that is too large, or more events than this API takes: which?
        const middle = Math.floor(batch.length / 2);
        const first = await this.#deliver(batch.slice(0, middle));
        return (await this.#deliver(batch.slice(middle))) ?? first;
      }
      this.#refuse(batch, error);
      return undefined;
    }
  }

  async #send(events: Made[]): Promise<BatchResult[]> {
    const body = `{"events":[${events.map(({ json }) => json).join(",")}]}`;
    const call = { method: "POST", path: "/v1/events/batch", body } as const;
    const text = await this.#connection.text(call, TIMEOUT_MS);
    return read<Partial<components["schemas"]["BatchAccepted"]>>(call, text).results ?? [];
  }

  #settle(batch: Waiting[], results: BatchResult[]): RecollectError | undefined {
    const again: Waiting[] = [];
    let failure: RecollectError | undefined;
    // All of it is understood before any of it counts.
    const errors = results.map((result) => (result.error == null ? null : apiError(result.error)));
    batch.forEach((waiting, index) => {
      const error = errors[index];
      if (error == null) {
        this.#accept(waiting.event, results[index]?.global_position);
        return;
      }
      if (maySucceed(error)) {
        again.push(waiting);
        failure = error;
      } else {
        this.#refuse([waiting], error);
      }
    });
    // Behind what waits: that may be of partitions which take events.
    if (failure !== undefined) this.#waitAgain(again, failure, false);
    this.#decide(batch.filter((waiting) => !again.includes(waiting)));
    return again.length === batch.length ? failure : undefined;
  }

  #waitAgain(batch: Waiting[], error: RecollectError, atTheFront: boolean): void {
    const oldestMs = Date.now() - GIVE_UP_MS;
    const isYoung = ({ sinceMs }: Waiting) => !this.#isClosed && sinceMs >= oldestMs;
    const young = batch.filter(isYoung);
    const late = batch.filter((waiting) => !isYoung(waiting));
    this.#queue = atTheFront ? [...young, ...this.#queue] : [...this.#queue, ...young];
    const reason = `dropped: not delivered for ${GIVE_UP_MS} ms (${error.message})`;
    for (const { event } of late) this.#giveUp(event, reason, false, error);
    this.#decide(late);
  }

  #accept(event: Made, position: string | null | undefined): void {
    this.#counts.accepted += 1;
    if (position == null) return;
    this.#positions.delete(event.sessionId); // the newest is the last
    this.#positions.set(event.sessionId, position);
    for (const sessionId of this.#positions.keys()) {
      if (this.#positions.size <= SESSIONS_REMEMBERED) break;
      this.#positions.delete(sessionId);
    }
  }

  #decide(batch: Waiting[]): void {
    for (const waiting of batch) this.#undecided.delete(waiting);
    for (const resolve of this.#changed.splice(0)) resolve();
  }

  #refuse(batch: Waiting[], error: RecollectError): void {
    for (const { event } of batch) this.#giveUp(event, `refused: ${error.message}`, true, error);
    this.#decide(batch);
  }

  /** Count, call back and, the first time, warn. */
  #giveUp(event: Made, reason: string, wasRefused: boolean, error?: RecollectError): void {
    this.#counts[wasRefused ? "refused" : "dropped"] += 1;
    if (!this.#hasWarned) {
      this.#hasWarned = true;
      console.warn(`recollect: an event is not in the memory (${reason}); further ones are counted`);
    }
    const { eventId, json } = event;
    try {
      const cause = error === undefined ? {} : { error };
      this.#told?.({ eventId, reason, wasRefused, eventJson: json, ...cause });
    } catch (failure) {
      console.error("recollect: what is called for undelivered events failed", failure);
    }
  }
}

/** Of an answer that has another form than any that is known. */
function misunderstood(cause: unknown): RecollectError {
  return new UnexpectedAnswer("What answered is not the API that is known here", { cause });
}

/** Whether the same events may be accepted later; to send them again harms nothing. */
function maySucceed(error: RecollectError): boolean {
  const status = error instanceof ApiError ? error.status : 0;
  return error.retryable || status >= 500 || status === REQUEST_TIMEOUT;
}
