/** A memory behind an API. */
import type { components, paths } from "./api.js";
import type { Call } from "./calls.js";
import { Connection, GRACE_MS } from "./calls.js";
import type { Change, ChangesOptions } from "./changes.js";
import { changes } from "./changes.js";
import type { Counts, Undelivered } from "./delivery.js";
import { Outbox } from "./delivery.js";
import { ConnectionFailed, NoAnswer, TimeLimit } from "./errors.js";
import type { Kind } from "./events.js";
import type { LogOptions, SessionOptions } from "./session.js";
import { Session } from "./session.js";

type Schemas = components["schemas"];
type SaidOtherwise =
  | ("agent_id" | "cursor" | "min_position" | "query")
  | ("session" | "session_id" | "timeout_ms" | "user_id");
type ContextQuery = NonNullable<
  paths["/v1/context/{session_id}"]["get"]["parameters"]["query"]
>;

export interface MemoryOptions {
  /** A key of the API. */
  key?: string;
  /** Who acts, where a session does not say; default `agent`. */
  agent?: string;
  /** The person concerned, likewise. */
  user?: string;
  /** For keys of all tenants. */
  tenant?: string;
  /** How many events may wait; more are dropped, counted and told. Default 10,000. */
  queueEvents?: number;
  /** Called for each event that is not delivered. */
  onUndelivered?: (event: Undelivered) => void;
}

/** Who asks, and how long it may take. */
export interface Asking {
  /** In which it is asked; default the client's own. */
  session?: Session | string;
  /** That asks; default the session's. */
  agent?: string;
  /** In whose view; `*`: over all users, for keys that may. Default the session's. */
  user?: string;
  /** Wait until the graph has what this client logged before. */
  fresh?: boolean;
  /** Whether to ask for text, too: a second request. Default true. */
  text?: boolean;
  /** For the API; default 10,000. */
  timeoutMs?: number;
}

/** Beside the question: what the API takes, by its own names. */
export type AskOptions = Asking & Partial<Omit<Schemas["SubgraphQuery"], SaidOtherwise>>;
export type WhyOptions = Asking & Partial<Omit<Schemas["WhyQuery"], SaidOtherwise>>;
export type FactsOptions = Asking & Partial<Omit<Schemas["FactsQuery"], SaidOtherwise>>;
export type ContextOptions = Asking & Omit<ContextQuery, SaidOtherwise>;

/** An answer, with text for a prompt; it is other people's text. */
export type Told<Response> = Response & { text: string };

const QUEUE_EVENTS = 10_000;
const TIMEOUT_MS = 10_000;
const [SHORTEST_MS, LONGEST_MS] = [100, 30_000]; // of one read, for the API
const MARKDOWN = "text/markdown";

export class Memory {
  /** Where things belong that are logged or asked outside of a session. */
  readonly defaultSession: Session;
  readonly #connection: Connection;
  readonly #outbox: Outbox;
  readonly #agent: string;
  readonly #user: string | undefined;
  readonly #read = new Map<string, string>();

  /**
   * @param url of the API, such as `http://127.0.0.1:8080`.
   * @param options the key, who acts, and the queue.
   */
  constructor(url: string, options: MemoryOptions = {}) {
    this.#connection = new Connection(url, options.key, options.tenant);
    const most = options.queueEvents ?? QUEUE_EVENTS;
    this.#outbox = new Outbox(this.#connection, most, options.onUndelivered);
    this.#agent = options.agent ?? "agent";
    this.#user = options.user;
    this.defaultSession = this.session(`${this.#agent}-${crypto.randomUUID().slice(0, 12)}`);
  }

  /** A session, new or known. */
  session(id = `session-${crypto.randomUUID()}`, options: SessionOptions = {}): Session {
    const user = options.user ?? this.#user;
    return new Session((event) => this.#outbox.put(event), id, {
      agent: options.agent ?? this.#agent,
      ...(user === undefined ? {} : { user }),
      ...(options.trace === undefined ? {} : { trace: options.trace }),
    });
  }

  /** Log what happened outside of a session; see `Session.log`. */
  log(kind: Kind, content?: unknown, options: LogOptions = {}): string {
    return this.defaultSession.log(kind, content, options);
  }

  /** Nodes and text that help with a question; what was logged is found by its words at once. */
  async ask(question: string, options: AskOptions = {}): Promise<Told<Schemas["AtlasResponse"]>> {
    return this.#ask("/v1/query/subgraph", question, { fresh: false, ...options });
  }

  /** Why something happened: what the question is about, and the tree of its causes. */
  async why(question: string, options: WhyOptions = {}): Promise<Told<Schemas["WhyResponse"]>> {
    const told = { ...options, text: false }; // the answer holds its own
    const why = await this.#ask<Schemas["WhyResponse"]>("/v1/query/why", question, told);
    return { ...why, text: why.answer?.text ?? "" };
  }

  /** Facts about what a question names; made of events by the enrichment, soon after them. */
  async facts(question: string, options: FactsOptions = {}): Promise<Told<Schemas["FactsResponse"]>> {
    return this.#ask("/v1/query/facts", question, options);
  }

  /** A session's best events; with `query`, what of it answers that. */
  async context(
    session: Session | string = this.defaultSession,
    options: ContextOptions = {},
  ): Promise<Told<Schemas["AtlasResponse"]>> {
    const { fields, sessionId, text, timeoutMs } = this.#asker({ ...options, session });
    const path = `/v1/context/${encodeURIComponent(sessionId)}`;
    await this.flush(timeoutMs);
    return this.#told({ method: "GET", path, query: fields() }, "query", { text, timeoutMs });
  }

  /**
   * What the memory takes, whoever logs it, in its order, each event once; waits for more, over
   * breaks of the connection. Leave the loop, or abort the signal, to end it.
   */
  changes(options: ChangesOptions = {}): AsyncGenerator<Change, void, undefined> {
    const user = options.user ?? this.#user;
    return changes(this.#connection, { ...options, ...(user === undefined ? {} : { user }) });
  }

  /** How many events wait, were accepted, refused by the API, or dropped here. */
  get counts(): Counts {
    return this.#outbox.counts;
  }

  /** Wait until what was logged is in the ledger, or cannot be; whether that is so. */
  flush(timeoutMs = TIMEOUT_MS): Promise<boolean> {
    return this.#outbox.flush(timeoutMs);
  }

  /**
   * Wait until what was logged is in the graph, and can be walked to.
   *
   * @throws TimeLimit the graph does not get there in time.
   * @throws NoAnswer nor does the API take what was logged.
   */
  async wait(timeoutMs = 30_000): Promise<void> {
    const endMs = Date.now() + timeoutMs;
    if (!(await this.flush(timeoutMs))) {
      throw new NoAnswer(`${this.counts.waiting} events are not with the API in time; they are sent`);
    }
    for (const [sessionId, position] of [...this.#outbox.positions]) {
      while (this.#read.get(sessionId) !== position) {
        const leftMs = bounded(endMs - Date.now());
        const query = { limit: 1, min_position: position, record_access: false, timeout_ms: leftMs };
        try {
          const call = { method: "GET", path: "/v1/entities", query } as const;
          await this.#connection.exchangeText(call, leftMs + GRACE_MS);
          this.#read.set(sessionId, position);
        } catch (error) {
          // The graph is behind, or the API restarts.
          const mayPass = error instanceof TimeLimit || error instanceof ConnectionFailed;
          if (!mayPass || Date.now() >= endMs) throw error;
        }
      }
    }
  }

  /** Send what waits, and tell what cannot be sent. */
  close(timeoutMs = TIMEOUT_MS): Promise<void> {
    return this.#outbox.close(timeoutMs);
  }

  async #ask<Response extends object>(
    path: string,
    question: string,
    options: Asking & object,
  ): Promise<Told<Response>> {
    const { fields, agent, sessionId, text, timeoutMs } = this.#asker(options);
    await this.flush(timeoutMs);
    const body = { query: question, session_id: sessionId, agent_id: agent, ...fields() };
    return this.#told({ method: "POST", path, body }, "body", { text, timeoutMs });
  }

  async #told<Response extends object>(
    call: Call,
    place: "body" | "query",
    { text, timeoutMs }: { text: boolean; timeoutMs: number },
  ): Promise<Told<Response>> {
    const limitMs = timeoutMs + GRACE_MS;
    const response = await this.#connection.exchange<Response>(call, limitMs);
    if (!text) return { ...response, text: "" };
    // The same question, answered as text; counted as read only once.
    const fields = { ...(call[place] as object), record_access: false };
    const asText = { ...call, [place]: fields, accept: MARKDOWN };
    return { ...response, text: (await this.#connection.exchangeText(asText, limitMs)).trim() };
  }

  /** Who asks: what is said, else what the session says. */
  #asker(options: Asking & object) {
    const { session, agent, user, fresh = true, text = true, timeoutMs = TIMEOUT_MS } = options;
    const rest = { ...options } as Record<string, unknown>;
    for (const name of ["session", "agent", "user", "fresh", "text", "timeoutMs"]) delete rest[name];
    const here = session instanceof Session ? session : this.defaultSession;
    const sessionId = typeof session === "string" ? session : here.id;
    const fields = () => ({
      ...rest,
      user_id: user ?? here.user,
      timeout_ms: bounded(timeoutMs),
      // Known when what was logged has been sent.
      min_position: fresh ? this.#outbox.position(sessionId) : undefined,
    });
    return { fields, agent: agent ?? here.agent, sessionId, text, timeoutMs };
  }
}

function bounded(ms: number): number {
  return Math.max(SHORTEST_MS, Math.min(LONGEST_MS, Math.trunc(ms)));
}
