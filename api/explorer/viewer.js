// In whose view the memory is read, where the key leaves the choice.
import * as api from "./api.js";
import { h } from "./elements.js";

/** The choice of a view, and the way out. */
export function viewer(again, leave) {
  const { everyone, others, view, tenant, key } = api.session();
  const parts = [];
  if (tenant) parts.push(h("span.dim.small", {}, tenant));
  if (others) {
    const turn = (user) => {
      api.keep({ view: user });
      again();
    };
    const named = view && view !== "*";
    const option = (value, text, selected) => h("option", { value, selected }, text);
    const choice = h("select", { onchange: () => {
      if (choice.value === "other") room.replaceChildren("Memory of ", field(turn));
      else turn(choice.value || null);
      room.querySelector("input")?.focus();
    } },
      everyone ? option("*", "everyone", view === "*") : null,
      option("", "nobody in particular", !view),
      named ? option(view, view, true) : null,
      option("other", "a user…", false));
    const room = h("label.view", {}, "Memory of ", choice);
    parts.push(room);
  }
  if (key) parts.push(h("button.quiet", { type: "button", onclick: leave }, "Sign out"));
  return parts;
}

/** For the id of a user. */
function field(turn) {
  const input = h("input", {
    type: "text", size: "12", placeholder: "id of the user", autocomplete: "off", spellcheck: "false",
    onchange: () => turn(input.value.trim() || null),
  });
  return input;
}
