// Entities by name.
import * as api from "./api.js";
import { empty, h, moreButton } from "./elements.js";
import { to } from "./past.js";

const PAGE = 200;
const TYPES = ["agent", "tool", "user", "service", "resource", "concept"];

export async function show(room, { query }) {
  const search = h("input", { type: "search", value: query.get("q") || "", placeholder: "Words of a name", "aria-label": "Search entities" });
  const type = h("select", { "aria-label": "Type", onchange: () => go() },
    h("option", { value: "" }, "every type"),
    TYPES.map((one) => h("option", { value: one, selected: query.get("type") === one }, one)));
  const go = () => {
    const wanted = {};
    if (search.value.trim()) wanted.q = search.value.trim();
    if (type.value) wanted.type = type.value;
    location.hash = to("entities", null, wanted);
  };
  room.append(h("h1", {}, "Entities"),
    h("form.filters", { role: "search", onsubmit: (event) => { event.preventDefault(); go(); } }, search, type, h("button", { type: "submit" }, "Search")));
  const asked = { limit: PAGE, query: query.get("q"), type: query.get("type") };
  let page = await api.entities(asked);
  if (!page.entities.length) {
    room.append(empty("No entity.", "Entities are what events mention; they come with the second stage."));
    return;
  }
  const body = h("tbody", {});
  const add = () => body.append(...page.entities.map((one) => h("tr", {},
    h("td", {}, h("a", { href: to("entity", one.entity_id) }, one.name)),
    h("td.dim", {}, one.subtype ? `${one.type}, ${one.subtype.replaceAll("_", " ")}` : one.type || ""))));
  add();
  room.append(h("table.list", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), h("th", { scope: "col" }, "Type"))), body));
  if (page.next_cursor) {
    room.append(moreButton("More entities", async () => {
      page = await api.entities({ ...asked, cursor: page.next_cursor });
      add();
      return page.next_cursor;
    }));
  }
}
