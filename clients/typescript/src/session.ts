/** A stretch of work of an agent: what is logged in it, and what caused what. */
import type { Kind, Made, Status } from "./events.js";
import { contentOf, eventJson, newEventId, ROLES } from "./events.js";

export interface SessionOptions {
  /** Who acts; default the client's. */
  agent?: string;
  /** The person concerned; reads see what is theirs, and what is nobody's. */
  user?: string;
  /** What belongs together beyond the session; default the session. */
  trace?: string;
}

export interface LogOptions {
  /** Name of the tool that is called, or has returned. */
  tool?: string;
  status?: Status;
  /**
   * Id of the event that caused it; null: nothing did. Default: for a result its call, else what
   * came before it in the session.
   */
  parent?: string | null;
  /** 1 to 10. */
  importance?: number;
  /** When it happened; default now. */
  at?: Date;
  /** Who acts; default the session's, of a user's message the user. */
  agent?: string;
  /** The person concerned; default the session's. */
  user?: string;
}

/** Statements about the memory itself: nothing that happened, so no place among causes. */
const ABOUT_MEMORY = "memory.";
const MAX_OPEN_CALLS = 100;

export class Session {
  readonly id: string;
  readonly agent: string;
  readonly user: string | undefined;
  readonly trace: string;
  readonly #deliver: (event: Made) => void;
  #last: string | undefined;
  #calls: { tool: string | undefined; id: string }[] = [];

  constructor(
    deliver: (event: Made) => void,
    id: string,
    { agent, user, trace }: SessionOptions & { agent: string },
  ) {
    this.id = id;
    this.agent = agent;
    this.user = user;
    this.trace = trace ?? id;
    this.#deliver = deliver;
  }

  /** Log what happened; returns at once with the event's id, and sends in the background. */
  log(kind: Kind, content?: unknown, options: LogOptions = {}): string {
    const happened = contentOf(kind, content);
    const nowMs = Date.now();
    const id = newEventId(nowMs);
    const { tool, at, parent = this.#parentOf(kind, tool) } = options;
    const user = options.user ?? this.user;
    const fields = {
      event_id: id,
      event_type: happened.eventType,
      occurred_at: (at ?? new Date(nowMs)).toISOString(),
      session_id: this.id,
      trace_id: this.trace,
      agent_id: options.agent ?? this.#actor(kind, user),
      tool_name: tool,
      parent_event_id: parent,
      status: options.status ?? happened.status,
      importance_hint: options.importance,
      user_id: user,
      payload: happened.payload,
    };
    const json = eventJson(fields, tool !== undefined);
    this.#deliver({ eventId: id, sessionId: this.id, json });
    this.#note(kind, tool, id);
    return id;
  }

  #actor(kind: string, user: string | undefined): string {
    if (kind === "user") return user ?? "user";
    return ROLES.includes(kind) && kind !== "assistant" ? kind : this.agent;
  }

  #parentOf(kind: string, tool: string | undefined): string | undefined {
    if (kind.startsWith(ABOUT_MEMORY)) return undefined;
    const isOutcome = kind === "result" || kind === "failure";
    const index = isOutcome ? this.#calls.findLastIndex((call) => call.tool === tool) : -1;
    return index < 0 ? this.#last : this.#calls.splice(index, 1)[0]?.id;
  }

  /** What comes next came after this; a call is not over before its result. */
  #note(kind: string, tool: string | undefined, id: string): void {
    if (kind === "call") this.#calls = [...this.#calls.slice(-MAX_OPEN_CALLS), { tool, id }];
    else if (!kind.startsWith(ABOUT_MEMORY)) this.#last = id;
  }
}
