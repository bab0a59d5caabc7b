// Where nodes stand: steps of ForceAtlas2 beside the page, which stays free for whoever looks.
self.module = {};
importScripts("vendor/forceatlas2.js");
const iterate = self.module.exports;

const MOST_MS = 12_000;

let turn = 0;

/** A layout of its own for each message, told every `pause` ms; a newer one ends it. */
self.onmessage = ({ data: { nodes, edges, settings, steps, pause } }) => {
  const mine = ++turn;
  const until = performance.now() + MOST_MS;
  let left = steps;
  const work = () => {
    if (mine !== turn) return;
    const end = performance.now() + pause;
    do iterate(settings, nodes, edges);
    while (--left > 0 && performance.now() < end);
    const done = left <= 0 || performance.now() > until;
    self.postMessage({ nodes: nodes.slice(), done });
    if (!done) setTimeout(work);
  };
  work();
};
