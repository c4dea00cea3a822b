// Keys of the page of a run: one table, from which the list under `?` is made. Buttons name their key in `data-key`, so
// that a click and a key do the same.

import { make } from "/static/api.js";

function isField(element) {
  return element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);
}

// `table`: [keys, what they do, function]; the first key is the one that is shown.
export class Keys {
  constructor(table) {
    this.actions = new Map();
    this.table = table;
    for (const [keys, , action] of table) {
      for (const key of keys) {
        this.actions.set(key, action);
      }
    }
    document.addEventListener("keydown", (event) => this.press(event));
    document.addEventListener("click", (event) => {
      const key = event.target.closest?.("[data-key]")?.dataset.key;
      this.actions.get(key)?.();
    });
    document.getElementById("key-list").replaceChildren(...table.flatMap(([keys, text]) => [
      make("dt", {}, ...keys.flatMap((key, index) => [index ? " " : "", make("kbd", {}, nameKey(key))])), make("dd", {}, text)]));
  }

  press(event) {
    const isOver = document.querySelector("dialog[open]") || isField(event.target) || event.altKey || event.ctrlKey || event.metaKey;
    const isButton = event.key === "Enter" && event.target.closest("button, a, summary, select");
    const isScrolled = event.key.startsWith("Arrow") && event.target.closest("#diagram, #step, [role=separator]");
    const action = isOver || isButton || isScrolled ? null : this.actions.get(event.key);
    if (action) {
      event.preventDefault();
      action();
    }
  }
}

function nameKey(key) {
  return { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "Space" }[key] ?? key;
}

export function openDialog(name) {
  const dialog = document.getElementById(`${name}-dialog`);
  dialog.querySelector(".close").onclick = () => dialog.close();
  if (!dialog.open) {
    dialog.showModal();
  }
  return dialog;
}
