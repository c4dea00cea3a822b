// Keys of a page: they do what its buttons do, never while somebody types. One table for each page, from which the list
// under `?` is made; that list can turn the letters off. A click on an element with `data-key` does what the key does.

import { make } from "/static/api.js";

const STORED = "toolchart-keys";
const FIELDS = "input, textarea, select, [contenteditable]";
const CLOSED = "dialog:not([open])"; // until the next frame, its field still gets the keys
const OWN_ARROWS = "#diagram, #step, [role=separator]"; // arrows scroll or move these
const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→" };

let areOn = read() !== "off";

// A page that was opened as a file may have no storage: then the choice lasts as long as the page.
function read() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

function turn(on) {
  areOn = on;
  try {
    localStorage.setItem(STORED, on ? "on" : "off");
  } catch {
    // kept in `areOn`
  }
}

function makeList(rows, hint) {
  const box = make("input", { type: "checkbox", id: "keys-on" });
  box.checked = areOn;
  box.addEventListener("change", () => turn(box.checked));
  const names = (keys) => keys.flatMap((key, at) => [at ? " " : "", make("kbd", {}, NAMES[key] ?? key)]);
  const list = make("dialog", { id: "keys-dialog", "aria-labelledby": "keys-dialog-title" },
    make("div", { class: "row spread" }, make("h2", { id: "keys-dialog-title" }, "Keys"),
      make("button", { type: "button", class: "quiet close" }, "Close ", make("kbd", {}, "Esc"))),
    make("dl", { class: "facts", id: "key-list" }, ...rows.flatMap(([keys, text]) => [make("dt", {}, ...names(keys)), make("dd", {}, text)])),
    make("p", { class: "hint" }, `Letters and signs do nothing while you type in a field. ${hint}`),
    make("label", { class: "inline" }, box, "Letters and signs are keys in this browser"));
  document.getElementById(list.id)?.remove(); // of a file that a browser saved with it
  document.body.append(list);
}

// `table`: rows [keys, what they do, function, {repeats}]. The function gets the event; what returns false leaves the key
// to the browser. It is not called for the further events of a key that is held down unless it repeats. A row without a
// function is only listed.
export function offerKeys(table, hint = "") {
  const rows = [...table, [["?"], "these keys", () => openDialog("keys")]];
  const actions = new Map(rows.filter(([, , run]) => run).flatMap(([keys, , run, options]) => keys.map((key) => [key, { run, ...options }])));
  makeList(rows, hint);
  document.addEventListener("click", (event) => {
    actions.get(event.target.closest?.("[data-key]")?.dataset.key)?.run(event);
  });
  document.addEventListener("keydown", (event) => {
    const action = actions.get(event.key);
    const isOff = !areOn && event.key.length === 1 && event.key !== "?";
    const isHeld = event.repeat && !action?.repeats;
    if (!action || isOff || isHeld || event.defaultPrevented || belongsElsewhere(event)) {
      return;
    }
    if (action.run(event) !== false) {
      event.preventDefault();
    }
  });
}

function belongsElsewhere(event) {
  const within = (names) => event.target.closest?.(names);
  return event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]") ||
    (within(FIELDS) && !within(CLOSED)) || (event.key === "Enter" && within("button, a, summary")) || (event.key.startsWith("Arrow") && within(OWN_ARROWS));
}

export function openDialog(name) {
  const dialog = document.getElementById(`${name}-dialog`);
  dialog.querySelector(".close").onclick = () => dialog.close();
  if (!dialog.open) {
    dialog.showModal();
  }
  return dialog;
}
