// Times and amounts as a person reads them, in the reader's own time zone.
import { h } from "./elements.js";

const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const SHORT_DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const MIDNIGHT = "00:00:00";
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const SHORT_CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const ms = (text) => Date.parse(text);
export const dayName = (text) => DAY.format(ms(text));
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** A moment; its whole text is told on hovering. */
export function time(text, how = "clock") {
  const at = ms(text);
  const day = SHORT_DAY.format(at);
  const shown = {
    clock: () => CLOCK.format(at),
    short: () => SHORT_CLOCK.format(at),
    day: () => day,
    full: () => (CLOCK.format(at) === MIDNIGHT ? day : `${day}, ${CLOCK.format(at)}`),
  }[how]();
  return h("time", { datetime: text, title: `${text} (shown in ${zone()})` }, shown);
}

const STEPS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];

/** 420 ms, 3.2 s, 2 min 5 s, 3 h 10 min. */
export function duration(length) {
  if (length < 1_000) return `${Math.round(length)} ms`;
  if (length < 10_000) return `${(length / 1_000).toFixed(1)} s`;
  const first = STEPS.findIndex(([size]) => length >= size);
  const [size, unit] = STEPS[first];
  const whole = Math.floor(length / size);
  const next = STEPS[first + 1];
  const rest = next ? Math.floor((length % size) / next[0]) : 0;
  return `${whole} ${unit}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

export const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString()} ${number === 1 ? one : many}`;

/** What an event says. */
export function told(node) {
  const { summary, event_type, tool_name } = node.attributes;
  return summary || tool_name || event_type;
}

/** Who did it: a tool by its caller, else who speaks. */
export const actor = (node) => node.provenance.agent_id || "?";

/** How a node of any kind is called. */
export function nameOf(node) {
  const { attributes } = node;
  if (node.type === "Event") return told(node);
  return attributes.display_name || attributes.name || attributes.canonical_name || attributes.content || attributes.summary || node.node_id;
}

/** Positions in the order of the ledger. */
export function byPosition(a, b) {
  const [first, second] = [a, b].map((text) => text.split("-").map(Number));
  return first[0] - second[0] || first[1] - second[1];
}
