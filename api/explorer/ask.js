// A question, its answer with the evidence in order, and why it is the answer.
import * as api from "./api.js";
import { badge, empty, h, meter, statusBadge } from "./elements.js";
import { actor, count, nameOf, time, told, zone } from "./format.js";
import { to } from "./past.js";
import { lessons } from "./session.js";
import { whyTree } from "./why.js";

const EXAMPLES = ["Why was order 4711 charged twice?", "Which tools failed today?", "What changed before the first failure?"];
/** What a plan's operator is in words. */
const READ_AS = {
  search: "what fits the question best", cause: "what caused something", lesson: "what helped after a failure",
  calls: "which tools were called", failures: "what failed", actor: "who did something", time: "when something happened",
  last: "the last time something happened", first: "the first time something happened", window: "what happened in a stretch of time",
  after: "what happened after something", before: "what happened before something", count: "how often something happened",
  users: "which users something happened to", value: "what a value is", value_before: "what a value was before",
  value_at: "what a value was at a moment", preference: "what somebody prefers", profile: "what is known of somebody",
  similar: "what is similar", promise: "what was promised", summary: "what something comes to",
};
const NEAR = 5;
const CHANNELS = {
  context: "the session it is asked in", text: "words", entity: "names", vector: "meaning", graph: "edges", story: "stories", proactive: "what belongs to it",
};

export async function show(room, { query }) {
  const text = query.get("q") || "";
  const field = h("input", {
    type: "search", name: "q", value: text, required: true, maxlength: "8000", "aria-label": "Question",
    placeholder: "Ask what happened, when, how often, or why",
  });
  const form = h("form.filters.ask", {
    role: "search",
    onsubmit: (event) => {
      event.preventDefault();
      const wanted = to("ask", null, { q: field.value.trim() });
      if (location.hash === wanted) dispatchEvent(new HashChangeEvent("hashchange"));
      else location.hash = wanted;
    },
  }, field, h("button.primary", { type: "submit" }, "Ask"));
  room.append(h("h1", {}, "Ask"), form);
  if (!text) {
    room.append(h("p.dim", {}, "For example:"), h("ul.plain", {}, EXAMPLES.map((one) => h("li", {}, h("a", { href: to("ask", null, { q: one }) }, one)))));
    return;
  }
  const answer = await api.ask({ query: text, max_nodes: 20, time_zone: zone() });
  const wantsCauses = answer.answer?.type === "tree" || answer.meta.intent === "why";
  const why = wantsCauses ? await api.why({ query: text }).catch(() => null) : null;
  room.append(answered(answer, why), evidence(answer), how(answer));
}

function answered({ answer, meta, nodes }, why) {
  const tree = why && why.answer.tree.length > 1 ? why : null;
  const known = meta.answered !== false && (nodes.length || tree);
  return h(`section.card.answer${known ? "" : ".unsure"}`, {},
    h("h2", {}, known ? "Answer" : "The memory does not know"),
    known ? null : h("p.dim", {}, nodes.length ? "Below is what is nearest." : "Nothing near it was found."),
    known && !tree && answer ? value(answer) : null,
    tree ? [tree.answer.doubtful ? h("p.dim", {}, "Another event is nearly as likely to be meant.") : null, whyTree(tree.answer, tree.nodes)] : null,
    tree && tree.answer.helped.length ? lessons(tree.answer.helped) : null,
    h("dl.inline", {},
      meta.confidence === null ? null : [h("dt", {}, "Sure that it knows"), h("dd", {}, meter(meta.confidence, "That the memory knows what is asked for"))],
      meta.plan ? [h("dt", {}, "Read as"), h("dd", {}, planned(meta.plan))] : null,
      meta.withheld ? [h("dt", {}, "Kept from you"), h("dd", {}, count(meta.withheld, "event"), " of other users")] : null,
      meta.degraded.length ? [h("dt", {}, "Went without"), h("dd", {}, meta.degraded.join("; "))] : null));
}

function planned(plan) {
  const parts = [`a question for ${READ_AS[plan.operator] || plan.operator}`];
  if (plan.confidence < 0.995) parts.push(` (${Math.round(plan.confidence * 100)} %)`);
  if (plan.since) parts.push(", from ", time(plan.since, "full"));
  if (plan.until) parts.push(" until ", time(plan.until, "full"));
  return parts;
}

function value({ type, value: told }) {
  if (type === "list" && Array.isArray(told)) {
    return told.length ? h("ul.values", {}, told.map((one) => h("li", {}, String(one)))) : h("p.value", {}, "None");
  }
  if (told === null || told === undefined) return null;
  if (typeof told === "string" && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(told)) return h("p.value", {}, time(told, "full"));
  return h(`p.value${String(told).length > 60 ? ".long" : ""}`, {}, typeof told === "object" ? JSON.stringify(told) : String(told));
}

function evidence(answer) {
  const proof = new Map((answer.answer?.evidence || []).map((one, number) => [one, number + 1]));
  const byId = new Map(answer.nodes.map((node) => [node.node_id, node]));
  const first = [...proof.keys()].filter((one) => byId.has(one)).map((one) => byId.get(one));
  const beyond = [...proof.keys()].filter((one) => !byId.has(one));
  const rest = answer.nodes.filter((node) => !proof.has(node.node_id));
  const meant = { explained: answer.meta.explained, weights: answer.meta.scoring_weights };
  return h("section.card", {},
    first.length || beyond.length ? [h("h2", {}, "Evidence"), h("ol.found", {}, first.map((node) => found(node, meant)),
      beyond.map((one) => h("li", {}, h("a", { href: to("event", one) }, "another event"))))] : null,
    rest.length ? [h("h2", {}, first.length ? "Also near" : "What is near"), h("ol.found", {}, rest.slice(0, NEAR).map((node) => found(node, meant)))] : null,
    rest.length > NEAR ? h("details", {}, h("summary", {}, `${rest.length - NEAR} more`),
      h("ol.found", { start: String(NEAR + 1) }, rest.slice(NEAR).map((node) => found(node, meant)))) : null,
    answer.nodes.length ? null : empty("Nothing was found."));
}

function found(node, { explained, weights }) {
  const event = node.type === "Event";
  const link = event ? to("event", node.node_id) : node.type === "Entity" ? to("entity", node.node_id) : to("graph", node.node_id);
  return h(`li${node.attributes.kind === "failure" ? ".failing" : ""}`, {},
    h("div.head", {},
      event ? time(node.provenance.occurred_at, "full") : badge(node.type.toLowerCase()),
      event ? h("span.dim", {}, actor(node), " in ", h("a", { href: to("session", node.provenance.session_id) }, node.provenance.session_id)) : null,
      statusBadge(node.attributes), node.pending ? badge("not folded yet", "warn") : null,
      node.retrieval_reason === "proactive" ? badge("not asked for") : null),
    h("a.text", { href: link }, event ? told(node) : nameOf(node)),
    h("details", {}, h("summary", {}, "Why is it here?"), scores(node, weights), features(explained[node.node_id])));
}

/** The rank as the sum that it is. */
function scores(node, weights) {
  const { relevance_score: relevant, importance_score: important, decay_score: decay, rank_score: rank } = node.scores;
  return h("dl.known", {},
    h("dt", {}, "rank"), h("dd", {}, meter(rank, "What the answer is sorted by")),
    h("dt", {}, "relevance"), h("dd", {}, meter(relevant, "How well it answers the question"), h("span.dim.small", {}, ` weighs ${weights.relevance}`)),
    h("dt", {}, "importance"), h("dd", {}, meter(important / 10, "1 to 10"), h("span.dim.small", {}, ` weighs ${weights.importance}`)),
    h("dt", {}, "not forgotten"), h("dd", {}, meter(decay, "Recency, importance and relevance"), h("span.dim.small", {}, ` recency weighs ${weights.recency}`)),
    node.found_by.length ? [h("dt", {}, "found by"), h("dd", {}, node.found_by.map((one) => CHANNELS[one] || one).join(", "))] : null,
    node.depth ? [h("dt", {}, "steps"), h("dd", {}, `${node.depth} from where the search began`)] : null);
}

/** What counted most for its place, up or down. */
function features(counted) {
  if (!counted) return null;
  const most = Math.max(...Object.values(counted).map(Math.abs), 0.01);
  return h("table.features", {}, h("caption", {}, "What counted most"), h("tbody", {}, Object.entries(counted).map(([name, share]) =>
    h("tr", {}, h("th", { scope: "row" }, name.replaceAll("_", " ")),
      h("td", {}, h(`span.push${share < 0 ? ".down" : ""}`, { style: { width: `${(Math.abs(share) / most) * 100}%` } })),
      h("td.figure", {}, `${share > 0 ? "+" : ""}${share.toFixed(2)}`)))));
}

function how({ meta }) {
  const seeds = Object.entries(meta.seed_names);
  return h("details.card.how", {}, h("summary", {}, `How it was found: ${meta.query_ms} ms${meta.cached ? ", the same answer as a moment ago" : ""}`),
    h("table", {}, h("thead", {}, h("tr", {}, ["by", "found", "ms", ""].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, Object.entries(meta.channels).map(([name, report]) => h("tr", {}, h("td", {}, CHANNELS[name] || name),
        h("td.figure", {}, String(report.found)), h("td.figure", {}, String(report.ms)), h("td", {}, report.status === "ok" ? "" : badge(report.status, "warn")))))),
    seeds.length ? h("p", {}, "Began at ", seeds.map(([one, name]) => [h("a.chip", { href: to("entity", one) }, name), " "])) : null,
    h("p.dim.small", {}, "Settings ", h("code", {}, meta.policy_version), ". The same question under others may be answered otherwise."));
}
