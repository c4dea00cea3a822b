// The chart of a run: fitted into its column and never smaller than it was drawn, so that its letters keep 11 px; zoomed
// by keys and wheel, dragged, marked with the path so far, and with how often and how long the run was in each state.

import { conversationPath, make, request } from "/static/api.js";
import { collectElements } from "/static/chart_marks.js";
import { formatSeconds } from "/static/run_trace.js";

const MOST = 3;
const STEP = 1.2;
const SHADES = 5;
const HEATS = Array.from({ length: SHADES }, (_, index) => `heat-${index + 1}`);

function findShade(value, most) {
  return value > 0 && most > 0 ? Math.max(1, Math.ceil((SHADES * value) / most)) : 0;
}

export class RunChart {
  constructor(box, { percent, pickState }) {
    this.box = box;
    this.svg = box.querySelector("svg");
    this.percent = percent;
    this.elements = collectElements(box);
    this.firstVisits = new Map();
    this.current = new Set();
    this.scale = null;      // null: fitted
    this.seen = 0;
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
    box.addEventListener("click", (event) => {
      const state = this.wasDragged ? null : event.target.closest("[data-state]");
      if (state) {
        pickState(state.dataset.state);
      }
    });
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
    this.showCurrent();
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

  // -- the path so far -------------------------------------------------------------------------------

  noteVisits(steps) {
    this.firstVisits.clear();
    for (let seq = steps.from; seq < steps.to; seq += 1) {
      for (const state of steps.activeStates(seq)) {
        this.noteVisit(`state ${state}`, seq);
      }
      for (const [source, row] of steps.fired(seq)) {
        this.noteVisit(`row ${source} ${row}`, seq);
      }
    }
  }

  noteVisit(key, seq) {
    if (!this.firstVisits.has(key)) {
      this.firstVisits.set(key, seq);
    }
  }

  show(steps, seq) {
    const active = new Set(steps.activeStates(seq).map((state) => `state ${state}`));
    const taken = new Set(steps.fired(seq).map(([source, row]) => `row ${source} ${row}`));
    for (const [key, group] of this.elements) {
      const isVisited = (this.firstVisits.get(key) ?? Infinity) <= seq;
      for (const element of group) {
        element.classList.toggle("visited", isVisited);
        element.classList.toggle("current", active.has(key));
        element.classList.toggle("taken", taken.has(key));
      }
    }
    this.showCurrent();
  }

  showCurrent() {
    const current = [...this.box.querySelectorAll("[data-state].current")].at(-1)?.getBoundingClientRect();
    const box = this.box.getBoundingClientRect();
    if (current && (current.top < box.top || current.bottom > box.bottom)) {
      this.box.scrollTop += current.top - box.top - (box.height - current.height) / 2;
    }
    if (current && (current.left < box.left || current.right > box.right)) {
      this.box.scrollLeft += current.left - box.left - (box.width - current.width) / 2;
    }
  }

  // -- how often and how long ------------------------------------------------------------------------

  async showHeat(conversation, kind) {
    this.clearHeat();
    this.box.classList.toggle("hot", kind !== "path");
    const place = document.getElementById("heat");
    place.hidden = kind === "path";
    if (kind === "path") {
      return;
    }
    const counts = await request(conversationPath(conversation, "/visits"));
    const most = Math.max(0, ...Object.values(counts[kind]));
    for (const [state, value] of Object.entries(counts[kind])) {
      this.shade(`state ${state}`, findShade(value, most));
    }
    const mostTaken = Math.max(0, ...counts.edges.map(([, , count]) => count));
    for (const [source, row, count] of kind === "visits" ? counts.edges : []) {
      this.shade(`row ${source} ${row}`, findShade(count, mostTaken));
    }
    const names = Object.keys(counts.visits).sort((a, b) => (counts[kind][b] ?? 0) - (counts[kind][a] ?? 0));
    place.querySelector("tbody").replaceChildren(...names.map((name) => make("tr", {}, make("th", { scope: "row" }, name),
      make("td", { class: "number" }, String(counts.visits[name])),
      make("td", { class: "number" }, formatSeconds(counts.seconds[name] ?? 0)))));
  }

  shade(key, shade) {
    for (const element of shade ? this.elements.get(key) ?? [] : []) {
      element.classList.add(`heat-${shade}`);
    }
  }

  clearHeat() {
    for (const group of this.elements.values()) {
      for (const element of group) {
        element.classList.remove(...HEATS);
      }
    }
  }
}
