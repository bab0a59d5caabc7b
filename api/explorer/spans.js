// From the events of a session to the spans of its timeline: calls with what came of them, retries.
import { isFailure } from "./elements.js";
import { ms } from "./format.js";

const OUTCOMES = new Set(["result", "failure"]);
const IDLE_MS = 5_000;
const IDLE_SHARE = 0.15;

/** Spans in order of time. A call and its outcome are one: {node, outcome, start, end, attempt}. */
export function spansOf(nodes, edges, legend) {
  const byId = new Map(nodes.map((node) => [node.node_id, node]));
  const causes = edges.filter((edge) => legend.edges[edge.type]?.view === "causal" && byId.has(edge.source) && byId.has(edge.target));
  const outcomeOf = new Map();
  const taken = new Set();
  for (const { source, target } of causes) {
    const effect = byId.get(source).attributes;
    const call = byId.get(target).attributes;
    if (call.kind === "call" && call.tool_name && call.tool_name === effect.tool_name && OUTCOMES.has(effect.kind) && !outcomeOf.has(target)) {
      outcomeOf.set(target, byId.get(source));
      taken.add(source);
    }
  }
  const spans = nodes.filter((node) => !taken.has(node.node_id)).map((node) => {
    const outcome = outcomeOf.get(node.node_id) || null;
    const start = ms(node.provenance.occurred_at);
    const end = Math.max(start, ...[node, outcome].filter(Boolean).flatMap(endsOf));
    return { node, outcome, start, end, attempt: 1, failed: isFailure((outcome || node).attributes) };
  });
  const spanOf = new Map();
  for (const span of spans) {
    spanOf.set(span.node.node_id, span);
    if (span.outcome) spanOf.set(span.outcome.node_id, span);
  }
  // In order of time, so that the third try knows that the second was one.
  const inOrder = [...causes].sort((a, b) => ms(byId.get(a.source).provenance.occurred_at) - ms(byId.get(b.source).provenance.occurred_at));
  for (const { source, target, properties } of inOrder) {
    const later = spanOf.get(source);
    const earlier = spanOf.get(target);
    const again = properties.rule === "retry" ||
      (later.node.node_id === source && later.node.attributes.kind === "call" && earlier.failed && sameTool(later, earlier));
    if (later !== earlier && again) {
      later.attempt = Math.max(later.attempt, earlier.attempt + 1);
      later.retryOf = earlier;
    }
  }
  return spans.sort((a, b) => a.start - b.start);
}

const sameTool = (a, b) => a.node.attributes.tool_name && a.node.attributes.tool_name === b.node.attributes.tool_name;

function endsOf(node) {
  return [ms(node.attributes.ended_at || node.provenance.occurred_at)];
}

/** Where a moment stands between 0 and 1, long idle stretches squeezed; and these stretches. */
export function axisOf(spans) {
  const busy = [];
  for (const span of spans) {
    const last = busy[busy.length - 1];
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end);
    else busy.push({ start: span.start, end: span.end });
  }
  const whole = busy.length ? busy[busy.length - 1].end - busy[0].start : 0;
  const gaps = [];
  const pauses = busy.slice(1).map(({ start }, number) => ({ start: busy[number].end, end: start, length: start - busy[number].end }));
  let idle = 0;
  // The longest first: once it is squeezed, the next may be most of what is left.
  for (const pause of [...pauses].sort((a, b) => b.length - a.length)) {
    if (pause.length <= IDLE_MS || pause.length <= IDLE_SHARE * (whole - idle)) break;
    gaps.push(pause);
    idle += pause.length;
  }
  gaps.sort((a, b) => a.start - b.start);
  const squeezed = Math.max(1, (whole - idle) * 0.04);
  const first = busy.length ? busy[0].start : 0;
  const total = Math.max(1, whole - idle + squeezed * gaps.length);
  const at = (moment) => {
    let past = moment - first;
    for (const gap of gaps) {
      if (moment >= gap.end) past -= gap.length - squeezed;
      else if (moment > gap.start) past -= (moment - gap.start) * (1 - squeezed / gap.length);
    }
    return past / total;
  };
  return { at, gaps };
}
