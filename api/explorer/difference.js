// What two graphs of the ledger held differently of this tenant, when they were compared last.
import * as api from "./api.js";
import { badge, empty, h, id, put, shortened } from "./elements.js";
import { count, time } from "./format.js";
import { to } from "./past.js";

export async function show(room) {
  const [{ targets, comparison }, legend] = await Promise.all([api.targets(), api.legend()]);
  put(room, h("p.crumbs", {}, h("a", { href: to("operations") }, "Operations")), h("h1", {}, "How two graphs differ"));
  if (!comparison) {
    const [first = "blue", second = "green"] = targets.map(({ name }) => name);
    put(room, empty("Nobody has compared two graphs within a week.",
      "After a rebuild by other rules or with another model, this page tells what that changed. On the machine of the workers:"),
    h("p", {}, h("code", {}, `recollect targets diff ${first} ${second}`)));
    return;
  }
  const { first, second, ended_at, same, behind, types, examples } = comparison;
  const lag = Object.entries(behind).map(([stage, entries]) => `${stage} lacked ${count(entries, "entry", "entries")}`);
  put(room,
    h("p.facts", {}, h("span", {}, h("b", {}, first), " beside ", h("b", {}, second)), h("span", {}, "compared ", time(ended_at, "full"))),
    lag.length ? h("p.note", {}, `One of them had not folded everything (${lag.join(", ")}), so some of this may be no more than that.`) : null,
    same ? empty("They held the same.", "Every node and every edge of this tenant was in both, with the same values.") : [
      h("section.card", {}, h("h2", {}, "What, and how much"), table(comparison, legend)),
      h("section.card", {}, h("h2", {}, "Some of it"), h("ul.plain", {}, grouped(examples).map((group) => shown(group, comparison))),
        h("p.dim.small", {}, "Values are not kept, for they may be about somebody. To see them: ", h("code", {}, `recollect targets diff ${first} ${second}`)))]);
}

const words = (text) => text.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase().replaceAll("_", " ");

function table({ first, second, types }, legend) {
  const figure = (number) => h("td.figure", {}, number ? number.toLocaleString() : "");
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "What differs" }, h("table.list.differing", {},
    h("thead", {}, h("tr", {}, ["", `only in ${first}`, `only in ${second}`, "other values", "of which"].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, types.map((one) => {
      const edge = legend.edges[one.type];
      return h("tr", {},
        h("th", { scope: "row" }, edge ? h(`i.swatch.view-${edge.view}`, { "aria-hidden": "true" }) : null, words(one.type),
          h("span.dim.small", {}, edge ? " (edge)" : "")),
        figure(one.only_first), figure(one.only_second), figure(one.different), h("td.small", {}, properties(one)));
    }))));
}

/** Which properties have other values; how often, where that is not always. */
function properties({ properties, different }) {
  return Object.entries(properties).map(([name, number]) => words(name) + (number === different ? "" : ` ${number.toLocaleString()}`)).join(", ");
}

/** Examples that differ in the same way, beside each other. */
function grouped(examples) {
  const groups = new Map();
  for (const one of examples) {
    const sort = JSON.stringify([one.kind, one.type]);
    groups.set(sort, [...(groups.get(sort) || []), one]);
  }
  return [...groups.values()];
}

/** Pages of nodes, by what their key names behind the tenant. */
const PAGE_OF = { Event: (key) => to("event", key), Entity: (key) => to("entity", `entity:${key}`), Scope: (key) => to("session", key) };

function shown(group, { first, second }) {
  const [{ kind, type, element }] = group;
  const where = { missing: `only in ${first}`, extra: `only in ${second}`, different: "other values" }[kind];
  const page = element === "node" ? PAGE_OF[type] : null;
  const one = ({ key }) => {
    const [, ...own] = key.map(String);
    return h("span.ends", {}, page ? h("a", { href: page(own[0]) }, shortened(own[0])) : own.map((end, nth) => [nth ? " – " : "", id(end)]));
  };
  return h("li.differs", {}, badge(where, kind === "different" ? "warn" : ""), " ", h("b", {}, words(type)), group.map(one));
}
