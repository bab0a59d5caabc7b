// Two days beside each other: what failed on one alone, who was there on one alone, and the sessions.
import * as api from "./api.js";
import { empty, h, put } from "./elements.js";
import { count, dayName, ms } from "./format.js";
import { to } from "./past.js";
import { byDay, within } from "./sessions.js";

const PAGE = 500;
const SHOWN = 8;

export async function show(room, { query }) {
  const [first, second] = await chosen(query);
  const input = (name, value, label) => h("label.check", {}, label, h("input", { type: "date", name, value, required: true }));
  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    location.hash = to("days", null, Object.fromEntries(new FormData(form)));
  } }, input("a", first, "From"), input("b", second, "to"), h("button", { type: "submit" }, "Compare"));
  put(room, h("p.crumbs", {}, h("a", { href: to("sessions") }, "Sessions")), h("h1", {}, "What was different"), form);
  if (!first || !second) {
    put(room, empty("No session yet, so no day to compare."));
    return;
  }
  const [before, after] = await Promise.all([first, second].map(day));
  put(room, figures(before, after),
    h("div.columns.even", {}, only(before, after), only(after, before)),
    h("div.columns.even", {}, sessionsOf(before), sessionsOf(after)));
}

const two = (number) => String(number).padStart(2, "0");

/** A moment's day, as fields for days have it. */
function dayOf(at) {
  const date = new Date(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Those that are asked for; else the last day with a session, and the day before it. */
async function chosen(query) {
  if (query.get("a") && query.get("b")) return [query.get("a"), query.get("b")];
  const { sessions } = await api.sessions({ limit: 1 });
  if (!sessions.length) return ["", ""];
  const last = new Date(sessions[0].last_at);
  const before = new Date(last);
  before.setDate(last.getDate() - 1);
  return [dayOf(before), dayOf(last)];
}

/** What the first sessions of a day come to. */
async function day(name) {
  const { sessions, next_cursor: more } = await api.sessions({ limit: PAGE, ...within(name) });
  return { name, sessions, more: Boolean(more), ...summed(sessions) };
}

/** Figures of sessions; names and failures each with the session that has them. */
export function summed(sessions) {
  const failing = sessions.filter((one) => one.failed_count);
  const noted = (names) => {
    const by = new Map();
    for (const one of sessions) for (const name of names(one)) if (!by.has(name)) by.set(name, one);
    return by;
  };
  const sum = (value) => sessions.reduce((total, one) => total + value(one), 0);
  return {
    figures: { Sessions: sessions.length, "with failures": failing.length, Events: sum((one) => one.event_count), failed: sum((one) => one.failed_count) },
    failures: noted((one) => (one.failure ? [kindOf(one.failure)] : [])),
    agents: noted((one) => one.agents),
    users: noted((one) => one.user_ids),
  };
}

/** A failure without what tells one case from another: numbers, and what comes after the first details. */
export const kindOf = (failure) => failure.split("; ")[0].replace(/\d[\w.-]*/g, "…");

const title = ({ name }) => dayName(`${name}T12:00:00`);

function figures(before, after) {
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Figures of both days" }, h("table.list", {},
    h("thead", {}, h("tr", {}, h("td", {}), [before, after].map((one) => h("th", { scope: "col" }, title(one))))),
    h("tbody", {}, Object.keys(before.figures).map((name) => h("tr", {}, h("th", { scope: "row" }, name),
      [before, after].map((one) => h("td", {}, `${one.figures[name].toLocaleString()}${one.more ? " or more" : ""}`)))))));
}

/** What one day has and the other one has not. */
function only(one, other) {
  const missing = (kind) => [...one[kind]].filter(([name]) => !other[kind].has(name));
  const named = (text, kind, place) => {
    const names = missing(kind);
    return names.length ? [h("h3", {}, text), h("p.chips", {}, names.slice(0, SHOWN).map(([name, session]) =>
      h("a.chip", { href: place(name, session) }, name)), names.length > SHOWN ? h("span.dim.small", {}, `and ${names.length - SHOWN} more`) : null)] : null;
  };
  const failed = missing("failures").sort(([, a], [, b]) => ms(a.last_at) - ms(b.last_at));
  const parts = [
    failed.length ? [h("h3", {}, "Failed"), h("ul.plain", {}, failed.slice(0, SHOWN).map(([, session]) => h("li", {},
      h("a.bad", { href: to("event", session.failed_event_id) }, session.failure), h("span.dim.small", {}, " in ", h("a", { href: to("session", session.session_id) }, session.session_id)))),
      failed.length > SHOWN ? h("li.dim", {}, `and ${failed.length - SHOWN} more`) : null)] : null,
    named("Agents", "agents", (name, session) => to("session", session.session_id)),
    named("Users", "users", (name) => to("user", name)),
  ].filter(Boolean);
  return h("section.card", {}, h("h2", {}, `Only on ${title(one)}`), parts.length ? parts : empty("Nothing that the other day has not."));
}

function sessionsOf(one) {
  const list = h("details", {}, h("summary", {}, count(one.sessions.length, "session"), " of ", title(one)));
  const days = byDay("h3");
  days.add(one.sessions);
  list.append(days.list);
  return h("section.card", {}, list, h("p", {}, h("a", { href: to("sessions", null, { day: one.name }) }, "Search them")));
}
