// How the service does: readiness, lag, partitions that are halted, dead letters.
import { action } from "./act.js";
import * as api from "./api.js";
import { badge, h, id, say } from "./elements.js";
import { count, duration, time } from "./format.js";
import { to } from "./past.js";

const EVERY_MS = 2_000;
const SELDOM = 5; // times, while nothing is under way

export async function show(room) {
  const state = h("div", {});
  const letters = h("section.card", {}, h("h2", {}, "Dead letters"));
  const graphs = h("section.card", {}, h("h2", {}, "Graphs of this ledger"));
  const running = h("div", {});
  room.append(h("h1", {}, "Operations"), state, graphs, running, letters);
  const look = async () => state.replaceChildren(...ready(await api.ready()));
  await look();
  let waits = false;
  const again = async () => (waits = await tellLetters(letters, again));
  let isBusy = false;
  let turn = 0;
  const underWay = async () => (isBusy = await tellUnderWay(running));
  await Promise.all([again(), tellTargets(graphs), underWay()]);
  const timer = setInterval(() => {
    if (document.hidden) return;
    look().catch((problem) => state.replaceChildren(h("p.error", { role: "alert" }, problem.message)));
    if (isBusy || ++turn % SELDOM === 0) underWay();
    if (waits) again();
  }, EVERY_MS);
  return () => clearInterval(timer);
}

const CHECKS = { ledger: "Events are taken (ledger)", graph: "The graph answers", columns: "The index in memory is loaded", warm: "First questions are planned" };

function ready(told) {
  const halted = Object.entries(told.halted_partitions);
  return [
    h("section.card", {}, h("h2", {}, told.status === "ready" ? "Ready" : "Not ready", " ", badge(told.status, told.status === "ready" ? "good" : "bad")),
      h("ul.checks", {}, Object.entries(told.checks).map(([name, check]) => h(`li${check.ok ? "" : ".failing"}`, {},
        badge(check.ok ? "ok" : "waiting", check.ok ? "good" : "bad"), " ", CHECKS[name] || name, check.detail ? h("span.dim", {}, `: ${check.detail}`) : null)))),
    h("section.card.figures", {},
      figure("Behind the ledger",
        told.lag_entries === null ? "not known" : count(told.lag_entries, "entry", "entries"), told.lag_seconds ? duration(told.lag_seconds * 1000) : ""),
      figure("Reads come from", told.target || "no target", ""),
      figure("Events are", told.overloaded ? "refused" : "accepted", told.overloaded || "")),
    halted.length ? h("section.card.failing", {}, h("h2", {}, "Halted partitions"),
      h("ul.plain", {}, halted.map(([number, why]) => h("li", {}, `${number}: ${why}`))), command("recollect recover")) : null,
    h("p.dim.small", {}, "Looked at ", time(new Date().toISOString())),
  ].filter(Boolean);
}

const figure = (name, value, more) => h("div", {}, h("div.dim.small", {}, name), h("div.figure-of", {}, value), more ? h("div.small", {}, more) : null);
const command = (text) => h("p", {}, "On the machine of the workers: ", h("code", {}, text));

const STATES = { active: ["answers questions", "good"], standby: ["stands by", ""], building: ["is being built", "warn"] };

/** Show the graphs, what was proved of each, and whether two of them were found to differ. */
async function tellTargets(card) {
  try {
    const { targets, comparison } = await api.targets();
    card.append(h("ul.plain", {}, targets.map(({ name, state, proofs }) => h("li.target", {},
      h("b", {}, name), " ", badge(...STATES[state]), " ",
      proofs.length ? proofs.map(proof) : h("span.dim.small", {}, "not proved yet: ", h("code", {}, "recollect verify"))))));
    if (comparison) card.append(verdict(comparison));
  } catch (problem) {
    card.append(h("p.dim", {}, problem.status === 403 ? ADMINS_ALONE : problem.message));
  }
}

const proof = ({ stage, differences, ended_at }) => h("span.dim.small", {},
  badge(differences ? count(differences, "difference") : "proved", differences ? "bad" : "good"), " ", stage, " ", time(ended_at, "full"), " ");

/** What a comparison came to, and the way to its page. */
function verdict({ first, second, ended_at, same }) {
  const names = `${first} and ${second}`;
  return h("p", {}, same ? `${names} held the same ` : h("a", { href: to("difference") }, `What ${names} held differently`), " ", h("span.dim.small", {}, time(ended_at, "full")));
}

/** Show rebuilds that run, how far archiving is, and erasures with their steps; whether any goes on. */
async function tellUnderWay(room) {
  try {
    const { rebuilds, archive, erasures, more_erasures: more } = await api.operations();
    room.replaceChildren(
      card("Rebuilds", ...rebuilds.length ? rebuilds.map(rebuild) : [none("None runs. ", "recollect rebuild --into NAME")]),
      card("Archive", ...archive ? archived(archive) : [none("Nothing was archived yet. ", "recollect worker archive")]),
      card("Erasures", ...erasures.length ? [erased(erasures)] : [none("None of this tenant.")],
        more ? none("There are more: ", "recollect receipts list") : ""));
    return rebuilds.length > 0 || erasures.some((one) => !one.is_done);
  } catch (problem) {
    room.replaceChildren(card("Under way", h("p.dim", {}, problem.status === 403 ? ADMINS_ALONE : problem.message)));
    return false;
  }
}

const card = (title, ...rest) => h("section.card", {}, h("h2", {}, title), ...rest);
const none = (text, hint) => h("p.dim", {}, text, hint ? h("code", {}, hint) : null);
const STALE_MS = 60_000;

function rebuild({ target, doing, done, total, begun_at: begun, heard_at: heard }) {
  const far = total === null ? null : Math.min(1, done / Math.max(total, 1));
  const silent = Date.now() - Date.parse(heard);
  return h("div.rebuild", {}, h("p", {}, h("b", {}, target), " ", badge(doing, "warn"), " ",
    far === null ? "" : `${count(done, "entry", "entries")} of ${total.toLocaleString("en")}, ${Math.floor(100 * far)} %`),
  h("progress", far === null ? { "aria-label": target } : { "aria-label": target, max: "1", value: String(far) }),
  h("p.dim.small", {}, "Since ", time(begun, "full"), silent > STALE_MS ? `; it has said nothing for ${duration(silent)}` : ""));
}

function archived({ partitions, waits_for: waits, has_problem: isStuck }) {
  const sum = (name) => partitions.reduce((all, one) => all + one[name], 0);
  return [
    h("p", {}, `${count(sum("archived"), "entry", "entries")} in ${count(sum("segments"), "segment")}, ${sum("streamed").toLocaleString("en")} in Redis. `,
      isStuck ? badge("nothing is archived", "bad") : waits ? badge(`waits for ${waits}`, "warn") : ""),
    isStuck ? none("Why: ", "recollect status") : "",
    sheet("Archive", ["Partition", "Archived", "Up to position", "Segments", "In Redis"], partitions.map((one) => [
      String(one.partition), figures(one.archived), h("code", {}, one.position), figures(one.segments), figures(one.streamed)])),
  ];
}

const figures = (number) => h("span.figure", {}, number.toLocaleString("en"));
const STEPS = { fenced: "nobody reads it", forgotten: "what was derived is forgotten", destroyed: "the key is destroyed", purged: "no graph holds it", done: "done" };

const erased = (rows) => sheet("Erasures", ["Key", "What", "Step", "Asked", "Done"], rows.map((one) => [
  id(one.subject), one.kind, badge(STEPS[one.step] || one.step, one.is_done ? "good" : "warn"),
  time(one.requested_at, "full"), one.finished_at ? [time(one.finished_at, "full"), one.entries === null ? "" : ` · ${count(one.entries, "entry", "entries")}`] : ""]));

const sheet = (name, heads, rows) => h("div.scroll", { tabindex: "0", role: "region", "aria-label": name }, h("table.list", {},
  h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
  h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));

const ADMINS_ALONE = "Only a key with the role admin, bound to no user, sees them.";

/** Show what could not be folded; whether some of it is still to be tried again. */
async function tellLetters(card, again) {
  const title = card.querySelector("h2");
  try {
    const { dead_letters: letters, more } = await api.deadLetters({ limit: 100 });
    const waiting = letters.filter((one) => one.retry_asked).length;
    const before = Number(card.dataset.waiting || 0);
    card.dataset.waiting = String(waiting);
    const told = before && !waiting ? "What was asked for has been tried; what is listed here failed again." : "";
    card.replaceChildren(title, ...letters.length ? table(letters, again) : [h("p.dim", {}, "None: every stage folded everything.")],
      told && letters.length ? h("p", { role: "status" }, told) : "",
      more ? h("p.dim.small", {}, "There are more; the command lists them all: ", h("code", {}, "recollect dead-letters list")) : "");
    if (before && !waiting) say(letters.length ? told : "Every stage folded everything");
    return waiting > 0;
  } catch (problem) {
    card.replaceChildren(title, h("p.dim", {}, problem.status === 403 ? ADMINS_ALONE : problem.message));
    return false;
  }
}

function table(letters, again) {
  const retry = (text, place) => action(text, "admin", async () => {
    await api.retryLetters(place);
    await again();
  });
  return [h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Dead letters" }, h("table.list", {},
    h("thead", {}, h("tr", {}, ["Stage", "Entry", "Why", "Tries", "Event", "Again"].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, letters.map((one) => h("tr", {},
      h("td", {}, one.stage), h("td", {}, h("code", {}, `${one.partition}/${one.seq}`)),
      h("td", {}, badge((one.kind || "").replaceAll("_", " "), "bad"), " ", one.reason || ""), h("td.figure", {}, String(one.attempts ?? "")),
      h("td", {}, one.event_id ? [h("a", { href: to("event", one.event_id) }, "event"), " ", id(one.event_id)] : ""),
      h("td", {}, one.retry_asked ? badge("waits for a worker", "warn")
        : retry("Try again", { stage: one.stage, partition: one.partition, seq: one.seq }))))))),
  letters.length > 1 ? h("p", {}, retry("Try all again", {})) : null].filter(Boolean);
}
