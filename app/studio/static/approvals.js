// The calls and questions of all conversations that wait for a person. A card is never taken away under somebody's hands:
// when its call no longer waits, it says so and stays until the person removes it.

import { conversationPath, make, nameDecider, request, showJson } from "/static/api.js";
import { makeDecisionForm } from "/static/decision_form.js";
import { makeSchemaForm } from "/static/schema_form.js";

const POLL_MS = 3000;

const root = document.getElementById("approvals");
const problem = document.getElementById("problem");
const waiting = document.getElementById("waiting");
const mayApprove = root.dataset.mayApprove === "true";
const groups = new Map(); // conversation -> {section, facts, calls}
const cards = new Map();  // conversation and call id -> {card, badge, actions, note}
let decisions = new Map();
let needsDecisions = true;
let isBusy = false;

const questionKey = (id) => `question ${id}`;
const keyOf = (conversation, call) => `${conversation}\n${call}`;
const runPath = (conversation) => `/conversations/${encodeURIComponent(conversation)}`;
const link = (conversation) => make("a", { href: runPath(conversation), class: "name" }, conversation);

function showTime(text) {
  return make("time", { datetime: text, title: text }, new Date(text).toLocaleString());
}

function formatAge(text) {
  const minutes = Math.max(0, Math.round((Date.now() - Date.parse(text)) / 60000));
  return minutes < 1 ? "less than a minute" : minutes < 120 ? `${minutes} min` : minutes < 2880
    ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} days`;
}

function nameApprovers(names) {
  return names.length ? names.join(" or ") : "anybody with the role approve";
}

// -- one conversation ---------------------------------------------------------------------------

function describeDeadline(row) {
  if (!row.due) {
    return ["No deadline."];
  }
  const isOver = Date.parse(row.due) < Date.now();
  const then = row.then ? ["; then the chart goes to ", make("code", {}, row.then)] : [];
  return [make("span", { class: `badge ${isOver ? "bad" : "warn"}` }, isOver ? "overdue" : "deadline"), " ",
    showTime(row.due), ...then, "."];
}

function showFacts(row) {
  const [first, ...later] = row.asked;
  return [
    row.author ? make("p", {}, "Asked for by ", make("strong", {}, row.author), ".") : "",
    make("p", {}, "Waits for ", make("strong", {}, nameApprovers(row.approvers)), " since ", showTime(first.at),
      ` (${formatAge(first.at)}).`),
    ...later.map((asking) => make("p", {}, make("span", { class: "badge warn" }, "escalated"), " ",
      showTime(asking.at), ` to ${nameApprovers(asking.to)}.`)),
    make("p", {}, ...describeDeadline(row)),
  ];
}

// Leaves equal facts alone, so that a selection in them is kept.
function updateFacts(place, row) {
  const fresh = make("div", {}, ...showFacts(row));
  if (fresh.textContent !== place.textContent) {
    place.replaceChildren(...fresh.childNodes);
  }
}

function showMessage(message) {
  const calls = message.tools.length ? make("p", { class: "hint" }, `asks for ${message.tools.join(", ")}`) : null;
  const text = message.content ? make("div", { class: "text" }, message.content + (message.is_cut ? "..." : "")) : null;
  return make("li", { class: `bubble ${message.role}` },
    make("p", { class: "who" }, message.name ? `${message.role} ${message.name}` : message.role), text, calls);
}

function addGroup(row) {
  const facts = make("div", { class: "facts" });
  const calls = make("ul", { class: "cards" });
  const child = row.root === row.conversation ? null : make("p", { class: "hint" }, "A sub-agent of ", link(row.root));
  const section = make("section", { class: "panel waiting", "data-conversation": row.conversation },
    make("div", { class: "row spread" }, make("h2", {}, link(row.conversation)),
      make("p", { class: "row" }, make("span", { class: "badge" }, row.state),
        make("a", { href: `/chat/${encodeURIComponent(row.root)}` }, "Open in the chat"))),
    child, facts,
    make("details", { class: "context", open: true }, make("summary", {}, "What led there"),
      make("ol", { class: "messages", tabindex: "0", "aria-label": "The last messages" }, ...row.messages.map(showMessage))),
    calls);
  const group = { section, facts, calls };
  groups.set(row.conversation, group);
  waiting.append(section);
  return group;
}

// -- one call ------------------------------------------------------------------------------------

function addCard(row, call, group) {
  const badge = make("span", { class: "badge warn", role: "status" }, "waits for a decision");
  const heading = make("h3", { tabindex: "-1" }, call.tool, " ", badge);
  const note = make("p", { class: "problem", role: "alert" });
  const actions = make("div", { class: "actions" });
  const card = make("li", { class: "card call", "data-call": call.id }, heading, showJson(call.arguments ?? {}), note, actions);
  const entry = { card, heading, badge, actions, note, conversation: row.conversation, id: call.id, isOpen: true };
  cards.set(keyOf(row.conversation, call.id), entry);
  group.calls.append(card);
  return entry;
}

// -- one question --------------------------------------------------------------------------------

function addQuestion(row, question, group) {
  const badge = make("span", { class: "badge warn", role: "status" }, "waits for an answer");
  const heading = make("h3", { tabindex: "-1" }, question.question || question.effect, " ", badge);
  // The facts of the conversation name the first deadline already.
  const hasOwnDeadline = question.due && question.due !== row.due;
  const due = hasOwnDeadline ? make("p", { class: "hint" }, ...describeDeadline(question)) : null;
  const note = make("p", { class: "problem", role: "alert" });
  const actions = make("div", { class: "actions" });
  const card = make("li", { class: "card question", "data-question": question.effect }, heading, due, note, actions);
  const entry = { card, heading, badge, actions, note, conversation: row.conversation, id: questionKey(question.id),
    isOpen: true, isQuestion: true };
  cards.set(keyOf(row.conversation, entry.id), entry);
  group.calls.append(card);
  const submit = async (content) => {
    const path = conversationPath(row.conversation, "/answers?wait=false");
    await request(path, { content, question: question.effect });
    needsDecisions = true;
    close(entry, "answered", "good");
    await update();
  };
  actions.replaceChildren(mayApprove ? makeSchemaForm(question.form, { submit, label: "Answer" }) :
    make("p", { class: "hint" }, "Your token lacks the role approve."));
  return entry;
}

// -- decisions -----------------------------------------------------------------------------------

function showActions(entry, row, call) {
  const isMine = !row.approvers.length || row.approvers.includes(root.dataset.me);
  const state = JSON.stringify([mayApprove, isMine]);
  if (entry.state === state) {
    return;
  }
  entry.state = state;
  if (!mayApprove || !isMine) {
    const text = mayApprove ? `Only ${nameApprovers(row.approvers)} may decide.` : "Your token lacks the role approve.";
    entry.actions.replaceChildren(make("p", { class: "hint" }, text));
    return;
  }
  entry.actions.replaceChildren(...makeDecisionForm({
    tool: call.tool,
    params: call.arguments ?? {},
    runs: call.runs,
    why: call.reason,
    decide: (decision) => decide(entry, decision),
    complain: (text) => { entry.note.textContent = text; },
  }));
}

async function decide(entry, decision) {
  entry.note.textContent = "";
  try {
    await request(conversationPath(entry.conversation, "/decisions?wait=false"), { call_id: entry.id, ...decision });
    needsDecisions = true;
    close(entry, decision.approved ? "approved" : "rejected", decision.approved ? "good" : "bad");
  } catch (error) {
    entry.note.textContent = error.message;
  }
  await update();
}

function close(entry, text, kind) {
  const hadFocus = entry.card.contains(document.activeElement);
  entry.isOpen = false;
  entry.badge.textContent = text;
  entry.badge.className = `badge ${kind}`;
  entry.actions.replaceChildren(make("button", { type: "button", class: "quiet", onclick: () => remove(entry) }, "Remove"));
  if (hadFocus) {
    entry.heading.focus();
  }
}

function remove(entry) {
  cards.delete(keyOf(entry.conversation, entry.id));
  entry.card.remove();
  const group = groups.get(entry.conversation);
  if (!group.calls.childElementCount) {
    group.section.remove();
    groups.delete(entry.conversation);
  }
  showCount();
  const next = [...cards.values()].find((item) => item.isOpen) ?? [...cards.values()][0];
  (next?.heading ?? document.getElementById("main")).focus();
}

function closeStale(known) {
  for (const [key, entry] of cards) {
    if (entry.isOpen && !known.has(key)) {
      const decision = decisions.get(key);
      const word = decision?.approved ? "approved" : "rejected";
      close(entry, decision ? `${entry.isQuestion ? "answered" : word} by ${nameDecider(decision.by, decision.is_signed)}` : "no longer waits", "");
      if (!decision) {
        entry.note.textContent = "Its time ran out, or its turn was stopped. Nothing is left to decide.";
      }
    }
  }
}

// -- the page ------------------------------------------------------------------------------------

function describeCount(open) {
  const questions = open.filter((entry) => entry.isQuestion).length;
  const calls = open.length - questions;
  const parts = [`${calls} call${calls === 1 ? "" : "s"}`, `${questions} question${questions === 1 ? "" : "s"}`];
  const named = questions ? (calls ? parts : parts.slice(1)) : parts.slice(0, 1);
  return `${named.join(" and ")} ${open.length === 1 ? "waits" : "wait"}`;
}

function showCount() {
  const open = [...cards.values()].filter((entry) => entry.isOpen);
  const [count, text] = [open.length, describeCount(open)];
  const badge = document.getElementById("count");
  if (badge.textContent !== text) {
    badge.textContent = text;
    badge.className = `badge ${count ? "warn" : "good"}`;
    document.title = `${count ? `(${count}) ` : ""}Approvals - Toolchart`;
  }
  document.getElementById("empty").hidden = cards.size > 0;
  for (const [conversation, group] of groups) {
    group.facts.hidden = ![...cards.values()].some((entry) => entry.isOpen && entry.conversation === conversation);
  }
}

function showUnreadable(page) {
  const place = document.getElementById("unreadable");
  place.hidden = !page.unreadable.length;
  place.querySelector("ul").replaceChildren(...page.unreadable.map((row) =>
    make("li", {}, link(row.conversation), ` ${row.problem}`)));
  document.getElementById("more").hidden = page.is_complete;
}

function nameDecision(row) {
  const word = row.answer ? "answered" : row.approved ? "approved" : "rejected";
  return [make("span", { class: `badge ${row.approved ? "good" : "bad"}` }, word),
    row.is_changed ? " with other arguments" : "", row.is_late ? " too late" : ""];
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

async function update() {
  if (isBusy) {
    return;
  }
  isBusy = true;
  try {
    const page = await request("/api/approvals");
    const known = new Map(page.waiting.flatMap((row) => [
      ...row.calls.map((call) => [keyOf(row.conversation, call.id), [row, call, addCard]]),
      ...row.questions.map((item) => [keyOf(row.conversation, questionKey(item.id)), [row, item, addQuestion]]),
    ]));
    const hasChanged = [...cards].some(([key, entry]) => entry.isOpen && !known.has(key));
    if (hasChanged || needsDecisions) {
      needsDecisions = false;
      await showDecisions();
    }
    for (const [key, [row, item, add]] of known) {
      const group = groups.get(row.conversation) ?? addGroup(row);
      const entry = cards.get(key) ?? add(row, item, group);
      updateFacts(group.facts, row);
      if (entry.isOpen && !entry.isQuestion) {
        showActions(entry, row, item);
      }
    }
    closeStale(known);
    showUnreadable(page);
    showCount();
    problem.textContent = "";
  } catch (error) {
    problem.textContent = `The list could not be brought up to date: ${error.message}`;
  } finally {
    isBusy = false;
  }
}

await update();
setInterval(() => {
  if (!document.hidden) {
    update();
  }
}, POLL_MS);
