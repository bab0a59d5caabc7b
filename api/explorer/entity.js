// One entity: its names, what was said of it over time with the sources, and who mentions it.
import * as api from "./api.js";
import { badge, empty, h, id, moreButton, put, statusBadge } from "./elements.js";
import { groups } from "./facts.js";
import { actor, count, time, told } from "./format.js";
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
    h("p.actions", {},
      entity.type === "user" ? h("a.button", { href: to("user", userId(entity)) }, "Page of the user") : null,
      h("a.button", { href: to("graph", entity.entity_id) }, "In the graph"),
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

/** Users are named by their ids, and can be renamed. */
function userId({ name, canonical_name: canonical }) {
  return canonical && name.toLowerCase() !== canonical ? canonical : name;
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
