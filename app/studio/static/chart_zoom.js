// A drawing of a chart in a box: fitted into it and never smaller than it was drawn, so that its letters keep 11 px;
// zoomed by keys and wheel, and dragged.

const MOST = 3;
const STEP = 1.2;

export class ChartZoom {
  constructor(box, percent) {
    this.box = box;
    this.svg = box.querySelector("svg");
    this.percent = percent;
    this.scale = null;      // null: fitted
    if (!this.svg) {
      return;
    }
    const view = this.svg.viewBox.baseVal;
    this.size = [view.width || this.svg.clientWidth, view.height || this.svg.clientHeight];
    box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? STEP : 1 / STEP, event);
      }
    }, { passive: false });
    this.offerDragging();
    new ResizeObserver(() => this.resize()).observe(box);
  }

  offerDragging() {
    let from = null;
    this.box.addEventListener("pointerdown", (event) => {
      this.wasDragged = false;
      from = event.button === 0 && event.pointerType === "mouse" ?
        [event.clientX, event.clientY, this.box.scrollLeft, this.box.scrollTop] : null;
    });
    this.box.addEventListener("pointermove", (event) => {
      if (from) {
        const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
        this.wasDragged ||= Math.hypot(x, y) > 4;
        this.box.scrollLeft = from[2] - x;
        this.box.scrollTop = from[3] - y;
      }
    });
    for (const name of ["pointerup", "pointerleave", "pointercancel"]) {
      this.box.addEventListener(name, () => { from = null; });
    }
  }

  // The drawing fills the column where it can; it is never made smaller than it was drawn.
  fit() {
    this.scale = null;
    this.resize();
  }

  resize() {
    if (!this.svg) {
      return;
    }
    const room = Math.min((this.box.clientWidth - 16) / this.size[0], (this.box.clientHeight - 16) / this.size[1]);
    const scale = this.scale ?? Math.min(1.3, Math.max(1, room));
    this.svg.setAttribute("width", this.size[0] * scale);
    this.svg.setAttribute("height", this.size[1] * scale);
    this.shownScale = scale;
    this.percent.textContent = `${Math.round(scale * 100)} %`;
  }

  zoom(factor, event = null) {
    if (!this.svg) {
      return;
    }
    const box = this.box.getBoundingClientRect();
    const [x, y] = event ? [event.clientX - box.left, event.clientY - box.top] : [box.width / 2, box.height / 2];
    const before = this.shownScale;
    this.scale = Math.min(MOST, Math.max(1, before * factor));
    this.resize();
    const ratio = this.shownScale / before;
    this.box.scrollLeft = (this.box.scrollLeft + x) * ratio - x;
    this.box.scrollTop = (this.box.scrollTop + y) * ratio - y;
  }
}
