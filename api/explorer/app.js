// The frame around the pages: who looks, which page, as of when.
import * as api from "./api.js";
import { h, say } from "./elements.js";
import { login } from "./login.js";
import { showPast } from "./past.js";
import { viewer } from "./viewer.js";

const PAGES = {
  sessions: ["Sessions", () => import("./sessions.js")],
  ask: ["Ask", () => import("./ask.js")],
  entities: ["Entities", () => import("./entities.js")],
  graph: ["Graph", () => import("./graph.js")],
  operations: ["Operations", () => import("./operations.js")],
  session: [null, () => import("./session.js")],
  event: [null, () => import("./event.js")],
  entity: [null, () => import("./entity.js")],
  user: [null, () => import("./user.js")],
  days: [null, () => import("./days.js")],
  difference: [null, () => import("./difference.js")],
};
const WITHIN = { session: "sessions", event: "sessions", entity: "entities", user: "entities", days: "sessions", difference: "operations" };
let turn = 0;
let leave = null;

/** `#/page/id?parameter=…` */
function place() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: name || "sessions", id: rest.length ? decodeURIComponent(rest.join("/")) : null, query: new URLSearchParams(search) };
}

async function show() {
  const page = document.getElementById("page");
  const bar = document.getElementById("bar");
  const mine = ++turn;
  if (leave) leave();
  leave = null;
  if (!api.session()) {
    bar.hidden = true;
    document.getElementById("past").hidden = true;
    login(page, show);
    return;
  }
  const at = place();
  api.readAsOf(at.query.get("at"));
  showPast(document.getElementById("past"), at);
  bar.hidden = false;
  const [, load] = PAGES[at.name] || PAGES.sessions;
  mark(WITHIN[at.name] || at.name);
  document.getElementById("viewer").replaceChildren(...viewer(show, leaveSession));
  const room = h("div.room", {});
  page.replaceChildren(h("p.loading", { role: "status" }, "Loading…"));
  try {
    const module = await load();
    const left = await module.show(room, at);
    if (mine !== turn) {
      if (left) left();
      return;
    }
    leave = left || null;
    page.replaceChildren(room);
    if (module.shown) module.shown();
  } catch (problem) {
    if (mine !== turn) return;
    if (problem.status === 401) {
      api.keep(null);
      login(page, show, "The key is not valid any more.");
      bar.hidden = true;
      return;
    }
    page.replaceChildren(failure(problem));
  }
  const title = page.querySelector("h1");
  document.title = title ? `${title.textContent} · Recollect` : "Recollect";
  say(document.title);
  if (document.activeElement === document.body || !document.activeElement) page.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function failure(problem) {
  if (!(problem instanceof api.Problem)) console.error(problem);
  return h("div.problem", { role: "alert" },
    h("h1", {}, problem.status === 404 ? "Not here" : "That did not work"),
    h("p", {}, problem.message),
    h("ul", {}, (problem.errors || []).map((error) => h("li", {}, `${error.field}: ${error.rule}`))),
    problem.status === 404 ? h("p.dim", {}, "It may be of another user or tenant than you look at, or not be folded yet.") : null,
    h("p", {}, h("button", { type: "button", onclick: show }, "Try again")));
}

function mark(name) {
  const links = Object.entries(PAGES).filter(([, [title]]) => title).map(([key, [title]]) =>
    h("a", { href: `#/${key}`, "aria-current": key === name ? "page" : null }, title));
  document.querySelector("#bar nav").replaceChildren(...links);
}

function leaveSession() {
  api.keep(null);
  location.hash = "";
  show();
}

// One key takes to what is looked for, as in other tools for developers.
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const field = document.querySelector("main input[type=search]");
  if (field) {
    event.preventDefault();
    field.focus();
  }
});
addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the page
  document.getElementById("page").focus();
});
show();
