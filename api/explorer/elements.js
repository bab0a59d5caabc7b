// Elements of a page, made of text alone: nothing that comes from the memory is ever read as HTML.

/** An element. `on…` are listeners, `true` is an attribute without a value, null and false none. */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.classList.add(...classes);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, text] of Object.entries(value)) element.style.setProperty(name, text);
    else element.setAttribute(key, value === true ? "" : value);
  }
  put(element, ...children);
  return element;
}

/** Add children: texts, elements, lists of them; null and false are nothing. */
export function put(element, ...children) {
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** Tell somebody who does not see the page change. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** An id, short, whole when copied. */
export function id(text, { keep = 8 } = {}) {
  const short = shortened(text, keep);
  const button = h("button.id", { type: "button", title: `${text}\nCopy`, "aria-label": `Copy ${text}` }, short);
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
      say(`Copied ${text}`);
    } catch {
      // Only pages of https and of this machine may write there: the text is selected instead.
      button.textContent = text;
      getSelection().selectAllChildren(button);
      return;
    }
    setTimeout(() => (button.textContent = short), 1200);
  });
  return button;
}

/** UUIDs of one moment begin alike: their end tells them apart. */
export function shortened(text, keep = 8) {
  const own = text.replace(/^(entity|summary|community):/, "");
  return own.length <= keep + 2 ? own : `…${own.slice(-keep)}`;
}

export function badge(text, kind = "") {
  return h(`span.badge${kind ? `.${kind}` : ""}`, {}, text);
}

const SAID_AS = { failed: "failed", timeout: "timed out", running: "running", pending: "pending" };

/** What became of an event, if that is worth telling. */
export function statusBadge({ status, kind }) {
  if (status === "completed") return null;
  if (SAID_AS[status]) return badge(SAID_AS[status], status === "failed" || status === "timeout" ? "bad" : "");
  return kind === "failure" ? badge("failure", "bad") : null;
}

export function isFailure({ status, kind }) {
  return status === "failed" || status === "timeout" || kind === "failure";
}

/** A share between 0 and 1 as a bar with its figure. */
export function meter(share, label) {
  const width = `${Math.round(Math.max(0, Math.min(1, share)) * 100)}%`;
  return h("span.meter", { title: label },
    h("span.track", { "aria-hidden": "true" }, h("span.fill", { style: { width } })),
    h("span.figure", {}, share.toFixed(2)));
}

/** JSON to read: folded where it is long. */
export function json(value) {
  const text = JSON.stringify(value, null, 2);
  return h("pre.json", { tabindex: "0" }, text);
}

export function empty(title, ...more) {
  return h("div.empty", {}, h("p", {}, title), ...more.map((one) => h("p.dim", {}, one)));
}

/** A button that brings the next page and goes when there is none. */
export function moreButton(text, load) {
  const button = h("button.more", { type: "button" }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    if (await load()) button.disabled = false;
    else button.remove();
  });
  return button;
}
