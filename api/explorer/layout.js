// Where nodes stand: steps of ForceAtlas2 beside the page, which stays free for whoever looks.
self.module = {};
importScripts("vendor/forceatlas2.js");
const iterate = self.module.exports;

const MOST_MS = 12_000;

let turn = 0;
let isHeld = false;
let onward = null;

/** A layout of its own for each message, told every `pause` ms; a newer one ends it. */
function lay({ nodes, edges, settings, steps, pause }) {
  const mine = ++turn;
  let left = steps;
  let spentMs = 0;
  const work = () => {
    if (mine !== turn) return;
    if (isHeld) { // whoever moves the camera needs the processor
      onward = work;
      return;
    }
    const begun = performance.now();
    do iterate(settings, nodes, edges);
    while (--left > 0 && performance.now() < begun + pause);
    spentMs += performance.now() - begun;
    const done = left <= 0 || spentMs > MOST_MS;
    self.postMessage({ nodes: nodes.slice(), done });
    if (!done) setTimeout(work);
  };
  work();
}

self.onmessage = ({ data }) => {
  if (!("isHeld" in data)) {
    lay(data);
    return;
  }
  isHeld = data.isHeld;
  const work = onward;
  onward = null;
  if (work) work();
};
