// A graph drawn by sigma: nodes and edges as they come, moved apart beside the page.
import { Moving } from "./moving.js";

const scripts = new Map();
const PER_NODE = 10; // numbers a node in the layout's array: x, y, …, mass, convergence, size, fixed
const PER_EDGE = 3;
const STEPS = 400;
const MANY = 1_500; // nodes, from which on what moves is drawn in less detail

/** A script of ours, once. */
function load(name) {
  if (!scripts.has(name)) {
    scripts.set(name, new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = name;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${name} cannot be loaded`));
      document.head.append(script);
    }));
  }
  return scripts.get(name);
}

export const canDraw = () => {
  const context = document.createElement("canvas").getContext("webgl2");
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return Boolean(context);
};

/** The colours of the page, light or dark. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = new Map(); // thousands ask for the same few
  return (name) => {
    if (!read.has(name)) read.set(name, style.getPropertyValue(`--${name}`).trim());
    return read.get(name);
  };
}

export class Picture {
  /**
   * @param room element that it fills.
   * @param on {node(id), edge(key)}: called when one is clicked.
   */
  static async in(room, on) {
    await load("vendor/graphology.min.js");
    await load("vendor/sigma.min.js");
    return new Picture(room, on);
  }

  constructor(room, on) {
    this.graph = new graphology.MultiDirectedGraph();
    this.hiddenTypes = new Set();
    this.mostEdges = Infinity;
    this.chosen = null;
    this.root = null;
    this.colour = palette();
    this.worker = new Worker("layout.js");
    this.worker.onmessage = ({ data }) => this.place(data.nodes);
    this.sigma = new Sigma(this.graph, room, {
      allowInvalidContainer: true,
      enableEdgeEvents: true,
      defaultEdgeType: "arrow",
      labelFont: "system-ui, sans-serif",
      labelSize: 12,
      labelRenderedSizeThreshold: 5,
      labelColor: { color: this.colour("ink") },
      zIndex: true,
      minEdgeThickness: 1.5,
      nodeReducer: (id, data) => this.nodeLook(id, data),
      edgeReducer: (key, data) => this.edgeLook(key, data),
      // A label on a plate that can be read in the dark, too.
      defaultDrawNodeHover: (context, data, settings) => this.drawHover(context, data, settings),
    });
    this.moving = new Moving(this.sigma, room, (name) => this.colour(name), {
      begun: () => this.worker.postMessage({ isHeld: true }),
      rested: () => {
        if (this.late) this.place(this.late);
        this.worker.postMessage({ isHeld: false });
      },
    });
    this.sigma.on("clickNode", ({ node }) => on.node(node));
    this.sigma.on("clickEdge", ({ edge }) => on.edge(edge));
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => {
      this.colour = palette();
      this.sigma.setSetting("labelColor", { color: this.colour("ink") });
      this.sigma.refresh();
    };
    this.scheme.addEventListener("change", this.recolour);
  }

  close() {
    this.scheme.removeEventListener("change", this.recolour);
    this.worker.terminate();
    this.moving.close();
    this.sigma.kill();
  }

  /** Add what is new: nodes {id, label, kind} and edges {key, source, target, type, view}. */
  add(nodes, edges, around = null) {
    const centre = around && this.graph.hasNode(around) ? this.graph.getNodeAttributes(around) : { x: 0, y: 0 };
    const reach = around ? 3 : 10;
    let number = 0;
    for (const node of nodes) {
      if (this.graph.hasNode(node.id)) continue;
      // A spiral: no two at one place, and the same again the next time.
      const angle = number * 2.399963;
      const away = reach * Math.sqrt(++number) / Math.sqrt(nodes.length);
      this.graph.addNode(node.id, { label: node.label, kind: node.kind, x: centre.x + away * Math.cos(angle), y: centre.y + away * Math.sin(angle), size: 4 });
    }
    for (const edge of edges) {
      if (this.graph.hasEdge(edge.key) || !this.graph.hasNode(edge.source) || !this.graph.hasNode(edge.target)) continue;
      this.graph.addEdgeWithKey(edge.key, edge.source, edge.target, { kind: edge.type, view: edge.view, size: 1.5 });
    }
    this.many = this.graph.order > MANY;
    const [least, most] = this.many ? [1.5, 6] : [4, 14];
    const size = (id) => Math.min(most, least * (1 + 0.4 * Math.sqrt(this.graph.degree(id))));
    this.graph.updateEachNodeAttributes((id, data) => ({ ...data, size: size(id) }), { attributes: ["x", "y", "size"] });
    this.arrange();
  }

  /** Begin to move nodes apart. */
  arrange() {
    this.order = this.graph.nodes();
    const place = new Map(this.order.map((id, number) => [id, number * PER_NODE]));
    const nodes = new Float32Array(this.order.length * PER_NODE);
    for (const [id, start] of place) {
      const { x, y, size } = this.graph.getNodeAttributes(id);
      nodes.set([x, y, 0, 0, 0, 0, 1 + this.graph.degree(id), 1, size, 0], start);
    }
    const edges = new Float32Array(this.graph.size * PER_EDGE);
    let at = 0;
    this.graph.forEachEdge((key, data, source, target) => {
      edges.set([place.get(source), place.get(target), 1], at);
      at += PER_EDGE;
    });
    const { many } = this;
    this.moving.isWanted = many;
    this.sigma.setSettings({ enableEdgeEvents: !many, minEdgeThickness: many ? 0.7 : 1.5 });
    const settings = {
      linLogMode: false, outboundAttractionDistribution: false, adjustSizes: false, edgeWeightInfluence: 1,
      scalingRatio: 10, strongGravityMode: true, gravity: 0.05, slowDown: 1 + Math.log(this.order.length + 1),
      barnesHutOptimize: many, barnesHutTheta: 0.6,
    };
    this.worker.postMessage({ nodes, edges, settings, steps: STEPS, pause: Math.max(30, this.order.length / 20) });
  }

  place(nodes) {
    this.late = this.moving.isMoving ? nodes : null;
    if (this.late) return;
    if (nodes.length !== this.order.length * PER_NODE) return; // of a layout that a newer one has ended
    const placed = new Map(this.order.map((id, number) => [id, number * PER_NODE]));
    this.graph.updateEachNodeAttributes((id, data) => {
      const start = placed.get(id);
      data.x = nodes[start];
      data.y = nodes[start + 1];
      return data;
    }, { attributes: ["x", "y"] });
  }

  isHub(id) {
    return id !== this.root && this.graph.degree(id) > this.mostEdges;
  }

  /** Hide types of edges, and nodes with more edges than some; then what nothing leads to. */
  filter({ hiddenTypes = this.hiddenTypes, mostEdges = this.mostEdges }) {
    this.hiddenTypes = hiddenTypes;
    this.mostEdges = mostEdges;
    this.lonely = new Set();
    if (hiddenTypes.size || mostEdges !== Infinity) {
      const reached = new Set([this.root]);
      this.graph.forEachEdge((key, data, source, target) => {
        if (!hiddenTypes.has(data.kind) && !this.isHub(source) && !this.isHub(target)) reached.add(source).add(target);
      });
      this.graph.forEachNode((id) => { if (!reached.has(id)) this.lonely.add(id); });
    }
    this.sigma.scheduleRefresh();
  }

  choose(what) {
    this.chosen = what;
    this.sigma.scheduleRefresh();
  }

  nodeLook(id, data) {
    const look = { ...data, color: this.colour(`kind-${data.kind}`) || this.colour("kind-Event") };
    if (this.lonely?.has(id) || this.isHub(id)) look.hidden = true;
    if (id === this.root || id === this.chosen) {
      look.highlighted = id === this.chosen;
      look.forceLabel = true;
      look.zIndex = 2;
    } else if (this.chosen && this.graph.hasNode(this.chosen) && this.graph.areNeighbors(id, this.chosen)) {
      look.forceLabel = true;
      look.zIndex = 1;
    }
    return look;
  }

  edgeLook(key, data) {
    const look = { ...data, color: this.colour(`view-${data.view}`) || this.colour("line"), type: this.many ? "line" : "arrow" };
    if (this.hiddenTypes.has(data.kind)) look.hidden = true;
    if (key === this.chosen) look.size = 5;
    else if (this.chosen && this.graph.hasNode(this.chosen) && this.graph.hasExtremity(key, this.chosen)) look.size = 3;
    return look;
  }

  drawHover(context, data, settings) {
    const text = data.label || "";
    context.font = `${settings.labelWeight} ${settings.labelSize}px ${settings.labelFont}`;
    context.fillStyle = this.colour("card");
    context.strokeStyle = this.colour("accent");
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(data.x - data.size - 3, data.y - settings.labelSize, context.measureText(text).width + 2 * data.size + 14, 2 * settings.labelSize, 4);
    context.fill();
    context.stroke();
    context.fillStyle = this.colour("ink");
    context.fillText(text, data.x + data.size + 3, data.y + settings.labelSize / 3);
  }

  zoom(step) {
    const camera = this.sigma.getCamera();
    if (step === 0) camera.animatedReset({ duration: 200 });
    else if (step > 0) camera.animatedZoom({ duration: 150 });
    else camera.animatedUnzoom({ duration: 150 });
  }
}
