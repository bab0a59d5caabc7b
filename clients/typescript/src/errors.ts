/**
 * What can go wrong, as one tree; each error says whether the same again may succeed.
 *
 * RecollectError
 * ├── ApiError            the API answered with a problem (RFC 9457)
 * │   ├── InvalidInput    400 405 408 413 415 422 431: `errors` names fields and rules
 * │   ├── Unauthenticated 401
 * │   ├── Forbidden       403
 * │   ├── NotFound        404
 * │   ├── EventConflict   409: the id is taken by other content
 * │   ├── Overloaded      429: retryable, after `retryAfterMs`
 * │   ├── Unavailable     502 503: retryable, after `retryAfterMs`
 * │   ├── TimeLimit       504: ask for less, or allow more time
 * │   └── ServerFault     500: `requestId` finds it in the log of the API
 * ├── ConnectionFailed    nothing answered, or the connection broke; retryable
 * │   └── NoAnswer        in time: retryable, but a question is not asked again by itself
 * └── UnexpectedAnswer    what answered is not the API, or is too old or too new
 */
import type { components } from "./api.js";

export type Problem = components["schemas"]["Problem"];

const PROBLEM_PREFIX = "urn:recollect:problem:";

/** Base of everything that this package throws about the API. */
export class RecollectError extends Error {
  /** Whether the same request may succeed later. */
  readonly retryable: boolean = false;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The API answered with a problem. */
export class ApiError extends RecollectError {
  /** What follows `urn:recollect:problem:` in its type. */
  readonly kind: string;
  readonly status: number;
  readonly title: string;
  /** What happened this time, for people. */
  readonly detail: string;
  /** Which field broke which rule. */
  readonly errors: Problem["errors"];
  /** Under which the log of the API has it. */
  readonly requestId: string | null;
  /** How long the API asks to wait; null: it does not say. */
  readonly retryAfterMs: number | null;

  constructor(problem: Problem, retryAfterMs: number | null = null) {
    const rules = (problem.errors ?? []).map((error) => `${error.field}: ${error.rule}`);
    super(`${problem.title}: ${rules.join("; ") || problem.detail}`);
    this.kind = problem.type.replace(PROBLEM_PREFIX, "");
    this.status = problem.status;
    this.title = problem.title;
    this.detail = problem.detail;
    this.errors = problem.errors ?? [];
    this.requestId = problem.request_id ?? null;
    this.retryAfterMs = retryAfterMs;
  }
}

export class InvalidInput extends ApiError {}
export class Unauthenticated extends ApiError {}
export class Forbidden extends ApiError {}
export class NotFound extends ApiError {}
export class EventConflict extends ApiError {}
export class TimeLimit extends ApiError {}
export class ServerFault extends ApiError {}
export class Overloaded extends ApiError {
  override readonly retryable = true;
}
export class Unavailable extends ApiError {
  override readonly retryable = true;
}

/** Nothing answered, or the connection broke. */
export class ConnectionFailed extends RecollectError {
  override readonly retryable = true;
}

/** Nothing answered in time. */
export class NoAnswer extends ConnectionFailed {}

/** What answered is not the API that this client knows. */
export class UnexpectedAnswer extends RecollectError {}

const BY_STATUS: Readonly<Record<number, typeof ApiError>> = {
  401: Unauthenticated,
  403: Forbidden,
  404: NotFound,
  409: EventConflict,
  429: Overloaded,
  500: ServerFault,
  502: Unavailable, // of a proxy whose API restarts
  503: Unavailable,
  504: TimeLimit,
};

/** The error of a problem, typed by its status. */
export function apiError(problem: Problem, retryAfterMs: number | null = null): ApiError {
  const other = problem.status >= 500 ? ServerFault : InvalidInput;
  return new (BY_STATUS[problem.status] ?? other)(problem, retryAfterMs);
}

/** The error that a body of status 400 and more tells; a proxy in between has no problem to show. */
export function errorOf(status: number, retryAfter: string | null, body: string): ApiError {
  const unknown = { title: `HTTP ${status}`, detail: body.slice(0, 200), errors: [] };
  let problem: Problem = { type: `${PROBLEM_PREFIX}unknown`, status, ...unknown };
  try {
    const told: unknown = JSON.parse(body);
    if (told !== null && typeof told === "object" && "type" in told) problem = told as Problem;
  } catch {
    // no problem, but the words of somebody else
  }
  const seconds = /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) : null;
  // The status alone is believed to be of this answer.
  return apiError({ ...problem, status }, seconds === null ? null : seconds * 1000);
}
