// The form of a decision about one call: approve, reject with a reason, or approve with other arguments.

import { make } from "/static/api.js";

// `runs` says what the call does, `why` why people are asked; both may be empty. `decide` takes
// {approved, reason} or {approved, arguments}; `complain` takes a text for the person.
export function makeDecisionForm({ tool, params, runs, why, decide, complain }) {
  const reason = make("input", { type: "text", "aria-label": `Reason to reject ${tool}`, placeholder: "reason" });
  const area = make("textarea", { rows: "4", "aria-label": `Arguments of ${tool}` });
  area.value = JSON.stringify(params, null, 2);
  const edit = () => {
    let args;
    try {
      args = JSON.parse(area.value);
    } catch {
      complain("The arguments are not JSON.");
      area.focus();
      return;
    }
    decide({ approved: true, arguments: args });
  };
  return [
    ...(runs ? [make("p", { class: "hint runs" }, "Runs: ", make("code", {}, runs))] : []),
    ...(why ? [make("p", { class: "problem" }, why)] : []),
    make("div", { class: "row" },
      make("button", { type: "button", class: "approve", "aria-label": `Approve ${tool}`,
        onclick: () => decide({ approved: true }) }, "Approve"),
      make("button", { type: "button", class: "reject bad", "aria-label": `Reject ${tool}`,
        onclick: () => decide({ approved: false, reason: reason.value || null }) }, "Reject"), reason),
    make("details", { class: "edit" }, make("summary", {}, "Edit the arguments"), area,
      make("button", { type: "button", onclick: edit }, "Approve with these")),
  ];
}
