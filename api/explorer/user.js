// A user: wishes, what holds and what held, what several sessions show, and the newest sessions; and
// how all of it is erased.
import { action, dialog, field, until } from "./act.js";
import * as api from "./api.js";
import { badge, empty, h, id, meter, put, say } from "./elements.js";
import { groups } from "./facts.js";
import { count, time } from "./format.js";
import { current, to } from "./past.js";
import { byDay } from "./sessions.js";

const LONGEST_REASON = 200;
const STEPS = {
  fenced: "Nothing more is taken about the user, and nobody reads",
  forgotten: "What was derived is forgotten",
  destroyed: "The keys are destroyed",
  purged: "The graph holds nothing any more",
  done: "It is recorded",
};

export async function show(room, { id: name }) {
  const person = await api.user(name);
  const { entity_id: own, names, wishes, facts, former, sessions } = person;
  const days = byDay("h3");
  days.add(sessions);
  const others = names.filter((one) => one !== person.user_id);
  put(room,
    h("p.crumbs", {}, h("a", { href: to("entities", null, { type: "user" }) }, "Users")),
    h("h1", {}, person.user_id),
    h("p.facts", {}, badge("user"), others.length ? h("span", {}, "also ", h("b", {}, others.join(", "))) : null, id(own)),
    h("p.actions", {},
      h("a.button", { href: to("graph", own) }, "In the graph"),
      h("a.button", { href: to("entity", own) }, "Who mentions them"),
      h("a.button", { href: to("ask", null, { q: `What is known about ${person.user_id}?` }) }, "Ask about them"),
      current() ? null : action("Erase…", "admin", () => erase(person.user_id))),
    card("Wishes", wishes, own, "No wish is known."),
    card("What holds", facts, own, "Nothing is known of them."),
    traits(person),
    former.length ? card("What held before", former, own) : null,
    person.next_cursor ? h("p.dim.small", {}, "There is more: ", h("a", { href: to("entity", own) }, "all facts, over time"), ".") : null,
    h("section.card", {}, h("h2", {}, "Sessions"),
      sessions.length ? days.list : empty("You see none."),
      h("p", {}, h("a", { href: to("sessions", null, { q: person.user_id }) }, "All sessions"))));
}

function card(title, facts, own, none) {
  return h("section.card", {}, h("h2", {}, title), facts.length ? groups(facts, own) : empty(none));
}

const TRAITS = { patterns: "Habits", skills: "What works for them", interests: "What they speak of" };

/** What nobody stated and several sessions show, each with the events that prove it. */
function traits(person) {
  const kinds = Object.entries(TRAITS).filter(([kind]) => person[kind].length);
  return h("section.card", {}, h("h2", {}, "Seen in several sessions"),
    kinds.length ? h("div.traits", {}, kinds.map(([kind, title]) => h("div", {}, h("h3", {}, title), h("ul.plain", {}, nested(person[kind])))))
      : empty("Nothing yet.", "Habits, skills and interests need at least three sessions that show the same, and a pass of consolidation after them."));
}

/** What is a part of another skill stands under that. */
function nested(all) {
  const parts = (whole) => all.filter((one) => (one.part_of ?? null) === whole);
  return parts(null).map((one) => {
    const below = parts(one.name);
    return [trait(one), below.length ? h("li", {}, h("ul.parts", {}, below.map(trait))) : null];
  });
}

function trait({ name, strength, session_count: number, first_seen, last_seen, holds_until, event_ids: proofs }) {
  return h("li.trait", {},
    h("div.head", {}, h("b", {}, name), meter(strength, "The share of the sessions that could show it and do")),
    h("details", {}, h("summary", {}, `${count(number, "session")}, `, time(first_seen, "day"), " to ", time(last_seen, "day")),
      h("p.dim.small", {}, "It is told until ", time(holds_until, "day"), ", or longer if it is seen again."),
      h("ul.plain", {}, proofs.map((one, nth) => h("li", {},
        h("a", { href: to("event", one) }, nth ? "an event of an earlier session" : "the newest event that shows it"), " ", id(one))))));
}

/** Two requests, as the API has it: what would go, then the same with its confirmation. */
async function erase(name) {
  const told = await api.erase(name);
  const typed = h("input", { type: "text", name: "typed", required: true, autocomplete: "off", spellcheck: "false" });
  const reason = h("input", { type: "text", name: "reason", maxlength: String(LONGEST_REASON), autocomplete: "off" });
  const begun = told.step !== null;
  dialog({
    title: begun ? `The erasure of ${name}` : `Erase ${name}?`,
    parts: begun ? [steps(told)] : [
      h("p", {}, `${count(told.entries, "event")} of the ledger can be read by nobody any more, and what was made of `,
        told.entries === 1 ? "it" : "them", " goes from the graph. This cannot be undone."),
      field("Type the id of the user", typed),
      field("Why (for the receipt)", reason),
    ],
    action: begun ? "See how far it is" : "Erase for good",
    needs: "admin",
    work: async (form, seen) => {
      if (!begun && typed.value !== name) throw new api.Problem(0, { detail: `That is not the id of the user, ${name}.` });
      const now = begun ? told : await api.erase(name, { confirm: told.confirm, reason: reason.value.trim() });
      seen.replaceChildren(steps(now));
      const done = await until(async () => {
        const { step, ...rest } = await api.erase(name);
        seen.replaceChildren(steps({ step, ...rest }));
        return step === "done";
      }, PATIENCE_LOOKS);
      say(done ? "Erased" : "");
      return done ? `${name} is erased.` : "It is under way: the worker of consolidation goes on with it. Ask again here.";
    },
    after: () => (location.hash = to("sessions")),
  });
}

const PATIENCE_LOOKS = 170; // two minutes

function steps({ step, receipt }) {
  const names = Object.keys(STEPS);
  const last = names.indexOf(step);
  return h("ul.checks", {}, names.map((name, number) => h("li", {},
    badge(number <= last ? "done" : "to do", number <= last ? "good" : ""), " ", STEPS[name],
    name === "done" && receipt ? `, receipt ${receipt}` : "")));
}
