// The decision about one call: approve, reject with a reason, or approve with other arguments.

import { make } from "/static/api.js";
import { showArguments } from "/static/arguments.js";

const MOST_LINES = 16;

// `decide` takes {approved, reason} or {approved, arguments}, and is not called again before it has ended; `complain` takes
// a text for the person. `hasKeys` shows the letters that do the same. Gives the elements `values` (the arguments, or the
// field in which they are changed) and `bar` (the buttons), and what the keys do.
export function makeDecisionForm({ tool, params, decide, complain, hasKeys = false }) {
  const key = (letter) => (hasKeys ? make("kbd", { "aria-hidden": "true" }, letter) : null);
  const reason = make("input", { type: "text", class: "reason", "aria-label": `Reason to reject ${tool}`, placeholder: "reason" });
  const area = make("textarea", { "aria-label": `Arguments of ${tool}`, spellcheck: "false" });
  const shown = make("div", { class: "shown" }, showArguments(params));
  const editor = make("div", { class: "editor", hidden: true }, area);
  const word = make("span", {}, "Approve");
  const editWord = make("span", {}, "Change arguments");
  const isEdited = () => !editor.hidden;
  let isBusy = false;

  async function send(decision) {
    if (isBusy) {
      return;
    }
    isBusy = true;
    bar.querySelectorAll("button").forEach((button) => { button.disabled = true; });
    try {
      await decide(decision);
    } finally {
      isBusy = false;
      bar.querySelectorAll("button").forEach((button) => { button.disabled = false; });
    }
  }

  function approve() {
    if (!isEdited()) {
      return send({ approved: true });
    }
    let args;
    try {
      args = JSON.parse(area.value);
    } catch {
      complain("The arguments are not JSON.");
      area.focus();
      return undefined;
    }
    return send({ approved: true, arguments: args });
  }

  const reject = () => send({ approved: false, reason: reason.value || null });

  function edit() {
    editor.hidden = !editor.hidden;
    shown.hidden = isEdited();
    word.textContent = isEdited() ? "Approve with these" : "Approve";
    editWord.textContent = isEdited() ? "Keep as asked" : "Change arguments";
    editButton.setAttribute("aria-expanded", String(isEdited()));
    if (isEdited()) {
      area.value ||= JSON.stringify(params, null, 2);
      area.rows = Math.min(MOST_LINES, area.value.split("\n").length + 1);
      area.focus();
      area.setSelectionRange(0, 0);
      area.scrollTop = 0;
    } else {
      editButton.focus();
    }
  }

  const approveButton = make("button", { type: "button", class: "approve", onclick: approve }, word, key("y"));
  const editButton = make("button", { type: "button", class: "quiet edit", "aria-expanded": "false", onclick: edit }, editWord, key("e"));
  // A name of its own for each button, where several calls stand on one page.
  const about = make("span", { class: "unseen" }, ` ${tool}`);
  approveButton.append(about);
  const bar = make("div", { class: "bar" }, approveButton,
    make("button", { type: "button", class: "quiet reject", onclick: reject }, make("span", {}, "Reject"), key("n"), about.cloneNode(true)),
    reason, editButton);
  reason.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      reject();
    }
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      approve();
    }
  });
  return { values: make("div", { class: "values" }, shown, editor), bar, approveButton, approve, reject, edit, reason };
}

// What a decision needs to know of a call beside its arguments: rows of a name and what stands there.
export function listFacts({ runs, reason, definition }) {
  const { risk, idempotent } = definition ?? {};
  return [
    ...(runs ? [["Runs", make("code", {}, runs)]] : []),
    ...(reason ? [["Asked because", reason]] : []),
    ...(risk && risk !== "low" ? [["Risk", make("span", { class: "badge warn" }, risk),
      idempotent === "false" ? " A second run does it again." : ""]] : []),
  ];
}

export function showFacts(rows) {
  return rows.flatMap(([name, ...values]) => [make("dt", {}, name), make("dd", {}, ...values)]);
}
