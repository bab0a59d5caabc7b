/** Requests over fetch: how replies are read, and when to try again. */
import { ApiError, ConnectionFailed, errorOf, NoAnswer, RecollectError } from "./errors.js";
import { UnexpectedAnswer } from "./errors.js";

export const ATTEMPTS = 4;
export const GRACE_MS = 5_000; // beyond the time that the API has: for the way there and back
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 10_000;

/** A request; `body` is sent as JSON, a text is JSON already. */
export interface Call {
  method: "GET" | "POST";
  path: string;
  query?: object;
  body?: object | string;
  accept?: string;
  headers?: Record<string, string>;
}

/** The way to an API. */
export class Connection {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, key: string | undefined, tenant: string | undefined) {
    if (!/^https?:\/\//.test(url)) {
      throw new TypeError(`url: ${url} is no address of an API, such as http://127.0.0.1:8080`);
    }
    this.#url = url.replace(/\/+$/, "");
    this.#headers = {
      ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }),
      ...(tenant === undefined ? {} : { "X-Tenant": tenant }),
    };
  }

  /**
   * Send a request once.
   *
   * @throws ConnectionFailed nothing answered.
   * @throws ApiError what came back is a problem.
   */
  async send(call: Call, signal: AbortSignal): Promise<Response> {
    const response = await told(() =>
      fetch(this.#url + call.path + queryText(call.query), {
        method: call.method,
        headers: {
          ...this.#headers,
          Accept: call.accept ?? "application/json",
          ...(call.body === undefined ? {} : { "Content-Type": "application/json" }),
          ...call.headers,
        },
        signal,
        ...(call.body === undefined
          ? {}
          : { body: typeof call.body === "string" ? call.body : JSON.stringify(call.body) }),
      }),
    );
    if (response.ok) return response;
    const body = await told(() => response.text());
    throw errorOf(response.status, response.headers.get("retry-after"), body);
  }

  /** Carry out a call once; the text that answers it. */
  async text(call: Call, timeoutMs: number): Promise<string> {
    const response = await this.send(call, AbortSignal.timeout(timeoutMs));
    return told(() => response.text());
  }

  /** Carry out a call, again where that may help; the JSON that answers it. */
  async exchange<T>(call: Call, timeoutMs: number): Promise<T> {
    return read<T>(call, await this.exchangeText(call, timeoutMs));
  }

  /** The same, with a text as the answer. */
  async exchangeText(call: Call, timeoutMs: number): Promise<string> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.text(call, timeoutMs);
      } catch (error) {
        const again = isRetryable(error) && !(error instanceof NoAnswer);
        if (!again || attempt === ATTEMPTS) throw error;
        await pause(pauseBefore(error, attempt));
      }
    }
  }
}

/** The JSON of an answer. */
export function read<T>(call: Call, text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    const reason = `What answered is not the API that is known here (${call.method} ${call.path})`;
    throw new UnexpectedAnswer(reason, { cause: error });
  }
}

/** Errors of fetch become ours. */
export async function told<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof RecollectError) throw error;
    if (error instanceof Error && error.name === "TimeoutError") {
      throw new NoAnswer("Nothing answered in time", { cause: error });
    }
    const reason = error instanceof Error ? (error.cause ?? error) : error;
    throw new ConnectionFailed(`The API cannot be reached (${String(reason)})`, { cause: error });
  }
}

export function isRetryable(error: unknown): boolean {
  return error instanceof RecollectError && error.retryable;
}

/** Milliseconds until the next attempt: what the API asks for, else twice as long each time. */
export function pauseBefore(error: unknown, attempt: number): number {
  const wanted = error instanceof ApiError ? error.retryAfterMs : null;
  if (wanted !== null) return Math.min(wanted, LONGEST_PAUSE_MS) * (1 + Math.random() / 10);
  const longest = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(attempt - 1, 16), LONGEST_PAUSE_MS);
  return longest * (0.5 + Math.random() / 2);
}

/** Ends early when the signal says so. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}

function queryText(query: object = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null) parameters.append(name, String(each));
    }
  }
  return parameters.size === 0 ? "" : `?${parameters}`;
}
