// What is asked of the API, with the key of whoever looks; nothing that is shown counts as recalled.

const STORE = "recollect";
let login = read();

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(STORE)) || null;
  } catch {
    return null;
  }
}

/** Key, tenant and view of whoever looks; gone when the tab is closed. Null: nobody. */
export const session = () => login;

export function keep(values) {
  login = values && { ...login, ...values };
  if (login) sessionStorage.setItem(STORE, JSON.stringify(login));
  else sessionStorage.clear(); // what pages have noted, too
}

/** What the API said was wrong. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.body = body;
    this.errors = body.errors || [];
  }
}

const ROOT = new URL("../", document.baseURI);
let position = null;

/** From now on the memory is read as of a position; null: as it is. */
export function readAsOf(text) {
  position = text;
}

async function send(method, path, { query = {}, body, as = login } = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, one);
  }
  const headers = { Accept: "application/json" };
  if (as && as.key) headers.Authorization = `Bearer ${as.key}`;
  if (as && as.tenant) headers["X-Tenant"] = as.tenant;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: body && JSON.stringify(body), cache: "no-store", credentials: "omit" });
  } catch {
    throw new Problem(0, { detail: "The server cannot be reached." });
  }
  let said;
  try {
    said = await answer.json();
  } catch {
    said = {};
  }
  if (!answer.ok) throw new Problem(answer.status, said);
  return said;
}

const view = () => ({ user_id: login ? login.view : null, record_access: false });
const past = () => (position ? { as_of_position: position } : {});
const part = encodeURIComponent;
const filled = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== ""));

/** Who the key makes of us: {view, views}. Views are those that may be chosen; null: none may. */
export async function probe(as) {
  const may = async (user) => {
    try {
      await send("GET", "v1/sessions", { query: { limit: 1, user_id: user }, as });
      return true;
    } catch (problem) {
      if (problem.status === 403) return false;
      throw problem;
    }
  };
  await send("GET", "v1/sessions", { query: { limit: 1 }, as });
  const everyone = await may("*");
  const others = everyone || (await may("nobody-of-this-name"));
  return { view: everyone ? "*" : null, everyone, others };
}

export const sessions = (query) => send("GET", "v1/sessions", { query: { ...past(), ...query, ...view() } });
export const sessionEvents = (name, query) =>
  send("GET", `v1/sessions/${part(name)}/events`, { query: { ...past(), ...query, ...view() } });
export const summary = (name) => send("GET", `v1/summaries/session/${part(name)}`, { query: view() });
export const event = (name) => send("GET", `v1/events/${part(name)}`, { query: view() });
export const lineage = (name, query) =>
  send("GET", `v1/nodes/${part(name)}/lineage`, { query: { ...past(), ...query, ...view() } });
export const neighbours = (name, query) =>
  send("GET", `v1/nodes/${part(name)}/neighbours`, { query: { ...past(), ...query, ...view() } });
export const entities = (query) => send("GET", "v1/entities", { query: { ...query, ...view() } });
export const entity = (name, query) => send("GET", `v1/entities/${part(name)}`, { query: { ...query, ...view() } });
export const facts = (name, query) => send("GET", `v1/facts/${part(name)}`, { query: { ...past(), ...query, ...view() } });
export const ask = (question) =>
  send("POST", "v1/query/subgraph", { body: filled({ ...ASKER, timeout_ms: PATIENCE_MS, ...question, ...view(), ...past() }) });
export const why = (question) => send("POST", "v1/query/why", { body: filled({ ...ASKER, timeout_ms: PATIENCE_MS, ...question, ...view(), ...past() }) });
export const user = (name) => send("GET", `v1/users/${part(name)}`, { query: { ...past(), ...view(), limit: 500 } });
/** Ask for an erasure, go on with it, or see how far it is; `confirm` begins it. */
export const erase = (name, query = {}) => send("DELETE", `v1/users/${part(name)}`, { query });

/** Withdraw what events said; null: what holds by now ends. The position behind which it is known. */
export async function retract(fact, sources, reason) {
  const party = ({ name, type, subtype }) => filled({ name, type, subtype });
  const events = sources.map((source) => filled({
    ...ASKER, event_id: uuid(), trace_id: ASKER.session_id, event_type: "memory.fact_retracted",
    occurred_at: new Date().toISOString(), user_id: fact.user_id,
    payload: filled({
      source: party(fact.source), relation: fact.relation, target: party(fact.target), edge_type: fact.edge_type,
      event_id: source, reason,
    }),
  }));
  const { results } = await send("POST", "v1/events/batch", { body: { events } });
  const refused = results.find((one) => one.error);
  if (refused) throw new Problem(refused.status, refused.error);
  return results.at(-1).global_position;
}

/** A random UUID; `crypto.randomUUID` is there for pages of https alone. */
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const text = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

export const deadLetters = (query) => send("GET", "v1/admin/dead-letters", { query });
/** Have dead letters tried again: one that is named by stage, partition and number, or all. */
export const retryLetters = (place = {}) => send("POST", "v1/admin/dead-letters/retry", { body: place });
/** The graphs of the ledger, their last proofs, and how two of them differed. */
export const operations = () => send("GET", "v1/admin/operations");
export const targets = () => send("GET", "v1/admin/targets");
export const ready = () =>
  send("GET", "health/ready").catch((problem) => {
    if (problem.body && problem.body.checks) return { status: "not ready", ...problem.body };
    throw problem;
  });

/** A person waits, as for the first plans of a graph. */
const PATIENCE_MS = 20_000;
const ASKER = { session_id: "explorer", agent_id: "explorer" };
let legendOnce;

/** What the types of nodes and edges mean, by the server's schema. */
export function legend() {
  legendOnce ||= fetch("legend.json").then((answer) => answer.json());
  legendOnce.catch(() => (legendOnce = null)); // asked again by the next page
  return legendOnce;
}
