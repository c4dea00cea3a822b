// Marks a drawing of a chart: the states and rows that a run has visited, and those where it is now.
// A run is a list of steps with `active` (ids of states) and `fired` (pairs of a state and the index of a row).

// What is drawn (`state ID`, `row STATE INDEX`), with its elements.
export function collectElements(root) {
  const elements = new Map();
  for (const state of root.querySelectorAll("[data-state]")) {
    elements.set(`state ${state.dataset.state}`, [state]);
  }
  for (const label of root.querySelectorAll("[data-source]")) {
    const name = [...label.classList].find((item) => /^transition-\d+$/.test(item));
    elements.set(`row ${label.dataset.source} ${label.dataset.row}`, [...root.querySelectorAll(`.${name}`)]);
  }
  return elements;
}

export class ChartMarks {
  constructor(root) {
    this.root = root;
    this.elements = collectElements(root);
  }

  show(steps, index) {
    const visited = new Set(steps.slice(0, index + 1).flatMap(listKeys));
    const current = new Set(index < 0 ? [] : steps[index].active.map((state) => `state ${state}`));
    for (const [key, group] of this.elements) {
      for (const element of group) {
        element.classList.toggle("visited", visited.has(key));
        element.classList.toggle("current", current.has(key));
      }
    }
    this.showCurrent();
  }

  // Scrolls the box of the drawing, and not the page, to where the run is.
  showCurrent() {
    const current = [...this.root.querySelectorAll(".current")].at(-1)?.getBoundingClientRect();
    const box = this.root.getBoundingClientRect();
    if (current && (current.top < box.top || current.bottom > box.bottom)) {
      this.root.scrollTop += current.top - box.top - (box.height - current.height) / 2;
    }
    if (current && (current.left < box.left || current.right > box.right)) {
      this.root.scrollLeft += current.left - box.left - (box.width - current.width) / 2;
    }
  }

  // Marks what is drawn under these keys; what had the mark before loses it.
  mark(keys, name) {
    for (const element of this.root.querySelectorAll(`.${name}`)) {
      element.classList.remove(name);
    }
    for (const key of keys) {
      this.elements.get(key)?.forEach((element) => element.classList.add(name));
    }
  }
}

function listKeys(step) {
  return [...step.active.map((state) => `state ${state}`), ...step.fired.map(([source, row]) => `row ${source} ${row}`)];
}

// A drawing is markup of the server's own renderer, which escapes every text of the chart. It is read as XML.
export function parseDrawing(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return root.localName === "svg" ? document.importNode(root, true) : null;
}
