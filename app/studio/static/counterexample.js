// Steps through the counterexample of a finding, as the engine went through it, and marks it on a drawing.

import { make, showJson } from "/static/api.js";

export class CounterexampleView {
  constructor({ root, onClose }) {
    this.root = root;
    this.part = (name) => root.querySelector(`#run-${name}`);
    this.steps = [];
    this.index = -1;
    this.marks = null;
    this.part("slider").addEventListener("input", () => this.show(Number(this.part("slider").value)));
    this.part("first").addEventListener("click", () => this.show(0));
    this.part("back").addEventListener("click", () => this.show(this.index - 1));
    this.part("forward").addEventListener("click", () => this.show(this.index + 1));
    this.part("last").addEventListener("click", () => this.show(this.steps.length - 1));
    this.part("close").addEventListener("click", () => { this.close(); onClose(); });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.close();
        onClose();
      } else if (event.target !== this.part("slider") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
        event.preventDefault();
        this.show(this.index + (event.key === "ArrowRight" ? 1 : -1));
      }
    });
  }

  get isOpen() {
    return !this.root.hidden;
  }

  wait(title) {
    this.close();
    this.root.hidden = false;
    this.part("title").textContent = title;
    this.part("text").textContent = "A search for the run goes on...";
    this.part("controls").hidden = true;
    this.part("step").replaceChildren();
    this.part("title").focus({ preventScroll: true });
    this.root.scrollIntoView({ block: "start" });
  }

  fail(message) {
    this.part("text").textContent = message;
  }

  open(answer, marks) {
    this.steps = answer.steps;
    this.marks = marks;
    this.part("text").textContent = OUTCOMES[answer.outcome] ?? answer.text;
    this.part("controls").hidden = !this.steps.length;
    this.part("slider").max = Math.max(0, this.steps.length - 1);
    if (this.steps.length) {
      this.show(0);
      this.part("slider").focus({ preventScroll: true });
    }
  }

  close() {
    this.marks?.show([], -1);
    this.marks = null;
    this.steps = [];
    this.root.hidden = true;
  }

  show(index) {
    if (!this.steps.length) {
      return;
    }
    this.index = Math.min(Math.max(index, 0), this.steps.length - 1);
    const step = this.steps[this.index];
    const text = `${this.index + 1} of ${this.steps.length}`;
    this.part("slider").value = this.index;
    this.part("slider").setAttribute("aria-valuetext", `${text}: ${step.event}, ${step.target}`);
    this.part("position").textContent = text;
    this.part("step").replaceChildren(...describeStep(step));
    this.marks?.show(this.steps, this.index);
  }
}

const OUTCOMES = {
  "confirmed": "The engine did what the finding says. Models, tools and people answered by a script.",
  "not confirmed": "The engine did something else than the finding says; this may be a false alarm.",
  "not found": "A search found no such run; this may be a false alarm.",
  "no run": "The finding is about what never happens, so there is no run to show.",
};

function describeMove(step) {
  const [source, target] = [make("code", {}, step.source), make("code", {}, step.target)];
  if (!step.source) {
    return [" begins in ", target];
  }
  return step.fired.length ? [" in ", source, " leads to ", target] : [" in ", source, ": no row takes it"];
}

function describeStep(step) {
  const guards = Object.entries(step.guards).map(([text, truth]) => make("li", {},
    make("span", { class: truth ? "truth held" : "truth" }, truth ? "true" : "false"), " ", make("code", {}, text)));
  return [
    make("p", {}, make("strong", {}, step.event), ...describeMove(step),
      step.asks.length ? `, which asks for ${step.asks.join(", ")}` : "", "."),
    guards.length ? make("ul", { class: "plain guards", "aria-label": "Guards" }, ...guards) : make("p", { class: "hint" }, "No guard was asked."),
    make("details", {}, make("summary", {}, "What the event brought"), showJson(step.brought)),
  ];
}
