// While the camera moves over many nodes, their last sharp picture is moved; at rest it is drawn anew.
//
// Without a graphics card a frame of 10,000 nodes takes half a second, and not much less without
// their edges: discs are blended, and drawn again to find what the mouse is on; then each canvas is
// copied over the page, which alone is too much for 30 frames a second.
// One opaque canvas that was drawn before costs none of that, whatever is on it.

const REST_MS = 200;
const MOST_REST_MS = 2_000;

export class Moving {
  /**
   * @param on {begun(), rested()}: called when the camera begins to move, and when it rests, just
   *   before the sharp picture is drawn.
   */
  constructor(sigma, room, colour, on) {
    Object.assign(this, { sigma, room, colour, on });
    this.camera = sigma.getCamera();
    this.isWanted = false;
    this.isMoving = false;
    this.busyMs = 0; // for how long frames come late after a sharp one
    this.last = document.createElement("canvas");
    this.last.className = "last";
    this.context = this.last.getContext("2d", { alpha: false });
    // All that sigma does when its camera moves is to draw.
    this.camera.removeAllListeners("updated");
    this.camera.on("updated", () => (this.isWanted ? this.move() : sigma.scheduleRender()));
    sigma.on("beforeRender", () => room.classList.remove("moving"));
    sigma.on("afterRender", () => this.keep());
    // What stands where is asked of the last drawing, and that is elsewhere by now.
    for (const name of ["getNodeAtPosition", "getEdgeAtPoint"]) {
      const ask = sigma[name].bind(sigma);
      sigma[name] = (...at) => (this.isMoving ? null : ask(...at));
    }
  }

  close() {
    clearTimeout(this.rest);
    cancelAnimationFrame(this.frame);
    this.last.remove();
  }

  /** Keep what was drawn just now: a canvas of WebGL is empty again after its frame. */
  keep() {
    if (!this.isWanted) return;
    this.keptAt = this.camera.getState();
    const { edges, nodes, labels, mouse } = this.sigma.getCanvases();
    Object.assign(this.last, { width: nodes.width, height: nodes.height });
    Object.assign(this.last.style, { width: nodes.style.width, height: nodes.style.height });
    this.context.fillStyle = this.colour("card");
    this.context.fillRect(0, 0, nodes.width, nodes.height);
    for (const canvas of [edges, nodes, labels]) this.context.drawImage(canvas, 0, 0);
    if (!this.last.isConnected) mouse.before(this.last);
    const begun = performance.now();
    const late = (frames) => requestAnimationFrame(() => {
      if (frames) late(frames - 1);
      else this.busyMs = performance.now() - begun;
    });
    late(2);
  }

  move() {
    if (!this.isMoving) this.on.begun();
    this.isMoving = true;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.isMoving || !this.keptAt) return;
      this.last.style.transform = this.transform();
      this.room.classList.add("moving");
    });
    this.wait();
  }

  /** What comes from a hand while a sharp picture is drawn comes late: that is no rest. */
  wait() {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.settle(), Math.min(MOST_REST_MS, Math.max(REST_MS, 2 * this.busyMs)));
  }

  /** Draw anew, unless the graph is held. */
  settle() {
    if (this.sigma.getMouseCaptor().isMouseDown) {
      this.wait();
      return;
    }
    this.isMoving = false;
    this.on.rested();
    this.sigma.scheduleRender();
  }

  /** From the viewport of the kept picture to the one of the camera now. */
  transform() {
    const { width, height } = this.sigma.getDimensions();
    const [was, is] = [this.keptAt, this.camera.getState()].map((cameraState) => ({ cameraState }));
    const [start, right, low] = [[0, 0], [width, 0], [0, height]].map(([x, y]) =>
      this.sigma.framedGraphToViewport(this.sigma.viewportToFramedGraph({ x, y }, was), is));
    const across = [(right.x - start.x) / width, (right.y - start.y) / width];
    const down = [(low.x - start.x) / height, (low.y - start.y) / height];
    return `matrix(${[...across, ...down, start.x, start.y].join()})`;
  }
}
