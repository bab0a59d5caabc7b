/**
 * Memory for AI agents: log what happens, ask what is known, and why.
 *
 *     import { Memory } from "recollect-client";
 *
 *     const memory = new Memory("http://127.0.0.1:8080", { key });
 *     const session = memory.session("s-1", { agent: "payments" });
 *     session.log("user", "My card was charged twice");
 *     console.log((await memory.ask("why was the card charged twice?", { session })).text);
 */
export type { components } from "./api.js";
export type { Change, ChangesOptions } from "./changes.js";
export type { Counts, Undelivered } from "./delivery.js";
export * from "./errors.js";
export type { Kind, Role, Status } from "./events.js";
export * from "./memory.js";
export type { LogOptions, SessionOptions } from "./session.js";
export { Session } from "./session.js";
