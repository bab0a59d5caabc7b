// One entity: its names, what was said of it over time with the sources, and who mentions it.
import * as api from "./api.js";
import { badge, empty, h, id, moreButton, put, statusBadge } from "./elements.js";
import { actor, count, ms, time, told } from "./format.js";
import { to } from "./past.js";

const PAGE = 100;

export async function show(room, { id: own }) {
  const [page, first] = await Promise.all([api.entity(own, { limit: 30, max_facts: 0 }), api.facts(own, { limit: PAGE })]);
  const { entity, aliases, community } = page;
  put(room,
    h("p.crumbs", {}, h("a", { href: to("entities") }, "Entities")),
    h("h1", {}, entity.name),
    h("p.facts", {}, badge(entity.subtype ? `${entity.type}, ${entity.subtype.replaceAll("_", " ")}` : entity.type || "?"),
      h("span", {}, count(entity.mention_count, "mention")),
      entity.first_seen ? h("span", {}, "first seen ", time(entity.first_seen, "full")) : null,
      entity.last_seen ? h("span", {}, "last seen ", time(entity.last_seen, "full")) : null, id(entity.entity_id)),
    h("p.actions", {}, h("a.button", { href: to("graph", entity.entity_id) }, "In the graph"),
      h("a.button", { href: to("ask", null, { q: `What is known about ${entity.name}?` }) }, "Ask about it")),
    aliases.length ? h("section.card", {}, h("h2", {}, "Also called"), h("ul.plain", {}, aliases.map((one) => h("li", {},
      h("b", {}, one.name), h("span.dim", {}, ` ${count(one.mention_count, "mention")}`),
      one.justification ? h("span.dim.small", {}, `; ${one.justification}`) : null)))) : null,
    community ? h("section.card", {}, h("h2", {}, "Belongs to"), h("p", {}, h("b", {}, community.name || ""), " ", community.summary || "")) : null);
  const card = h("section.card", {}, h("h2", {}, "What was said of it, over time"));
  const facts = [...first.facts];
  const history = h("div.history", {});
  history.append(...groups(facts, entity.entity_id));
  card.append(facts.length ? history : empty("No fact is known.", "Facts are stated by agents, or read from what was said."));
  let { next_cursor: next } = first;
  if (next) {
    card.append(moreButton("Earlier facts", async () => {
      const more = await api.facts(own, { limit: PAGE, cursor: next });
      facts.push(...more.facts);
      history.replaceChildren(...groups(facts, entity.entity_id));
      next = more.next_cursor;
      return next;
    }));
  }
  if (first.meta.withheld) card.append(h("p.dim.small", {}, `${count(first.meta.withheld, "fact")} of other users are kept from you.`));
  room.append(card, mentions(page));
}

/** Facts by relation: where several follow each other, the later contradicted the earlier. */
function groups(facts, own) {
  const by = new Map();
  for (const fact of facts) {
    const out = fact.source.entity_id === own;
    const key = out ? fact.relation : `${fact.relation} ${fact.source.name}`;
    if (!by.has(key)) by.set(key, { out, facts: [] });
    by.get(key).facts.push(fact);
  }
  const moments = facts.flatMap((fact) => [ms(fact.valid_from), fact.valid_to ? ms(fact.valid_to) : null]).filter((one) => one !== null);
  const from = Math.min(...moments);
  const until = Math.max(...moments, from + 1);
  // What holds still goes on beyond the last thing that is known to have changed.
  const whole = (until - from) * 1.12;
  return [...by].map(([, group]) => h("div.relation", {},
    h("h3", {}, group.facts[0].relation.toLowerCase().replaceAll("_", " "), group.out ? "" : " (said of another)"),
    h("ol.plain", {}, group.facts.map((fact) => line(fact, group.out, (text) => (text ? (ms(text) - from) / whole : 1))))));
}

function stateOf(fact) {
  const now = Date.now();
  if (fact.valid_to && fact.valid_to === fact.valid_from) return ["withdrawn", "bad"];
  if (fact.valid_to && fact.expired_at && ms(fact.valid_to) <= now) return ["contradicted", "warn"];
  if (fact.valid_to && ms(fact.valid_to) <= now) return ["ended", ""];
  if (fact.expired_at && ms(fact.expired_at) <= now) return ["ended", ""];
  return ms(fact.valid_from) > now ? ["later", ""] : ["holds", "good"];
}

function line(fact, out, place) {
  const [state, look] = stateOf(fact);
  const other = out ? fact.target : fact.source;
  const left = place(fact.valid_from) * 100;
  const width = Math.max(0.6, place(fact.valid_to || fact.expired_at) * 100 - left);
  return h(`li.fact.${state}`, {},
    h("div.head", {}, h("a.text", { href: to("entity", other.entity_id) }, other.name), badge(state, look),
      h("span.dim.small", {},
        `sure to ${Math.round(fact.confidence * 100)} %, `, fact.source_kind.replaceAll("_", " "), fact.user_id ? `, of ${fact.user_id}` : "")),
    h("div.lane", { "aria-hidden": "true" }, h("span.bar", { style: { left: `${left}%`, width: `${width}%` } })),
    h("details", {}, h("summary", {}, since(fact, state), ` · ${count(fact.provenance.support_count, "source")}`),
      h("p", {}, `“${fact.fact}”`),
      h("ul.plain", {}, fact.provenance.supporting_event_ids.map((one, number) =>
        h("li", {}, h("a", { href: to("event", one) }, number ? "said again by this event" : "said first by this event"), " ", id(one))))));
}

function since(fact, state) {
  if (state === "withdrawn") return ["was said to hold since ", time(fact.valid_from, "full")];
  return [time(fact.valid_from, "full"), " to ", fact.valid_to ? time(fact.valid_to, "full") : "now"];
}

function mentions(page) {
  const list = h("ul.plain.mentions", {});
  const add = ({ events }) => list.append(...events.map((one) => h("li", {},
    h("span.when", {}, time(one.provenance.occurred_at, "full")), " ", h("a", { href: to("event", one.node_id) }, told(one)), " ", statusBadge(one.attributes) || "",
    h("span.dim.small", {}, ` ${actor(one)} in `, h("a", { href: to("session", one.provenance.session_id) }, one.provenance.session_id)))));
  add(page);
  let next = page.next_cursor;
  return h("section.card", {}, h("h2", {}, "Mentioned in"), list,
    next ? moreButton("Earlier mentions", async () => {
      const more = await api.entity(page.entity.entity_id, { limit: 30, max_facts: 0, cursor: next });
      add(more);
      next = more.next_cursor;
      return next;
    }) : null);
}
