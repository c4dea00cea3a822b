// The chart of a run, marked with the path so far, and with how often and how long the run was in each state.

import { conversationPath, make, request } from "/static/api.js";
import { collectElements } from "/static/chart_marks.js";
import { ChartZoom } from "/static/chart_zoom.js";
import { formatSeconds } from "/static/run_trace.js";

const SHADES = 5;
const HEATS = Array.from({ length: SHADES }, (_, index) => `heat-${index + 1}`);

function findShade(value, most) {
  return value > 0 && most > 0 ? Math.max(1, Math.ceil((SHADES * value) / most)) : 0;
}

export class RunChart extends ChartZoom {
  constructor(box, { percent, pickState }) {
    super(box, percent);
    this.elements = collectElements(box);
    this.firstVisits = new Map();
    box.addEventListener("click", (event) => {
      const state = this.svg && !this.wasDragged ? event.target.closest("[data-state]") : null;
      if (state) {
        pickState(state.dataset.state);
      }
    });
  }

  fit() {
    super.fit();
    this.showCurrent();
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
