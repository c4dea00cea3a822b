// Keys of a page: letters that do what its buttons do, never while somebody types. `?` lists them, and can turn them off.

import { make } from "/static/api.js";

const STORED = "toolchart-keys";
const FIELDS = "input, textarea, select, [contenteditable]";

const areOn = () => localStorage.getItem(STORED) !== "off";

export function isTyping(event) {
  return event.target instanceof Element && event.target.closest(FIELDS) !== null;
}

function makeDialog(rows) {
  const box = make("input", { type: "checkbox", id: "keys-on" });
  box.checked = areOn();
  box.addEventListener("change", () => localStorage.setItem(STORED, box.checked ? "on" : "off"));
  const dialog = make("dialog", { id: "keys", "aria-labelledby": "keys-title" },
    make("h2", { id: "keys-title" }, "Keys"),
    make("dl", { class: "facts" }, ...rows.flatMap(({ keys, text }) => [
      make("dt", {}, ...keys.map((key) => make("kbd", {}, key))), make("dd", {}, text)])),
    make("p", { class: "hint" }, "Letters do nothing while you type in a field."),
    make("label", { class: "inline" }, box, "Letters are keys in this browser"),
    make("form", { method: "dialog" }, make("button", { class: "quiet" }, "Close")));
  document.body.append(dialog);
  return dialog;
}

// `rows` are {keys, text, run, repeats}: `run` gets the event, and is not called for the further events of a key that is
// held down unless it `repeats`. A row without `run` is only listed.
export function offerKeys(rows, opener) {
  const dialog = makeDialog([...rows, { keys: ["?"], text: "these keys" }]);
  const actions = new Map(rows.filter((row) => row.run).flatMap((row) => row.keys.map((key) => [key, row])));
  opener?.addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    const isChord = event.ctrlKey || event.metaKey || event.altKey;
    if (isChord || event.defaultPrevented || event.isComposing || isTyping(event) || document.querySelector("dialog[open]")) {
      return;
    }
    if (event.key === "?") {
      event.preventDefault();
      dialog.showModal();
      return;
    }
    const row = actions.get(event.key);
    if (row && (row.repeats || !event.repeat) && (areOn() || event.key.length > 1)) {
      if (row.run(event) !== false) {
        event.preventDefault();
      }
    }
  });
}
