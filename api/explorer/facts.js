// What was said of an entity, over time; and a fact that is put right.
import { dialog, field, refresh, until } from "./act.js";
import * as api from "./api.js";
import { badge, h, id } from "./elements.js";
import { count, ms, time } from "./format.js";
import { current, to } from "./past.js";

const LONGEST_REASON = 500;

/** Facts by relation: where several follow each other, the later contradicted the earlier. */
export function groups(facts, own) {
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
        `sure to ${Math.round(fact.confidence * 100)} %, `, fact.source_kind.replaceAll("_", " "), fact.user_id ? `, of ${fact.user_id}` : ""),
      h("a.small", { href: to("event", fact.provenance.event_id) }, "where that is from"),
      state === "holds" && mayCorrect(fact) ? h("button.quiet.small", { type: "button", "aria-label": `Not true: ${fact.fact}`, onclick: () => correct(fact) }, "not true") : null),
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

/** A key of one user withdraws what is that user's; the past is not changed. */
function mayCorrect(fact) {
  return !current() && (api.session().others || fact.user_id !== null);
}

function correct(fact) {
  const reason = h("input", { type: "text", name: "reason", maxlength: String(LONGEST_REASON), autocomplete: "off" });
  const choice = (value, text, checked) =>
    h("label.check", {}, h("input", { type: "radio", name: "since", value, checked }), text);
  dialog({
    title: "Is this not true?",
    parts: [
      h("p", {}, `“${fact.fact}”`),
      h("fieldset", {}, h("legend", {}, "What is wrong"), choice("never", "It was never true", true), choice("now", "It is not true any more")),
      field("Why (others can read it)", reason),
      h("p.dim.small", {}, "An event that withdraws it is added to the ledger; what was said stays there."),
    ],
    action: "Withdraw it",
    needs: "write",
    work: async (form) => {
      const { since, reason: why } = Object.fromEntries(new FormData(form));
      const position = await api.retract(fact, since === "never" ? fact.provenance.supporting_event_ids : [null], why.trim());
      const gone = await until(async () => {
        const { facts } = await api.facts(fact.source.entity_id, { limit: 500, min_position: position });
        return !facts.some((one) => one.relation === fact.relation && one.target.entity_id === fact.target.entity_id && stateOf(one)[0] === "holds");
      });
      return gone ? "It is withdrawn." : "It is in the ledger; the memory has not read it yet, or another event says so, too.";
    },
    after: () => refresh("The fact is withdrawn"),
  });
}
