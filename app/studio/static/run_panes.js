// The three columns: each can be folded, the grips between them dragged or moved by arrow keys. In a narrow window one
// column is shown at a time.

const NAMES = ["trace", "chart", "step"];
const LEAST = 200;
const KEY_STEP = 24;

export class Panes {
  constructor() {
    this.place = document.getElementById("panes");
    this.place.dataset.shown = "trace";
    for (const grip of this.place.querySelectorAll("[data-grip]")) {
      this.offerDragging(grip);
    }
    document.querySelector(".pane-tabs").addEventListener("click", (event) => {
      const name = event.target.closest("[data-pane]")?.dataset.pane;
      if (name) {
        this.show(name);
      }
    });
  }

  get isNarrow() {
    return getComputedStyle(document.querySelector(".pane-tabs")).display !== "none";
  }

  // In a narrow window: this column instead of the one that is shown.
  show(name) {
    this.place.dataset.shown = name;
    for (const button of document.querySelectorAll(".pane-tabs button")) {
      button.setAttribute("aria-pressed", button.dataset.pane === name);
    }
  }

  toggle(name) {
    if (this.isNarrow) {
      this.show(name);
      return;
    }
    const shown = NAMES.filter((item) => !this.place.classList.contains(`without-${item}`));
    if (shown.length > 1 || !shown.includes(name)) {
      this.place.classList.toggle(`without-${name}`);
    }
  }

  offerDragging(grip) {
    const name = grip.dataset.grip;
    const pane = document.getElementById(`${name}-pane`);
    const resize = (width) => {
      const most = this.place.clientWidth - 2 * LEAST;
      const chosen = Math.round(Math.min(most, Math.max(LEAST, width)));
      this.place.style.setProperty(`--${name}-width`, `${chosen}px`);
      grip.setAttribute("aria-valuenow", Math.round((100 * chosen) / this.place.clientWidth));
    };
    const sign = name === "trace" ? 1 : -1;
    grip.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      grip.setPointerCapture(event.pointerId);
      const [start, width] = [event.clientX, pane.offsetWidth];
      grip.onpointermove = (move) => resize(width + sign * (move.clientX - start));
      grip.onpointerup = () => { grip.onpointermove = null; };
    });
    grip.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -KEY_STEP, ArrowRight: KEY_STEP }[event.key];
      if (step) {
        event.preventDefault();
        resize(pane.offsetWidth + sign * step);
      }
    });
    grip.setAttribute("aria-valuenow", Math.round((100 * pane.offsetWidth) / Math.max(1, this.place.clientWidth)));
  }
}
