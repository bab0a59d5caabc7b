// The graph around a node: expanded by a click, filtered by type of edge, each edge explained.
import * as api from "./api.js";
import { badge, empty, h, id as idOf, isFailure, say } from "./elements.js";
import { count, duration, nameOf, time } from "./format.js";
import { slider, to } from "./past.js";
import { canDraw, Picture } from "./picture.js";
import { grounds } from "./why.js";

const AT_ONCE = 60;
const LABEL = 40;
const DEFAULT_HUB = 20;

export async function show(room, { id: start }) {
  if (!start) return begin(room);
  const legend = await api.legend();
  const state = { legend, nodes: new Map(), edges: new Map(), expanded: new Set(), hidden: new Set(), most: Infinity, picture: null, cut: new Set() };
  const first = await api.neighbours(start, { max_nodes: AT_ONCE });
  state.root = first.meta.seed_nodes[0];
  take(state, first, state.root);

  const canvas = h("div.canvas", { role: "img", "aria-label": "The graph; the lists beside it tell the same" });
  const side = h("div.side", {});
  const filters = h("div.filters-of-graph", {});
  const root = state.nodes.get(state.root);
  state.redraw = () => {
    draw(filters, state);
    list(side, state);
  };
  state.choose = async (what) => {
    state.chosen = what;
    state.picture?.choose(what);
    state.redraw();
  };
  state.expand = async (one) => {
    if (state.expanded.has(one)) return;
    const more = await api.neighbours(one, { max_nodes: AT_ONCE });
    const before = state.nodes.size;
    take(state, more, one);
    paint(state, more, one);
    state.redraw();
    say(`${count(state.nodes.size - before, "node")} more`);
  };
  room.append(h("h1", {}, `Around ${cut(nameOf(root), 80)}`),
    h("div.graph", {}, h("div.stage", {}, canvas, h("div.zoom", {},
      ["+", "−", "whole"].map((sign, number) => h("button", {
        type: "button", "aria-label": ["Nearer", "Farther", "The whole graph"][number], onclick: () => state.picture?.zoom([1, -1, 0][number]),
      }, sign))), filters), side));
  room.append(slider(first.nodes, async () => (await api.neighbours(start, { max_nodes: AT_ONCE, as_of_position: null })).nodes));
  state.chosen = state.root;
  state.redraw();
  if (canDraw()) {
    // The element must have its size first.
    requestAnimationFrame(async () => {
      const picture = await Picture.in(canvas, {
        node: (one) => state.choose(one).then(() => state.expand(one)),
        edge: (key) => state.choose(key),
      });
      if (state.isLeft) {
        picture.close();
        return;
      }
      state.picture = picture;
      picture.root = state.root;
      paint(state, { nodes: [...state.nodes.values()], edges: [...state.edges.values()] }, null);
      picture.choose(state.chosen);
      canvas.dataset.drawn = "true";
    });
  } else {
    canvas.replaceChildren(empty("This browser draws no WebGL.", "The lists beside tell the same."));
  }
  return () => {
    state.isLeft = true;
    state.picture?.close();
  };
}

async function begin(room) {
  const field = h("input", { type: "search", required: true, placeholder: "Name of an entity", "aria-label": "Name of an entity" });
  const known = await api.entities({ limit: 40 });
  room.append(h("h1", {}, "Graph"),
    h("p.dim", {}, "Begin at an entity, or open any event and choose “In the graph”."),
    h("form.filters", { role: "search", onsubmit: (event) => { event.preventDefault(); location.hash = to("graph", `entity:${field.value.trim()}`); } },
      field, h("button", { type: "submit" }, "Open")),
    known.entities.length
      ? h("p.chips", {}, known.entities.map((one) => h("a.chip", { href: to("graph", one.entity_id) }, one.name)))
      : empty("No entity is known yet."));
}

/** Two nodes may have several edges of a type: these properties tell them apart. */
const keyOf = ({ source, type, target, properties }) =>
  [source, type, target, properties.rule || properties.role || properties.relation || "", properties.event_id || ""].join(" ");
const cut = (text, most = LABEL) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function take(state, answer, around) {
  for (const node of answer.nodes) state.nodes.set(node.node_id, node);
  for (const edge of answer.edges) state.edges.set(keyOf(edge), edge);
  state.expanded.add(around);
  if (answer.meta.truncated) state.cut.add(around);
}

function paint(state, { nodes, edges }, around) {
  state.picture?.add(
    nodes.map((node) => ({ id: node.node_id, label: cut(nameOf(node)), kind: node.type === "Event" && isFailure(node.attributes) ? "failure" : node.type })),
    edges.map((edge) => ({ key: keyOf(edge), source: edge.source, target: edge.target, type: edge.type, view: state.legend.edges[edge.type]?.view })),
    around);
  state.picture?.filter({ hiddenTypes: state.hidden, mostEdges: state.most });
}

/** Types of edges with how many there are; hubs. */
function draw(filters, state) {
  const counts = new Map();
  for (const edge of state.edges.values()) counts.set(edge.type, (counts.get(edge.type) || 0) + 1);
  const types = [...counts].sort().map(([type, number]) => {
    const box = h("input", { type: "checkbox", onchange: () => {
      if (box.checked) state.hidden.delete(type);
      else state.hidden.add(type);
      state.picture?.filter({ hiddenTypes: state.hidden });
      list(document.querySelector(".side"), state);
    } });
    box.checked = !state.hidden.has(type);
    const { view, meaning } = state.legend.edges[type];
    return h("label.check", { title: meaning }, box, h(`i.swatch.view-${view}`, { "aria-hidden": "true" }), words(type), h("span.dim", {}, ` ${number}`));
  });
  const hubs = h("input", { type: "checkbox", onchange: () => hide() });
  const most = h("input", {
    type: "number", min: "2", max: "999", value: String(state.most === Infinity ? DEFAULT_HUB : state.most),
    "aria-label": "Edges", onchange: () => hide(),
  });
  hubs.checked = state.most !== Infinity;
  const hide = () => {
    state.most = hubs.checked ? Math.max(2, Number(most.value) || DEFAULT_HUB) : Infinity;
    state.picture?.filter({ mostEdges: state.most });
  };
  filters.replaceChildren(...types, h("span.check", {}, h("label.check", {}, hubs, "hide what has more than"), most, "edges"));
}

const words = (type) => type.toLowerCase().replaceAll("_", " ");

/** What is chosen, and its edges; without a picture, too. */
function list(side, state) {
  const chosen = state.edges.has(state.chosen) ? edgeCard(state.edges.get(state.chosen), state) : nodeCard(state.nodes.get(state.chosen), state);
  side.replaceChildren(
    h("p.dim.small", {}, `${count(state.nodes.size, "node")}, ${count(state.edges.size, "edge")}`),
    ...[chosen].flat());
}

function nodeCard(node, state) {
  if (!node) return [];
  const own = node.node_id;
  const page = node.type === "Event" ? to("event", own) : node.type === "Entity" ? to("entity", own) : null;
  const edges = [...state.edges].filter(([, edge]) => (edge.source === own || edge.target === own) && !state.hidden.has(edge.type));
  return h("section.card", {},
    h("h2", {}, page ? h("a", { href: page }, cut(nameOf(node), 160)) : cut(nameOf(node), 160)),
    h("p.facts.small", {}, badge(node.type.toLowerCase()), node.provenance.occurred_at ? time(node.provenance.occurred_at, "full") : null, idOf(own)),
    h("p.actions", {},
      state.expanded.has(own) ? null : h("button", { type: "button", onclick: () => state.expand(own) }, "Show what is beside it"),
      own === state.root ? null : h("a.button", { href: to("graph", own) }, "Begin here"),
      state.cut.has(own) ? h("span.dim.small", {}, `Only the best ${AT_ONCE} beside it are shown.`) : null),
    h("h3", {}, count(edges.length, "edge")),
    h("ul.edges", {}, edges.map(([key, edge]) => {
      const out = edge.source === own;
      const other = state.nodes.get(out ? edge.target : edge.source);
      return h("li", {},
        h("button.edge", { type: "button", onclick: () => state.choose(key), title: "Why is this edge here?" },
          h(`i.swatch.view-${state.legend.edges[edge.type].view}`, { "aria-hidden": "true" }), out ? `${words(edge.type)} →` : `← ${words(edge.type)}`),
        h("button.link", { type: "button", onclick: () => state.choose(other.node_id) }, cut(nameOf(other), 70)));
    })));
}

/** Properties that are told in words, not listed. */
const TOLD = new Set(["mechanism", "event_id", "supporting_event_ids", "delta_ms", "decided_at", "session_id"]);
const TOLD_OF_CAUSES = new Set(["rule", "confidence", "evidence"]);

/** Why an edge is here: its meaning, who named it or which rule found it, the events, the figures. */
function edgeCard(edge, state) {
  const { meaning, view } = state.legend.edges[edge.type];
  const { properties } = edge;
  const events = [...new Set([properties.event_id, properties.decision_event_id, ...(properties.supporting_event_ids || [])].filter(Boolean))];
  const end = (own) => h("button.link", { type: "button", onclick: () => state.choose(own) }, cut(nameOf(state.nodes.get(own)), 120));
  const why = view === "causal" ? grounds(properties) : "";
  const isTold = (name) => TOLD.has(name) || (view === "causal" && TOLD_OF_CAUSES.has(name));
  const rest = Object.entries(properties).filter(([name, value]) => value !== null && !isTold(name));
  return h("section.card", {},
    h("h2", {}, "Why is this edge here?"),
    h("p.pair", {}, end(edge.source), h("span.dim", {}, h(`i.swatch.view-${view}`, { "aria-hidden": "true" }), ` ${words(edge.type)} → `), end(edge.target)),
    h("p", {}, meaning[0].toUpperCase() + meaning.slice(1), "."),
    why ? h("p", {}, h("b", {}, why[0].toUpperCase() + why.slice(1)), ".") : null,
    properties.delta_ms !== undefined ? h("p", {}, `${duration(Math.abs(properties.delta_ms))} later.`) : null,
    rest.length ? h("dl.known", {}, rest.map(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, shown(name, value))])) : null,
    events.length ? [h("h3", {}, "From"), h("ul.plain", {}, events.map((one) => h("li", {},
      h("a", { href: to("event", one) }, state.nodes.has(one) ? cut(nameOf(state.nodes.get(one)), 80) : "event"), " ", idOf(one))))] : null);
}

function shown(name, value) {
  if (typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value)) return time(value, "full");
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toFixed(3);
  return Array.isArray(value) ? value.join(", ") : String(value);
}
