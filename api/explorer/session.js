// A session as a timeline: who did what, tools as spans, failures, retries, and what helped.
import * as api from "./api.js";
import { badge, h, moreButton, put, statusBadge } from "./elements.js";
import { actor, count, duration, ms, time, told } from "./format.js";
import { current, slider, to } from "./past.js";
import { axisOf, spansOf } from "./spans.js";

const PAGE = 500;
const HUES = 6;

export async function show(room, { id: name }) {
  const legend = await api.legend();
  let page = await api.sessionEvents(name, { limit: PAGE });
  const nodes = [...page.nodes];
  const edges = [...page.edges];
  const chart = h("div.timeline", {});
  const only = h("input", { type: "checkbox", onchange: () => draw() });
  const draw = () => {
    const spans = spansOf(nodes, edges, legend);
    chart.replaceChildren(timeline(spans, only.checked));
  };
  const failed = spansOf(nodes, edges, legend).filter((span) => span.failed);
  const first = nodes[0];
  const last = nodes[nodes.length - 1];
  room.append(h("h1.mono", {}, name));
  if (!nodes.length) {
    const { withheld } = page.meta;
    put(room, h("p.dim", {}, "You see none of its events.", withheld ? ` ${count(withheld, "event")} of other users are kept from you.` : ""));
    return;
  }
  const users = [...new Set(nodes.map((node) => node.attributes.user_id).filter(Boolean))];
  put(room,
    h("p.facts", {},
      h("span", {}, time(first.provenance.occurred_at, "full")),
      h("span", {}, duration(ms(last.provenance.occurred_at) - ms(first.provenance.occurred_at))),
      h("span", {}, count(page.event_count, "event")),
      failed.length ? badge(`${failed.length} failed`, "bad") : null,
      ...users.map((user) => h("span", {}, "for ", h("a", { href: to("user", user) }, user)))));
  const notes = h("div.notes", {});
  room.append(notes);
  const present = async () => (await api.sessionEvents(name, { limit: PAGE, as_of_position: null })).nodes;
  room.append(h("div.tools", {}, h("label.check", {}, only, "only failures and retries"), slider(nodes, present)));
  room.append(chart);
  draw();
  if (page.next_cursor) {
    room.append(moreButton("Later events", async () => {
      page = await api.sessionEvents(name, { limit: PAGE, cursor: page.next_cursor });
      nodes.push(...page.nodes);
      edges.push(...page.edges);
      draw();
      return page.next_cursor;
    }));
  }
  tellMore(notes, name, failed);
}

/** What consolidation wrote of it, and what helped where something failed; each if there is any. */
async function tellMore(notes, name, failed) {
  // It is told of the whole session, as it is now.
  if (!current()) api.summary(name).then(({ summary }) => {
    if (!summary.content) return;
    const [first, ...rest] = summary.content.split("\n");
    notes.prepend(h("details.note", {}, h("summary", {}, h("b", {}, "In short "), first), rest.map((line) => h("p", {}, line))));
  }, () => null);
  if (!failed.length) return;
  const head = (failed[failed.length - 1].outcome || failed[failed.length - 1].node);
  api.why({ query: told(head), head: head.node_id, session_id: name }).then(({ answer }) => {
    if (answer.helped.length) notes.append(lessons(answer.helped));
  }, () => null);
}

/** What made the difference after a failure. */
export function lessons(helped) {
  return h("section.note.good", {}, h("h2", {}, "What helped"),
    helped.map((lesson) => h("div", {},
      h("p", {}, lesson.text),
      lesson.differences.map((change) => h("p.small", {}, h("b", {}, change.name), `: ${word(change.before)} → ${word(change.after)} `,
        change.source_event_id ? h("a", { href: to("event", change.source_event_id) }, "where that is from") : null)),
      h("p.small.dim", {}, "After ", count(lesson.attempts, "attempt"), lesson.same_story ? "" : " at a similar failure in ",
        lesson.same_story ? null : h("a", { href: to("session", lesson.session_id) }, lesson.session_id), " ",
        lesson.solved_event_ids.slice(0, 1).map((one) => h("a", { href: to("event", one) }, "when it went through"))))));
}

const word = (value) => (value === null || value === undefined ? "nothing" : typeof value === "string" ? value : JSON.stringify(value));

function timeline(spans, onlyFailures) {
  const chosen = onlyFailures ? spans.filter((span) => span.failed || span.attempt > 1) : spans;
  if (!chosen.length) return h("p.dim", {}, "Nothing failed.");
  const { at, gaps } = axisOf(chosen);
  const hues = new Map();
  for (const span of spans) if (!hues.has(actor(span.node))) hues.set(actor(span.node), hues.size % HUES);
  const rows = [];
  let passed = -Infinity;
  for (const span of chosen) {
    for (const gap of gaps) {
      if (gap.end > passed && gap.end <= span.start) rows.push(h("li.gap", {}, `${duration(gap.length)} later`));
    }
    passed = Math.max(passed, span.start);
    rows.push(row(span, at, hues));
  }
  return h("ol", { "aria-label": "Events in order of time" }, rows);
}

function row(span, at, hues) {
  const { node, outcome, start, end } = span;
  const { attributes } = node;
  const ended = outcome ? outcome.attributes : attributes;
  const from = at(start) * 100;
  const width = Math.max(0, (at(end) - at(start)) * 100);
  const long = end > start;
  const tool = attributes.tool_name;
  const text = told(node);
  const words = tool && text.startsWith(`${tool}: `) ? text.slice(tool.length + 2) : text;
  const speaker = `${actor(node)}: `;
  return h(`li.span.hue${hues.get(actor(node))}${span.failed ? ".failing" : ""}`, {},
    h("span.when", {}, time(node.provenance.occurred_at)),
    h("span.who", {}, h("i.dot", { "aria-hidden": "true" }), actor(node)),
    h("span.what", {},
      h("a.text", { href: to("event", node.node_id) },
        tool ? h("b.tool", {}, tool) : null, tool ? " " : null, words.startsWith(speaker) ? words.slice(speaker.length) : words),
      span.attempt > 1 ? badge(`try ${span.attempt}`, "warn") : null,
      statusBadge(ended),
      outcome ? h("a.outcome", { href: to("event", outcome.node_id) }, "→ ", outcomeText(outcome, tool)) : null),
    h(`span.lane${long ? "" : ".point"}`, { "aria-hidden": "true" }, h("span.bar", { style: { left: `${from}%`, width: `max(${width}%, 3px)` } })),
    h("span.length", {}, long ? duration(end - start) : ""));
}

/** What came of a call, without saying again which tool it was. */
function outcomeText(node, tool) {
  const text = told(node);
  const start = [": ", " returned: ", " failed: ", " timed out: "].map((end) => tool + end).find((one) => text.startsWith(one));
  return start ? text.slice(start.length) : text;
}
