// What the pages write: asked about in a dialog first, and told of when it is done.
import * as api from "./api.js";
import { h, put, say } from "./elements.js";

/**
 * Ask before something is done.
 * @param needs the role of a key that may do it.
 * @param work does it: gets the form, and a room for what is to be seen meanwhile; gives what to tell then.
 * @param after is called when the dialog is closed and it was done.
 */
export function dialog({ title, parts, action, needs, work, after }) {
  let done = false;
  const told = h("p.told", { role: "status" });
  const seen = h("div", {}, parts);
  const go = h("button.primary", { type: "submit" }, action);
  const leave = h("button", { type: "button", onclick: () => box.close() }, "Cancel");
  const form = h("form", {
    oninput: () => { if (told.classList.contains("error")) told.textContent = ""; }, // it was about what stood there
    onsubmit: async (event) => {
      event.preventDefault();
      go.disabled = true;
      told.className = "told dim";
      told.textContent = "Working…";
      try {
        told.textContent = await work(form, seen);
        told.className = "told";
        done = true;
        go.remove();
        leave.textContent = "Close";
        leave.focus();
      } catch (problem) {
        told.className = "told error";
        told.textContent = inWords(problem, needs);
        go.disabled = false;
      }
    },
  }, seen, told, h("p.actions", {}, go, leave));
  const box = h("dialog", { "aria-labelledby": "asked", onclose: () => {
    removeEventListener("hashchange", close);
    box.remove();
    if (done && after) after();
  } }, h("h2", { id: "asked" }, title), form);
  const close = () => box.close();
  addEventListener("hashchange", close);
  document.body.append(box);
  box.showModal();
}

/** Why it did not work; pages cannot know what a key may do before it is tried. */
export function inWords(problem, needs) {
  if (problem.status === 403) return `This key may look, and not do this: it takes a key with the role ${needs}.`;
  if (!(problem instanceof api.Problem)) console.error(problem);
  return [problem.message, ...(problem.errors || []).map(({ field, rule }) => `${field}: ${rule}`)].join(" ");
}

/** A field with its label below a question. */
export function field(label, input) {
  return h("label.field", {}, h("span", {}, label), input);
}

/** Show the page again, as it is by now. */
export function refresh(text) {
  dispatchEvent(new HashChangeEvent("hashchange"));
  say(text);
}

const PAUSE_MS = 700;

/** Look until something is so; false: not within so many looks. */
export async function until(look, looks = 30) {
  for (let number = 0; number < looks; number += 1) {
    if (await look()) return true;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return false;
}

/** A button that says on its spot what did not work. */
export function action(text, needs, work) {
  const told = h("span.error", { role: "alert" });
  const button = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    told.textContent = "";
    try {
      await work();
    } catch (problem) {
      told.textContent = inWords(problem, needs);
    }
    button.disabled = false;
  } }, text);
  const room = h("span.act", {});
  put(room, button, " ", told);
  return room;
}
