// One event: what it says, why it happened, what came of it, what it mentions.
import * as api from "./api.js";
import { badge, h, id, json, put, say, statusBadge } from "./elements.js";
import { actor, duration, ms, nameOf, time, told } from "./format.js";
import { to } from "./past.js";
import { lessons } from "./session.js";
import { whyTree } from "./why.js";

export async function show(room, { id: own }) {
  const beside = await api.neighbours(own, { max_nodes: 60 }).catch((problem) => {
    if (problem.status !== 404) throw problem;
    return null;
  });
  if (!beside) return inLedgerAlone(room, own);
  const legend = await api.legend();
  const node = beside.nodes.find((one) => one.node_id === beside.meta.seed_nodes[0]);
  if (node.type !== "Event") {
    location.replace(node.type === "Entity" ? to("entity", node.node_id) : to("graph", node.node_id));
    return;
  }
  const { attributes, provenance } = node;
  room.append(
    h("p.crumbs", {}, h("a", { href: to("session", provenance.session_id) }, provenance.session_id)),
    h("h1.said", {}, told(node)),
    h("p.facts", {}, statusBadge(attributes), h("span", {}, time(provenance.occurred_at, "full")),
      attributes.ended_at ? h("span", {}, duration(ms(attributes.ended_at) - ms(provenance.occurred_at))) : null,
      h("span", {}, "by ", h("b", {}, actor(node))),
      attributes.user_id ? h("span", {}, "for ", h("a", { href: to("user", attributes.user_id) }, attributes.user_id)) : null,
      h("span", {}, h("code", {}, attributes.event_type))),
    h("p.actions", {},
      h("a.button", { href: to("graph", own) }, "In the graph"),
      h("a.button", { href: to("event", own, { at: provenance.global_position }) }, "The memory as it was then")));

  const why = h("section.card", {}, h("h2", {}, "Why"), h("p.dim", { role: "status" }, "Looking for causes…"));
  const effects = h("section.card", {}, h("h2", {}, "What came of it"), h("p.dim", { role: "status" }, "…"));
  const content = h("section.card", {}, h("h2", {}, "What it holds"), h("p.dim", {}, "…"));
  const columns = h("div.columns", {}, h("div", {}, why, effects), h("div", {}, content, mentioned(beside, node, legend), known(node)));
  room.append(columns);
  tellWhy(why, node);
  tellEffects(effects, own);
  tellContent(content, own);
}

/** What states a fact or a decision is no event of the graph; nor is one that was forgotten. */
async function inLedgerAlone(room, own) {
  const stored = await api.event(own);
  put(room,
    h("h1.said", {}, stored.event_type),
    h("p.facts", {}, statusBadge(stored), h("span", {}, time(stored.occurred_at, "full")), h("span", {}, "by ", h("b", {}, stored.agent_id)),
      stored.user_id ? h("span", {}, "for ", h("b", {}, stored.user_id)) : null, id(own)),
    h("p.dim", {}, "This is in the ledger and not in the graph: it tells the memory something, or was forgotten since."),
    h("section.card", {}, h("h2", {}, "What it holds"), json(stored.payload)));
}

async function filled(card, work) {
  const title = card.querySelector("h2");
  try {
    card.replaceChildren(title, ...(await work()));
  } catch (problem) {
    card.replaceChildren(title, h("p.dim", {}, problem.message));
  }
}

function tellWhy(card, node) {
  return filled(card, async () => {
    const { answer, nodes } = await api.why({ query: told(node).slice(0, 2000), head: node.node_id, session_id: node.provenance.session_id });
    say("Causes are shown");
    const causes = answer.tree.length > 1
      ? whyTree(answer, nodes, node.provenance.session_id)
      : h("p.dim", {}, "No cause is recorded, and no rule found one.");
    return answer.helped.length ? [causes, lessons(answer.helped)] : [causes];
  });
}

function tellEffects(card, own) {
  return filled(card, async () => {
    const { nodes } = await api.lineage(own, { direction: "effects", intent: "why", max_nodes: 30, max_depth: 5 });
    const effects = nodes.filter((one) => one.node_id !== own)
      .sort((a, b) => ms(a.provenance.occurred_at) - ms(b.provenance.occurred_at));
    if (!effects.length) return [h("p.dim", {}, "Nothing that is recorded.")];
    return [h("ul.plain", {}, effects.map((one) => h("li", {},
      h("span.dim.small", {}, time(one.provenance.occurred_at)), " ",
      h("a", { href: to("event", one.node_id) }, told(one)), " ", statusBadge(one.attributes))))];
  });
}

function tellContent(card, own) {
  return filled(card, async () => {
    const { payload } = await api.event(own);
    return [payload === null ? h("p.dim", {}, "No payload.") : json(payload)];
  });
}

function mentioned(beside, node, legend) {
  const ids = new Set(beside.edges
    .filter((edge) => legend.edges[edge.type]?.view === "entity" && edge.source === node.node_id)
    .map((edge) => edge.target));
  const entities = beside.nodes.filter((one) => one.type === "Entity" && ids.has(one.node_id));
  const similar = beside.edges.filter((edge) => legend.edges[edge.type]?.view === "semantic" && [edge.source, edge.target].includes(node.node_id));
  const byId = new Map(beside.nodes.map((one) => [one.node_id, one]));
  return h("section.card", {}, h("h2", {}, "What it is about"),
    entities.length
      ? h("p.chips", {}, entities.map((one) => h("a.chip", { href: to("entity", one.node_id) }, nameOf(one))))
      : h("p.dim", {}, "It names nothing that the memory knows."),
    similar.length ? [h("h3", {}, "Similar"), h("ul.plain", {}, similar.map((edge) => {
      const other = byId.get(edge.source === node.node_id ? edge.target : edge.source);
      return other ? h("li", {},
        h("a", { href: to("event", other.node_id) }, told(other)), h("span.dim.small", {}, ` ${(edge.properties.score ?? 0).toFixed(2)}`)) : null;
    }))] : null);
}

function known(node) {
  const { attributes, provenance } = node;
  const rows = [
    ["id", id(node.node_id, { keep: 40 })],
    ["position", h("code", {}, provenance.global_position)],
    ["trace", h("code", {}, provenance.trace_id)],
    ["kind", attributes.kind || "not read yet"],
    ["importance", `${node.scores.importance_score} of 10`],
    ["read", `${attributes.access_count || 0} times`],
    ["keywords", (attributes.keywords || []).join(", ") || "none"],
  ];
  return h("section.card", {}, h("h2", {}, "Known of it"), h("dl.known", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    node.pending ? badge("not folded yet", "warn") : null);
}
