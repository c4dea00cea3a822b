// The chat: records of the log make the messages, deltas fill the one that is being written.

import { conversationPath, make, makeKey, nameDecider, request, showJson } from "/static/api.js";
import { makeDecisionForm, showRun } from "/static/decision_form.js";
import { showPart, showParts } from "/static/parts.js";
import { makeSchemaForm } from "/static/schema_form.js";

const root = document.getElementById("chat");
const messages = document.getElementById("messages");
const problem = document.getElementById("chat-problem");
const mayApprove = root.dataset.mayApprove === "true";
let conversation = root.dataset.conversation;
let stream = null;
let writing = null;        // the bubble that deltas fill
let isRunning = false;
let lastText = "";
let newestRecord = -1;     // the number of the newest record that is shown
let queued = [];           // messages that were sent, and whose record is not there yet
let isSending = false;
let sent = null;           // the request that is being sent, and its key
let calls = new Map();     // call id -> card
let questions = new Map(); // question -> form

function setState(text, isBusy) {
  isRunning = isBusy;
  const badge = document.getElementById("chat-state");
  badge.textContent = text;
  badge.className = `badge ${isBusy ? "warn" : ""}`;
  document.getElementById("stop").hidden = !isBusy;
}

function append(element) {
  document.getElementById("chat-empty").hidden = true;
  const isAtEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 120;
  messages.append(element);
  if (isAtEnd) {
    scrollToEnd();
  }
}

function scrollToEnd() {
  messages.scrollTop = messages.scrollHeight;
}

function addBubble(kind, text) {
  const body = make("div", { class: "text" }, text);
  const bubble = make("article", { class: `bubble ${kind}` },
    make("h2", { class: "who" }, kind === "user" ? "You" : "Assistant"), body);
  append(bubble);
  return body;
}

// -- the user's messages -------------------------------------------------------------------------

function addUserBubble(event) {
  const body = addBubble("user", event.message);
  body.after(...showParts(event.parts));
}

// What was sent is shown at once, with a mark that its record removes: while a turn runs it is queued until the
// chart takes it.
function addQueued(text, mark) {
  const bubble = addBubble("user queued", text).parentElement;
  const badge = make("span", { class: "badge warn" }, mark);
  bubble.querySelector(".who").append(" ", badge);
  queued.push({ text, bubble, badge });
}

function markQueued(text) {
  const item = queued.find((entry) => entry.text === text);
  if (item) {
    item.badge.textContent = "queued";
  }
}

function dropQueued(text) {
  const index = queued.findIndex((item) => item.text === text);
  if (index >= 0) {
    queued.splice(index, 1)[0].bubble.remove();
  }
}

// -- calls and questions ---------------------------------------------------------------------------

function addCall(id, call) {
  const status = make("span", { class: "badge", role: "status" }, "asked for");
  const body = make("div", { class: "call-body" }, showJson(call.arguments ?? call.raw ?? {}));
  const actions = make("div", { class: "actions" });
  const card = make("article", { class: "card call", "data-call": id },
    make("h2", {}, call.name, " ", status), body, actions);
  append(card);
  calls.set(id, { card, status, body, actions, call });
}

function setCallStatus(id, text, kind) {
  const entry = calls.get(id);
  if (entry) {
    entry.status.textContent = text;
    entry.status.className = `badge ${kind}`;
    entry.actions.replaceChildren();
  }
}

async function decide(owner, id, decision) {
  problem.textContent = "";
  try {
    await request(conversationPath(owner, "/decisions?wait=false"), { call_id: id, ...decision });
  } catch (error) {
    problem.textContent = error.message;
  }
  refresh();
}

function showApproval(pending) {
  const owner = pending.conversation || conversation;
  if (!calls.has(pending.id)) {
    addCall(pending.id, { name: pending.tool, arguments: pending.params });
  }
  const entry = calls.get(pending.id);
  if (entry.actions.childElementCount) {
    return;
  }
  entry.status.textContent = "waits for a decision";
  entry.status.className = "badge warn";
  if (!mayApprove) {
    entry.actions.replaceChildren(make("p", { class: "hint" }, "Your token lacks the role approve."));
    return;
  }
  const facts = showRun(pending.runs, pending.reason).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
  const form = makeDecisionForm({
    tool: pending.tool,
    params: pending.params,
    decide: (decision) => decide(owner, pending.id, decision),
    complain: (text) => { problem.textContent = text; },
  });
  entry.actions.replaceChildren(make("dl", { class: "facts" }, ...facts), form.values, form.bar);
}

function showQuestion(question) {
  const owner = question.conversation || conversation;
  const key = `${owner}/${question.effect}/${question.question}`;
  if (questions.has(key)) {
    return;
  }
  const card = make("article", { class: "card question" }, make("h2", {}, question.question || question.effect),
    question.due ? make("p", { class: "hint" }, "until ",
      make("time", { datetime: question.due }, new Date(question.due).toLocaleString())) : null);
  if (mayApprove) {
    const submit = async (content) => {
      await request(conversationPath(owner, "/answers?wait=false"), { content, question: question.effect });
      card.remove();
      questions.delete(key);
      await refresh();
    };
    card.append(makeSchemaForm(question.form, { submit, label: "Answer" }));
  } else {
    card.append(make("p", { class: "hint" }, "Your token lacks the role approve."));
  }
  append(card);
  questions.set(key, card);
}

async function refresh() {
  try {
    await showOverview();
  } catch (error) { // a log that cannot go on: its messages are there, and this says why there are no more
    problem.textContent ||= error.message;
    setState("cannot go on", false);
  }
}

async function showOverview() {
  const overview = await request(conversationPath(conversation));
  const result = overview.result;
  setState(overview.is_running ? `running: ${overview.state}` : overview.state, overview.is_running);
  for (const pending of result?.pending_approvals ?? []) {
    showApproval(pending);
  }
  const open = new Set((result?.questions ?? []).map((item) => `${item.conversation || conversation}/${item.effect}/${item.question}`));
  for (const [key, card] of questions) {
    if (!open.has(key)) {
      card.remove();
      questions.delete(key);
    }
  }
  for (const question of result?.questions ?? []) {
    showQuestion(question);
  }
  // A text that no reply has, such as that of an error. Replies come as records, perhaps after this answer.
  const hasAllRecords = newestRecord + 1 >= overview.records;
  if (hasAllRecords && !overview.is_running && result?.is_over && result.content && result.content !== lastText) {
    lastText = result.content;
    addBubble("assistant", result.content);
  }
  if (!overview.is_running && document.activeElement?.closest("#messages") === null) {
    scrollToEnd();
  }
}

function endWriting() {
  writing?.parentElement.remove();
  writing = null;
}

function takeRecord(record) {
  const event = record.event;
  switch (event.type) {
    case "forked":
      append(make("p", { class: "hint" }, "Continues from record ", String(event.seq), " of ",
        make("a", { href: `/chat/${encodeURIComponent(event.parent)}`, class: "name" }, event.parent), "."));
      break;
    case "turn_started":
    case "user_said":
      dropQueued(event.message);
      addUserBubble(event);
      lastText = "";
      break;
    case "replied": {
      endWriting();
      const reply = event.reply;
      const parts = showParts(reply.parts);
      if (reply.content || parts.length) {
        addBubble("assistant", reply.content ?? "").after(...parts);
        lastText = reply.content ?? "";
      }
      (reply.tool_calls ?? []).forEach((call, index) => addCall(record.calls?.[index] ?? call.id, call));
      break;
    }
    case "decided":
      setCallStatus(event.call_id, `${event.approved ? "approved" : "rejected"} by ${nameDecider(event.by, Boolean(event.signature))}`, event.approved ? "good" : "bad");
      if (event.arguments) {
        calls.get(event.call_id)?.body.append(make("h3", {}, "Approved with"), showJson(event.arguments));
      }
      break;
    case "tool_finished": {
      const entry = calls.get(event.call_id);
      if (entry) {
        setCallStatus(event.call_id, event.outcome, event.outcome === "succeeded" ? "good" : "bad");
        entry.body.append(make("h3", {}, "Result"), showJson(event.result.success ? event.result.result : event.result.error));
      }
      break;
    }
  }
  const needsLook = record.ended || ["reviewed", "decided", "answered", "cancelled"].includes(event.type);
  setState(`running: ${record.target}`, true);
  if (needsLook) {
    refresh();
  }
}

// A record that somebody has damaged ends the chat here; the page of the run shows the rest.
function readRecord(event) {
  try {
    newestRecord = Number(event.lastEventId);
    takeRecord(JSON.parse(event.data));
  } catch (error) {
    stream.close();
    problem.replaceChildren(`Record ${event.lastEventId} cannot be read (${error.message}). `,
      make("a", { href: document.getElementById("chat-run").href }, "Show the run"));
  }
}

function takeDelta(delta) {
  if (delta.type === "text_withdrawn") {
    endWriting();
  } else if (delta.type === "text_delta") {
    const isAtEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 120;
    writing ??= addBubble("assistant", "");
    writing.append(delta.text);
    if (isAtEnd) {
      scrollToEnd();
    }
  } else if (delta.type === "part_delta" && delta.part.type !== "audio") { // a sound is whole with its reply
    writing ??= addBubble("assistant", "");
    const part = showPart(delta.part);
    part.dataset.index = delta.index;
    const earlier = writing.parentElement.querySelector(`[data-index="${delta.index}"]`);
    if (earlier) {
      earlier.replaceWith(part);
    } else {
      writing.parentElement.append(part);
    }
  }
}

function follow() {
  stream?.close();
  messages.replaceChildren(document.getElementById("chat-empty") ?? make("p", { id: "chat-empty", hidden: true }),
    ...queued.map((item) => item.bubble));
  document.getElementById("chat-empty").hidden = true;
  calls = new Map();
  questions = new Map();
  stream = new EventSource(conversationPath(conversation, "/events"));
  newestRecord = -1;
  stream.addEventListener("record", readRecord);
  stream.addEventListener("delta", (event) => takeDelta(JSON.parse(event.data)));
  stream.addEventListener("text", (event) => {
    endWriting();
    const { text } = JSON.parse(event.data);
    if (text) {
      takeDelta({ type: "text_delta", text });
    }
  });
  stream.addEventListener("result", () => {
    endWriting();
    refresh();
  });
  stream.addEventListener("fault", (event) => {
    problem.textContent = JSON.parse(event.data).error;
    endWriting();
    refresh();
  });
  stream.addEventListener("open", refresh);
  const link = document.getElementById("chat-run");
  link.hidden = false;
  link.href = `/conversations/${encodeURIComponent(conversation)}`;
}

function readFile(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("error", () => reject(new Error(`${file.name} cannot be read`)));
    reader.addEventListener("load", () => resolve({
      data: String(reader.result).split(",")[1] ?? "",
      media_type: file.type || "application/octet-stream",
      name: file.name,
    }));
    reader.readAsDataURL(file);
  });
}

// The same message that is sent again, after a failure, has the same key: it was perhaps taken the first time.
function findKey(path, body) {
  const data = JSON.stringify([path, body]);
  if (sent?.data !== data) {
    sent = { data, key: makeKey() };
  }
  return sent.key;
}

async function sendMessage(body) {
  const path = conversation ? conversationPath(conversation, "/messages?wait=false") : "/api/conversations?wait=false";
  const answer = await request(path, body, { "Idempotency-Key": findKey(path, body) });
  sent = null;
  if (answer.as === "user_said") {
    markQueued(body.message);
  }
  if (!conversation) {
    conversation = answer.conversation;
    history.replaceState(null, "", `/chat/${encodeURIComponent(conversation)}`);
    follow();
  }
}

async function send(event) {
  event.preventDefault();
  if (isSending) {
    return;
  }
  const box = document.getElementById("message");
  const files = document.getElementById("files");
  const button = document.getElementById("send");
  const text = box.value;
  problem.textContent = "";
  isSending = button.disabled = true;
  addQueued(text, isRunning ? "queued" : "sending"); // before the request, whose record may come first
  box.value = "";
  try {
    const attachments = await Promise.all([...files.files].map(readFile));
    await sendMessage({ message: text, attachments });
    files.value = "";
  } catch (error) {
    dropQueued(text);
    box.value ||= text;
    problem.textContent = error.message;
  } finally {
    isSending = button.disabled = false;
  }
  box.focus();
}

async function stop() {
  try {
    await request(conversationPath(conversation, "/cancel"), { reason: null });
  } catch (error) {
    problem.textContent = error.message;
  }
  refresh();
}

document.getElementById("composer").addEventListener("submit", send);
document.getElementById("stop").addEventListener("click", stop);
document.getElementById("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    document.getElementById("composer").requestSubmit();
  }
});
if (conversation) {
  follow();
}
