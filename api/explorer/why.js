// A tree of causes, as the API tells it: what happened, because of what, how that is known.
import { badge, h } from "./elements.js";
import { dayName, time } from "./format.js";
import { to } from "./past.js";

/** How the API begins a line: in its own time zone. */
const MOMENT = /^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? /;
const RULES = {
  retry: "a retry of it",
  shared_name: "a change elsewhere names the same",
  same_failure: "an earlier failure names the same",
  named_before: "led to a change elsewhere",
};

/** In words how it is known that one event is a cause of another. */
export function grounds({ mechanism, rule, confidence, evidence }) {
  const names = Array.isArray(evidence) ? evidence.join(", ") : evidence;
  const parts = [];
  if (mechanism === "direct") parts.push("its producer named the cause");
  else if (mechanism === "inferred") parts.push(`inferred: ${RULES[rule] || (rule || "").replaceAll("_", " ") || "by a rule"}`);
  if (confidence !== null && confidence !== undefined && mechanism !== "direct") parts.push(`sure to ${Math.round(confidence * 100)} %`);
  if (names) parts.push(`both name ${names}`);
  return parts.join("; ");
}

/**
 * The tree, the event that is asked about first. A chain goes on without indent: it is long.
 * @param session where the reader is: another one is named.
 */
export function whyTree(answer, nodes, session = null) {
  const byId = new Map(nodes.map((node) => [node.node_id, node]));
  const below = new Map();
  for (const step of answer.tree) {
    if (step.cause_of) below.set(step.cause_of, [...(below.get(step.cause_of) || []), step]);
  }
  const head = answer.tree.find((step) => !step.cause_of);
  if (!head) return null;
  let day = "";
  const moment = (node) => {
    if (!node) return null;
    const name = dayName(node.provenance.occurred_at);
    const how = name === day ? "clock" : "full";
    day = name;
    return time(node.provenance.occurred_at, how);
  };
  const chain = (step, from) => {
    const items = [];
    let here = step;
    let where = from;
    for (;;) {
      const next = below.get(here.node_id) || [];
      const node = byId.get(here.node_id);
      const own = node?.provenance.session_id;
      if (own && own !== where) items.push(h("li.session", {}, "in ", h("a", { href: to("session", own) }, own)));
      items.push(item(here, node, moment(node)));
      where = own;
      if (next.length !== 1) {
        if (next.length) items.push(h("li.fork", {}, h("ul", {}, next.map((one) => h("li", {}, h("ol.chain", {}, chain(one, where)))))));
        return items;
      }
      [here] = next;
    }
  };
  const items = chain(head, session);
  const plain = answer.tree.every((step) => !step.cause_of || isPlain(step));
  return h("div", {},
    h("ol.chain.why", { "aria-label": "Causes, the nearest first" }, items),
    h("p.dim.small", {}, plain
      ? "Each step was named as the cause by whoever sent the event."
      : "Where nothing else is said, whoever sent the event named the cause."));
}

const isPlain = (step) => step.mechanism === "direct" && !step.evidence.length;

function item(step, node, moment) {
  const bad = node && (node.attributes.kind === "failure" || ["failed", "timeout"].includes(node.attributes.status));
  return h(`li.step${bad ? ".failing" : ""}`, {},
    h("span.when", {}, moment || ""),
    h("a.text", { href: to("event", step.node_id) }, step.line.replace(MOMENT, "")),
    step.cause_of && !isPlain(step) ? h("span.grounds.dim.small", {}, grounds(step)) : null,
    step.mechanism === "inferred" ? badge("inferred") : null);
}

