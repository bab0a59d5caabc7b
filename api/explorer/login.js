// Who comes in: a key of the API, tried before it is kept.
import * as api from "./api.js";
import { h } from "./elements.js";

/** Ask for a key; `enter` is called once one is good. Without any keys on the server nobody is asked. */
export async function login(page, enter, reason = "") {
  if (!reason) {
    try {
      const who = await api.probe(null);
      api.keep({ key: null, ...who });
      enter();
      return;
    } catch (problem) {
      if (problem.status !== 401) reason = problem.message;
    }
  }
  const said = h("p.error", { role: "alert" }, reason);
  const key = h("input", { id: "key", type: "password", required: true, autocomplete: "off", spellcheck: "false" });
  const tenant = h("input", { id: "tenant", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "default" });
  const button = h("button.primary", { type: "submit" }, "Open");
  const form = h("form.login", {
    onsubmit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      const as = { key: key.value.trim(), tenant: tenant.value.trim() || null };
      try {
        api.keep({ ...as, ...(await api.probe(as)) });
        enter();
      } catch (problem) {
        said.textContent = problem.status === 401 ? "The server does not know this key." : problem.message;
        button.disabled = false;
        key.focus();
      }
    },
  },
    h("h1", {}, "Recollect"),
    h("p.dim", {}, "Look at what your agents did, and why."),
    h("label", { for: "key" }, "API key"), key,
    h("details", {}, h("summary", {}, "The key is for several tenants"),
      h("label", { for: "tenant" }, "Tenant"), tenant),
    said, button,
    h("p.dim.small", {}, "The key stays in this tab and is forgotten when you close it. ",
      "After ", h("code", {}, "recollect up --all"), " it is in ", h("code", {}, "run/api-key"), " of the data folder."));
  page.replaceChildren(form);
  document.title = "Recollect";
  key.focus();
}
