// The calls and questions of all conversations that wait for a person: a queue, and the chosen one with all that a decision
// needs. Nothing is taken away under somebody's hands: what no longer waits says so, and stays until the person goes on.

import { conversationPath, make, nameDecider, request } from "/static/api.js";
import { nameArguments } from "/static/arguments.js";
import { listFacts, makeDecisionForm, showFacts } from "/static/decision_form.js";
import { showWaiting } from "/static/nav.js";
import { offerKeys } from "/static/keys.js";
import { makeSchemaForm } from "/static/schema_form.js";

const POLL_MS = 3000;
const SETTLE_MS = 400; // a second press or click that was meant for the item before does nothing to this one

const root = document.getElementById("approvals");
const problem = document.getElementById("problem");
const queue = document.getElementById("queue");
const place = document.getElementById("item");
const mayApprove = root.dataset.mayApprove === "true";
const entries = new Map(); // conversation and call id -> entry
const done = new Set();    // the keys of what was decided here: an older answer of the server still has them
let chosen = null;
let decisions = new Map();
let needsDecisions = true;
let isBusy = false;
let mustLookAgain = false;
let forms = 0;

const questionKey = (id) => `question ${id}`;
const keyOf = (conversation, call) => `${conversation}\n${call}`;
const runPath = (conversation) => `/conversations/${encodeURIComponent(conversation)}`;
const link = (conversation) => make("a", { href: runPath(conversation), class: "name" }, conversation);
const listOpen = () => [...entries.values()].filter((entry) => entry.isOpen);

function showTime(text) {
  return make("time", { datetime: text, title: text }, new Date(text).toLocaleString());
}

function nameSpan(milliseconds) {
  const minutes = Math.round(Math.abs(milliseconds) / 60000);
  return minutes < 1 ? "< 1 min" : minutes < 120 ? `${minutes} min` : minutes < 2880
    ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} days`;
}

const nameAge = (text) => nameSpan(Math.max(0, Date.now() - Date.parse(text)));

function nameApprovers(names) {
  return names.length ? names.join(" or ") : "anybody with the role approve";
}

// Leaves what is equal alone, so that a selection in it is kept.
function update(element, ...children) {
  const fresh = make(element.tagName, {}, ...children);
  if (fresh.textContent !== element.textContent) {
    element.replaceChildren(...fresh.childNodes);
  }
}

// -- what is said about an item ------------------------------------------------------------------

function describeDeadline(due, then) {
  const isOver = Date.parse(due) < Date.now();
  return [make("span", { class: "badge warn" }, isOver ? "overdue" : `in ${nameSpan(Date.parse(due) - Date.now())}`), " ",
    showTime(due), ...(then ? ["; then the chart goes to ", make("code", {}, then)] : [])];
}

function nameDue(due) {
  return !due ? "" : Date.parse(due) < Date.now() ? "overdue" : `due in ${nameSpan(Date.parse(due) - Date.now())}`;
}

function showAllFacts(entry) {
  const { row, item } = entry;
  const [due, then] = entry.isQuestion ? [item.due, item.then] : [row.due, row.then];
  return showFacts([
    ...(entry.isQuestion ? [] : listFacts(item)),
    ["Deadline", ...(due ? describeDeadline(due, then) : ["none"])],
    ...(entry.isQuestion ? [] : [["Decides", nameApprovers(row.approvers)]]),
    ...row.asked.slice(1).map((asking) => ["Escalated", showTime(asking.at), ` to ${nameApprovers(asking.to)}`]),
  ]);
}

function showOrigin({ row, waits }) {
  return [link(row.conversation), ...(row.root === row.conversation ? [] : [" (a sub-agent of ", link(row.root), ")"]),
    row.author ? ` · asked for by ${row.author}` : "", " · waits ", waits, " · ",
    make("a", { href: `/chat/${encodeURIComponent(row.root)}` }, "Open in the chat")];
}

// -- what led there ------------------------------------------------------------------------------

function showMessage(message, conversation) {
  const text = message.content ? make("div", { class: "text" }, message.content, message.is_cut ? "…" : "") : null;
  const calls = message.tools.length ? make("p", { class: "hint" }, `asks for ${message.tools.join(", ")}`) : null;
  return make("li", { class: `said ${message.role}` },
    make("p", { class: "label" }, message.name ? `${message.role} ${message.name}` : message.role), text,
    message.is_cut ? offerRest(text, message, conversation) : null, calls);
}

// The list has the beginning of a long message; the rest is read when somebody wants it.
function offerRest(text, message, conversation) {
  const button = make("button", { type: "button", class: "bare", onclick: async () => {
    button.disabled = true;
    try {
      const { messages } = await request(conversationPath(conversation, "/messages"));
      const whole = messages.findLast((other) => other.role === message.role && other.content?.startsWith(message.content));
      text.textContent = whole?.content ?? message.content;
      text.tabIndex = -1;
      text.focus();
      button.remove();
    } catch (error) {
      button.disabled = false;
      problem.textContent = error.message;
    }
  } }, "Show the rest");
  return button;
}

// -- one item ------------------------------------------------------------------------------------

function addEntry(row, item, isQuestion, before) {
  const id = isQuestion ? questionKey(item.id) : item.id;
  const name = isQuestion ? item.question || item.effect : item.tool;
  const entry = { row, item, isQuestion, id, name, conversation: row.conversation, isOpen: true };
  entry.risk = item.definition?.risk ?? "";
  addQueueRow(entry, before);
  addPane(entry);
  entries.set(keyOf(row.conversation, id), entry);
  return entry;
}

function addQueueRow(entry, before) {
  const { row, item, isQuestion, name } = entry;
  entry.age = make("span", { class: "age" });
  entry.due = make("span", { class: "due" });
  const detail = isQuestion ? null : make("code", {}, nameArguments(item.arguments, 60));
  entry.button = make("button", { type: "button", class: "entry", onclick: () => choose(entry, { focus: true }) },
    make("span", { class: `dot ${isQuestion ? "kind-person" : "kind-tool"}` }),
    make("span", { class: "what" }, make("strong", {}, name), " ", detail),
    make("span", { class: "where" }, row.conversation, row.author ? ` · ${row.author}` : ""),
    make("span", { class: "when" }, entry.due, entry.age));
  entry.listItem = make("li", {}, entry.button);
  queue.insertBefore(entry.listItem, before?.listItem ?? null);
}

function addPane(entry) {
  const { row, item, isQuestion, name } = entry;
  const question = isQuestion ? [name] : ["Run ", make("span", { class: "name" }, name), "?"];
  entry.heading = make("h2", { tabindex: "-1" }, ...question);
  entry.badge = make("span", { class: "badge person", role: "status" }, isQuestion ? "waits for an answer" : "waits for a decision");
  entry.waits = make("span", { title: new Date(row.since).toLocaleString() });
  entry.facts = make("dl", { class: "facts" });
  entry.note = make("p", { class: "problem", role: "alert" });
  entry.confirm = make("p", { class: "confirm", role: "alert" });
  entry.content = make("div", { class: "content" });
  entry.actions = make("div", { class: "actions" });
  entry.foot = make("footer", { class: "foot" }, entry.note, entry.confirm, entry.actions);
  entry.later = make("button", { type: "button", class: "quiet later", onclick: putOff }, make("span", {}, "Later"),
    make("kbd", { "aria-hidden": "true" }, "l"));
  entry.pane = make("article", { class: `pane ${isQuestion ? "question" : "call"}`, hidden: true,
    "data-conversation": row.conversation, ...(isQuestion ? { "data-question": item.effect } : { "data-call": item.id }) },
    make("header", { class: "asked" }, make("div", { class: "row" }, entry.heading, entry.badge),
      make("p", { class: "hint" }, ...showOrigin(entry))),
    make("div", { class: "ask", tabindex: "0", role: "group", "aria-label": isQuestion ? "The question" : "The call" },
      entry.facts, entry.content),
    entry.foot,
    make("section", { class: "context", "aria-label": "What led there" }, make("h3", { class: "label" }, "What led there"),
      make("ol", { class: "plain", tabindex: "0", "aria-label": "The last messages" },
        ...row.messages.map((message) => showMessage(message, row.conversation)))));
  place.append(entry.pane);
  if (isQuestion) {
    showForm(entry);
  }
}

function showForm(entry) {
  const submit = async (content) => {
    await request(conversationPath(entry.conversation, "/answers?wait=false"), { content, question: entry.item.effect });
    await goOn(entry, `Answered: ${entry.name}`);
  };
  if (!mayApprove) {
    entry.actions.replaceChildren(makeBar(entry, make("p", { class: "hint" }, "Your token lacks the role approve.")));
    return;
  }
  const form = makeSchemaForm(entry.item.form, { submit, label: "Answer" });
  const button = form.querySelector("button[type=submit]");
  form.id = `answer-${++forms}`;
  button.setAttribute("form", form.id);
  entry.content.replaceChildren(form);
  entry.actions.replaceChildren(makeBar(entry, button));
  entry.form = form;
}

const makeBar = (entry, ...children) => make("div", { class: "bar" }, ...children, entry.later);

// Who may decide can change while the call waits: by an escalation.
function showActions(entry) {
  const { row, item } = entry;
  const isMine = !row.approvers.length || row.approvers.includes(root.dataset.me);
  const state = JSON.stringify([mayApprove, isMine]);
  if (entry.state === state) {
    return;
  }
  entry.state = state;
  const form = makeDecisionForm({
    tool: item.tool,
    params: item.arguments ?? {},
    decide: (decision) => decide(entry, decision),
    complain: (text) => { entry.note.textContent = text; },
    hasKeys: true,
  });
  entry.content.replaceChildren(make("h3", { class: "label" }, "Arguments"), form.values);
  if (mayApprove && isMine) {
    entry.decision = form;
    form.bar.append(entry.later);
    entry.actions.replaceChildren(form.bar);
  } else {
    entry.decision = null;
    const text = mayApprove ? `Only ${nameApprovers(row.approvers)} may decide.` : "Your token lacks the role approve.";
    entry.actions.replaceChildren(makeBar(entry, make("p", { class: "hint" }, text)));
  }
}

// -- the choice ----------------------------------------------------------------------------------

function choose(entry, { focus = false, settles = false } = {}) {
  const left = chosen;
  const wasInQueue = queue.contains(document.activeElement);
  chosen = entry;
  if (left && left !== entry) {
    withdrawConfirm(left);
    left.pane.hidden = true;
    left.button.removeAttribute("aria-current");
  }
  for (const other of [...entries.values()]) { // whoever goes on has seen what no longer waits
    if (!other.isOpen && other !== entry && (other === left || !other.isTouched)) {
      remove(other);
    }
  }
  if (entry) {
    entry.pane.hidden = false;
    entry.button.setAttribute("aria-current", "true");
    entry.button.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (settles) {
      settle(entry);
    }
    if (focus) {
      (wasInQueue ? entry.button : entry.heading).focus({ preventScroll: wasInQueue });
    }
  } else if (focus) {
    document.getElementById("empty").focus();
  }
  showCount();
}

function settle(entry) {
  entry.isSettling = entry.foot.inert = true;
  setTimeout(() => {
    entry.isSettling = entry.foot.inert = false;
  }, SETTLE_MS);
}

function remove(entry) {
  entries.delete(keyOf(entry.conversation, entry.id));
  entry.pane.remove();
  entry.listItem.remove();
}

// The rows as they stand in the queue: the order of `entries` is that in which they came.
function listQueue() {
  const byItem = new Map([...entries.values()].map((entry) => [entry.listItem, entry]));
  return [...queue.children].map((item) => byItem.get(item));
}

function findOther(entry) {
  return listQueue().find((other) => other !== entry) ?? null;
}

function findNextOpen(entry) {
  const rows = listQueue();
  const index = rows.indexOf(entry);
  return [...rows.slice(index + 1), ...rows.slice(0, index)].find((other) => other.isOpen) ?? null;
}

function move(step) {
  const rows = listQueue();
  const target = rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(chosen) + step))];
  if (target && target !== chosen) {
    choose(target, { focus: true });
  }
}

function putOff() {
  const next = chosen && (findNextOpen(chosen) ?? (chosen.isOpen ? null : findOther(chosen)));
  if (next || (chosen && !chosen.isOpen)) {
    choose(next, { focus: true, settles: true });
  } else {
    tell("Nothing else waits.");
  }
}

// -- decisions -----------------------------------------------------------------------------------

async function decide(entry, decision) {
  entry.note.textContent = "";
  withdrawConfirm(entry);
  try {
    await request(conversationPath(entry.conversation, "/decisions?wait=false"), { call_id: entry.id, ...decision });
  } catch (error) {
    entry.note.textContent = error.message;
    await refresh();
    return;
  }
  const change = decision.arguments ? " with other arguments" : "";
  await goOn(entry, `${decision.approved ? "Approved" : "Rejected"}${change}: ${entry.name} of ${entry.conversation}`);
}

// What was decided here is gone from the queue, and stands among what was decided; the next item comes.
async function goOn(entry, text) {
  needsDecisions = true;
  entry.isOpen = false;
  done.add(keyOf(entry.conversation, entry.id));
  if (chosen === entry) {
    choose(findNextOpen(entry) ?? findOther(entry), { focus: true, settles: true });
  } else {
    remove(entry);
  }
  tell(text);
  await refresh();
}

function tell(text) {
  document.getElementById("told").textContent = text;
}

function close(entry, text, note) {
  const hadFocus = entry.pane.contains(document.activeElement);
  entry.isOpen = false;
  entry.decision = null;
  entry.badge.textContent = text;
  entry.badge.className = "badge";
  entry.note.textContent = note;
  withdrawConfirm(entry);
  entry.due.textContent = text;
  entry.button.classList.add("over");
  entry.actions.replaceChildren(make("div", { class: "bar" },
    make("button", { type: "button", class: "quiet", onclick: putOff }, "Go on", make("kbd", { "aria-hidden": "true" }, "l"))));
  if (hadFocus) {
    entry.heading.focus();
  }
}

function closeStale(known) {
  for (const [key, entry] of entries) {
    if (entry.isOpen && !known.has(key)) {
      const decision = decisions.get(key);
      const word = entry.isQuestion ? "answered" : decision?.approved ? "approved" : "rejected";
      close(entry, decision ? `${word} by ${nameDecider(decision.by, decision.is_signed)}` : "no longer waits",
        decision ? "" : "Its time ran out, or its turn was stopped. Nothing is left to decide.");
    }
  }
}

// -- keys ----------------------------------------------------------------------------------------

function withdrawConfirm(entry) {
  entry.confirm.textContent = "";
}

const canDecide = () => chosen?.isOpen && chosen.decision && !chosen.isSettling;

function approveByKey() {
  if (!canDecide()) {
    return;
  }
  if (chosen.risk === "high" && !chosen.confirm.textContent) {
    chosen.confirm.textContent = `High risk: press y or Enter once more to run ${chosen.name}. Escape takes it back.`;
    chosen.decision.approveButton.focus();
    return;
  }
  chosen.decision.approve();
}

offerKeys([
  [["j"], "next in the queue", () => move(1), { repeats: true }],
  [["k"], "the one before", () => move(-1), { repeats: true }],
  [["y"], "approve; twice where the risk is high", approveByKey],
  [["n"], "reject: write a reason, Enter sends", () => canDecide() && chosen.decision.reason.focus()],
  [["e"], "change the arguments, Ctrl+Enter approves", () => canDecide() && chosen.decision.edit()],
  [["l"], "later: the next one that waits", () => chosen?.isSettling || putOff()],
  [["Escape"], "leave a field; take a first y back", () => chosen && withdrawConfirm(chosen)],
]);

place.addEventListener("input", () => { chosen.isTouched = true; });
place.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("input, textarea, select") && !event.isComposing) {
    chosen.heading.focus();
  }
});

// -- the page ------------------------------------------------------------------------------------

function describeCount(open) {
  const questions = open.filter((entry) => entry.isQuestion).length;
  const calls = open.length - questions;
  const parts = [`${calls} call${calls === 1 ? "" : "s"}`, `${questions} question${questions === 1 ? "" : "s"}`];
  const named = questions ? (calls ? parts : parts.slice(1)) : parts.slice(0, 1);
  return `${named.join(" and ")} ${open.length === 1 ? "waits" : "wait"}`;
}

function showCount() {
  const open = listOpen();
  update(document.getElementById("count"), describeCount(open));
  document.title = `${open.length ? `(${open.length}) ` : ""}Approvals - Toolchart`;
  showWaiting(open.length);
  document.getElementById("empty").hidden = entries.size > 0;
  document.getElementById("desk").hidden = !entries.size;
}

function showUnreadable(page) {
  const section = document.getElementById("unreadable");
  section.hidden = document.getElementById("damaged").hidden = !page.unreadable.length;
  document.getElementById("damaged").textContent = `${page.unreadable.length} cannot be read`;
  section.querySelector("ul").replaceChildren(...page.unreadable.map((row) =>
    make("li", {}, link(row.conversation), ` ${row.problem}`)));
  document.getElementById("more").hidden = page.is_complete;
}

function nameDecision(row) {
  const word = row.answer ? "answered" : row.approved ? "approved" : "rejected";
  return [word, row.is_changed ? " with other arguments" : "", row.is_late ? " too late" : ""];
}

async function showDecisions() {
  const rows = (await request("/api/approvals/decisions")).decisions;
  decisions = new Map(rows.map((row) => [keyOf(row.conversation, row.call_id ?? questionKey(row.effect)), row]));
  document.getElementById("undecided").hidden = rows.length > 0;
  document.getElementById("decided-wrap").hidden = !rows.length;
  document.querySelector("#decided tbody").replaceChildren(...rows.map((row) => make("tr", {},
    make("td", {}, showTime(row.at)), make("td", {}, nameDecider(row.by, row.is_signed)),
    make("td", {}, ...nameDecision(row)), make("td", {}, row.tool),
    make("td", {}, row.answer ? make("code", {}, JSON.stringify(row.answer)) : row.reason ?? ""),
    make("td", {}, link(row.conversation)))));
}

// A new row comes where the server has it; those that are there keep their order, and their place under the hand.
function takeRows(rows) {
  let before = null;
  for (const { key, row, item, isQuestion } of rows.toReversed()) {
    const entry = entries.get(key) ?? addEntry(row, item, isQuestion, before);
    Object.assign(entry, { row, item });
    before = entry;
    if (entry.isOpen) {
      update(entry.age, nameAge(row.since));
      update(entry.due, nameDue(isQuestion ? item.due : row.due));
      update(entry.waits, nameAge(row.since));
      update(entry.facts, ...showAllFacts(entry));
      if (!isQuestion) {
        showActions(entry);
      }
    }
  }
}

function listRows(waiting) {
  return waiting.flatMap((row) => [
    ...row.calls.map((item) => ({ key: keyOf(row.conversation, item.id), row, item, isQuestion: false })),
    ...row.questions.map((item) => ({ key: keyOf(row.conversation, questionKey(item.id)), row, item, isQuestion: true })),
  ]).filter(({ key }) => !done.has(key));
}

async function refresh() {
  if (isBusy) {
    mustLookAgain = true;
    return;
  }
  isBusy = true;
  try {
    const page = await request("/api/approvals");
    const rows = listRows(page.waiting);
    const known = new Set(rows.map(({ key }) => key));
    if (needsDecisions || [...entries].some(([key, entry]) => entry.isOpen && !known.has(key))) {
      needsDecisions = false;
      await showDecisions();
    }
    takeRows(rows);
    closeStale(known);
    showUnreadable(page);
    if (!chosen || !entries.has(keyOf(chosen.conversation, chosen.id))) {
      choose(listQueue().find((entry) => entry.isOpen) ?? null);
    }
    showCount();
    document.getElementById("past").hidden = false;
    problem.textContent = "";
  } catch (error) {
    problem.textContent = `The list could not be brought up to date: ${error.message}`;
  } finally {
    isBusy = false;
  }
  if (mustLookAgain) {
    mustLookAgain = false;
    await refresh();
  }
}

await refresh();
setInterval(() => {
  if (!document.hidden) {
    refresh();
  }
}, POLL_MS);
