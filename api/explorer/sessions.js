// Sessions by day, the newest first, with a search.
import * as api from "./api.js";
import { badge, empty, h, moreButton, say } from "./elements.js";
import { count, dayName, duration, ms, time } from "./format.js";
import { to } from "./past.js";

const PAGE = 50;

export async function show(room, { query }) {
  const search = h("input", {
    type: "search", name: "q", value: query.get("q") || "", "aria-label": "Search sessions",
    placeholder: "Session, agent, user, tool or status",
  });
  const day = h("input", { type: "date", name: "day", value: query.get("day") || "", "aria-label": "Day" });
  const failed = h("input", { type: "checkbox", name: "failed" });
  failed.checked = query.get("failed") === "1";
  const go = () => {
    const wanted = {};
    if (search.value.trim()) wanted.q = search.value.trim();
    if (day.value) wanted.day = day.value;
    if (failed.checked) wanted.failed = "1";
    location.hash = to("sessions", null, wanted);
  };
  const form = h("form.filters", { role: "search", onsubmit: (event) => { event.preventDefault(); go(); } },
    search, day,
    h("label.check", {}, failed, "with failures"),
    h("button", { type: "submit" }, "Search"),
    h("a.button", { href: to("days") }, "Compare two days"));
  day.addEventListener("change", go);
  failed.addEventListener("change", go);
  room.append(h("h1", {}, "Sessions"), form);

  const asked = { limit: PAGE, query: query.get("q"), failed: failed.checked ? "true" : null, ...within(query.get("day")) };
  const { list, add } = byDay();
  let page = await api.sessions(asked);
  add(page.sessions);
  room.append(list);
  if (!page.sessions.length) {
    const filtered = asked.query || asked.failed || asked.since;
    room.append(filtered
      ? empty("No session matches.", "The search looks at names, not at what was said: for that, ask.")
      : empty("No session yet.", "Send events, or try `recollect demo --keep`.", "Whoever looks with a key of one user sees that user’s sessions."));
  }
  if (page.next_cursor) {
    room.append(moreButton("Earlier sessions", async () => {
      page = await api.sessions({ ...asked, cursor: page.next_cursor });
      add(page.sessions);
      say(count(page.sessions.length, "session"));
      return page.next_cursor;
    }));
  }
}

/** A day of the reader's time zone as a stretch of time. */
export function within(day) {
  if (!day || Number.isNaN(Date.parse(`${day}T00:00:00`))) return {};
  const since = new Date(`${day}T00:00:00`);
  const until = new Date(since);
  until.setDate(until.getDate() + 1);
  return { since: since.toISOString(), until: until.toISOString() };
}

/** A list of sessions below their days, to be added to; `head`: the tag of a day's heading. */
export function byDay(head = "h2") {
  const list = h("div.days", {});
  let last = null;
  const add = (sessions) => {
    for (const one of sessions) {
      const name = dayName(one.last_at);
      if (name !== last) list.append(h("section.day", {}, h(head, {}, name), h("ul.sessions", {})));
      last = name;
      list.lastElementChild.querySelector("ul").append(line(one));
    }
  };
  return { list, add };
}

function line(one) {
  const length = ms(one.last_at) - ms(one.first_at);
  return h(`li${one.failed_count ? ".failing" : ""}`, {},
    h("a.row", { href: to("session", one.session_id) },
      h("span.when", {}, time(one.first_at, "short"), "–", time(one.last_at, "short"), h("span.dim.small", {}, length ? duration(length) : "")),
      h("span.what", {},
        h("span.name", {}, one.session_id,
          one.failed_count ? badge(`${one.failed_count} failed`, "bad") : null),
        h("span.text", {}, one.begins || ""),
        h("span.dim.small", {}, [...one.agents, ...one.user_ids.map((user) => `for ${user}`)].join(" · "), ` · ${count(one.event_count, "event")}`))),
    one.failure ? h("a.text.bad", { href: to("event", one.failed_event_id) }, one.failure) : null);
}
