// As of which position the memory is read: a bar over every page, and a slider over positions.
import { h, put } from "./elements.js";
import { byPosition, time } from "./format.js";

/** A link to a place; it stays in the past that is looked at. */
export function to(name, id, query = {}) {
  const search = new URLSearchParams(query);
  const at = current();
  if (at && !search.has("at")) search.set("at", at);
  if (search.get("at") === "") search.delete("at");
  const text = search.toString();
  return `#/${name}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

export const current = () => new URLSearchParams(location.hash.split("?")[1] || "").get("at");

/** The same place as of another position; null: as it is. */
function moved(position) {
  const [path, search] = location.hash.split("?");
  const query = new URLSearchParams(search || "");
  if (position) query.set("at", position);
  else query.delete("at");
  const text = query.toString();
  return `${path || "#/sessions"}${text ? `?${text}` : ""}`;
}

/** Pages that tell, in whole or in part, how it is now. */
const OF_NOW = {
  entities: "This list is of now.",
  entity: "Facts are those of then; names and mentions are those of now.",
  operations: "This page tells how it is now.",
  difference: "This page tells what was compared last.",
};

/** Tell that the past is shown. */
export function showPast(bar, at) {
  const position = at.query.get("at");
  bar.hidden = !position;
  if (!position) return;
  bar.replaceChildren(
    h("span", {}, "The memory as it was at position ", h("code", {}, position), ". ", OF_NOW[at.name] || "What came later is not seen."),
    h("a.button", { href: moved(null) }, "Back to now"));
}

const PAUSE_MS = 350;
let wasMoved = false;

/**
 * A slider over the positions of some events, in the order in which the ledger took them.
 * @param nodes that the page shows.
 * @param present gives those that it shows of now: as of the past fewer are seen.
 */
export function slider(nodes, present) {
  const room = h("div.slider", {});
  const fill = (all) => put(room, ...filled(all));
  if (current()) present().then(fill, () => null);
  else fill(nodes);
  return room;
}

function filled(nodes) {
  const all = nodes
    .filter((node) => node.type === "Event" && node.provenance.global_position)
    .map((node) => ({ position: node.provenance.global_position, at: node.provenance.occurred_at }))
    .sort((a, b) => byPosition(a.position, b.position));
  if (all.length < 2) return [];
  const last = all.length - 1;
  const here = current();
  const start = here ? Math.max(0, all.findLastIndex((stop) => byPosition(stop.position, here) <= 0)) : last;
  const told = h("output", {});
  const tell = (number) => {
    told.replaceChildren(number === last && !here ? "now" : `after ${number + 1} of ${all.length} events, `,
      ...(number === last && !here ? [] : [time(all[number].at, "full")]));
  };
  let later = null;
  const input = h("input", {
    type: "range", min: "0", max: String(last), value: String(start), step: "1", "aria-label": "Position in the ledger",
    oninput: () => tell(Number(input.value)),
    // A key moves it by one: where it comes to rest is gone to.
    onchange: () => {
      clearTimeout(later);
      later = setTimeout(() => {
        if (!input.isConnected) return;
        wasMoved = true;
        const number = Number(input.value);
        location.hash = moved(number === last ? null : all[number].position);
      }, PAUSE_MS);
    },
  });
  tell(start);
  // Whoever moves it by the keyboard goes on where they were.
  if (wasMoved) requestAnimationFrame(() => input.focus({ preventScroll: true }));
  wasMoved = false;
  return [h("span.dim", {}, "As the memory was"), input, told];
}
