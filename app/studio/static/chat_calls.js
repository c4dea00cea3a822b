// The calls of a chat: one line each, which opens; a call that waits has its arguments and its buttons below.

import { make, nameDecider, showJson } from "/static/api.js";
import { nameArguments, shorten, showArguments } from "/static/arguments.js";
import { listFacts, makeDecisionForm, showFacts } from "/static/decision_form.js";

const calls = new Map(); // call id -> card

export const hasCall = (id) => calls.has(id);
export const forgetCalls = () => calls.clear();

export function makeCall(id, call) {
  const values = call.arguments ?? call.raw ?? {};
  const outcome = make("span", { class: "outcome" });
  const status = make("span", { class: "badge status" }, "asked for");
  const time = make("span", { class: "time" });
  const body = make("div", { class: "call-body" }, make("h3", { class: "label" }, "Arguments"), showArguments(values));
  const actions = make("div", { class: "actions" });
  const line = make("details", {},
    make("summary", {}, make("span", { class: "dot kind-tool" }), make("span", { class: "name" }, call.name),
      make("code", { class: "given" }, `(${nameArguments(values, 120)})`), outcome, status, time), body);
  const card = make("article", { class: "call", "data-call": id }, line, actions);
  calls.set(id, { card, line, outcome, status, time, body, actions });
  return card;
}

function setStatus(entry, text, kind) {
  entry.status.textContent = text;
  entry.status.className = `badge status ${kind}`;
  entry.status.hidden = !text;
  entry.actions.replaceChildren();
}

function addToBody(entry, title, content) {
  entry.body.append(make("h3", { class: "label" }, title), content);
}

export function showDecision(event) {
  const entry = calls.get(event.call_id);
  if (entry) {
    const text = `${event.approved ? "approved" : "rejected"} by ${nameDecider(event.by, Boolean(event.signature))}`;
    setStatus(entry, text, "person");
    addToBody(entry, event.arguments ? "Approved with" : "Decision", event.arguments ? showArguments(event.arguments)
      : make("p", {}, text, event.reason ? `: ${event.reason}` : ""));
  }
}

function nameTime(milliseconds) {
  return milliseconds === undefined || milliseconds === null ? "" : milliseconds < 1000
    ? `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

export function showResult(event) {
  const entry = calls.get(event.call_id);
  if (!entry) {
    return;
  }
  const { success, result, error, execution_time_ms: took } = event.result;
  const value = success ? result : error;
  const hasFailed = !["succeeded", "denied", "skipped"].includes(event.outcome);
  entry.card.dataset.outcome = event.outcome;
  setStatus(entry, event.outcome === "succeeded" ? "" : event.outcome, hasFailed ? "bad" : "");
  entry.outcome.textContent = `· ${shorten(typeof value === "string" ? value : JSON.stringify(value) ?? "", 120)}`;
  entry.time.textContent = nameTime(took);
  addToBody(entry, success ? "Result" : "Error", showJson(value ?? null));
}

export function offerDecision(id, pending, { mayApprove, decide, complain }) {
  const entry = calls.get(id);
  if (entry.actions.childElementCount) {
    return;
  }
  setStatus(entry, "waits for a decision", "person");
  if (!mayApprove) {
    entry.actions.replaceChildren(make("p", { class: "hint" }, "Your token lacks the role approve."));
    return;
  }
  const form = makeDecisionForm({ tool: pending.tool, params: pending.params, decide, complain });
  entry.actions.replaceChildren(make("dl", { class: "facts" }, ...showFacts(listFacts(pending))), form.values, form.bar);
}
