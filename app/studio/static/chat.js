// The chat: records of the log make the messages, deltas fill the one that is being written.

import { conversationPath, make, makeKey, request } from "/static/api.js";
import { forgetCalls, hasCall, makeCall, offerDecision, showDecision, showResult } from "/static/chat_calls.js";
import { keepConversations, showConversations } from "/static/chat_list.js";
import { renderMarkdown } from "/static/markdown.js";
import { makeMarkdownWriter } from "/static/markdown_writer.js";
import { lookForWaiting } from "/static/nav.js";
import { offerKeys } from "/static/keys.js";
import { showPart, showParts } from "/static/parts.js";
import { makeSchemaForm } from "/static/schema_form.js";

const REVEAL_MS = 1500;

const root = document.getElementById("chat");
const messages = document.getElementById("messages");
const log = document.getElementById("log");
const problem = document.getElementById("chat-problem");
const mayChat = root.dataset.mayChat === "true";
const mayApprove = root.dataset.mayApprove === "true";
let conversation = root.dataset.conversation;
let stream = null;
let writing = null;        // the bubble that deltas fill, and its writer
let follows = true;        // whether the end is in sight, and stays in sight
let lastTop = 0;           // how far the messages were scrolled
let frame = 0;
let isRunning = false;
let lastText = "";
let newestRecord = -1;     // the number of the newest record that is shown
let queued = [];           // messages that were sent, and whose record is not there yet
let isSending = false;
let wanted = Infinity;     // the records of a chat that is loaded: seen once they and what waits are there, so nothing jumps
let sent = null;           // the request that is being sent, and its key
let questions = new Map(); // question -> form

function setState(text, isBusy) {
  isRunning = isBusy;
  const badge = document.getElementById("chat-state");
  badge.textContent = text;
  badge.className = `badge ${isBusy ? "model" : ""}`;
  document.getElementById("stop").hidden = !isBusy;
}

function append(element) {
  document.getElementById("chat-empty").hidden = true;
  log.append(element);
  keepEnd();
}

// Once a frame, however many messages came.
function keepEnd() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    if (follows) {
      messages.scrollTop = messages.scrollHeight;
    }
  });
}

// Whoever scrolls back reads, and is not taken to the end before they go there.
messages.addEventListener("scroll", () => {
  const isBack = messages.scrollTop < lastTop - 4;
  lastTop = messages.scrollTop;
  follows = messages.scrollHeight - lastTop - messages.clientHeight < 120 || (follows && !isBack);
});

function makeBubble(kind, body, button = null) {
  return make("article", { class: `bubble ${kind}` },
    make("div", { class: "by" }, make("h2", { class: "who label" }, kind.startsWith("user") ? "You" : "Assistant"), button), body);
}

// What people write is shown as it is; an answer is Markdown.
function addAnswer(text, parts = []) {
  const bubble = makeBubble("assistant", renderMarkdown(text));
  bubble.append(...parts);
  append(bubble);
}

// -- the user's messages -------------------------------------------------------------------------

function addUserBubble(event, seq) {
  const body = make("div", { class: "text" }, event.message);
  const mayRetry = mayChat && event.type === "turn_started";
  const button = mayRetry ? make("button", { type: "button", class: "bare retry", "aria-expanded": "false",
    onclick: () => offerRetry(bubble, button, event, seq) }, "Retry") : null;
  const bubble = makeBubble("user", body, button);
  bubble.append(...showParts(event.parts));
  append(bubble);
}

// Sent again, perhaps with other words, in a fork that shares what was before the message.
function offerRetry(bubble, button, event, seq) {
  const form = bubble.querySelector("form");
  button.setAttribute("aria-expanded", String(!form));
  if (form) {
    form.remove();
    return;
  }
  const box = make("textarea", { rows: Math.min(8, event.message.split("\n").length + 1), "aria-label": "The message, to be sent again" });
  const key = makeKey();
  const submit = async (action) => {
    action.preventDefault();
    const send = action.submitter ?? action.target.querySelector("[type=submit]");
    send.disabled = true;
    try {
      const fork = await request(conversationPath(conversation, "/fork"), { at: seq - 1 }, { "Idempotency-Key": `${key}-fork` });
      const attachments = (event.parts ?? []).filter((part) => part.data)
        .map(({ data, media_type, name }) => ({ data, media_type, name: name ?? "" }));
      await request(conversationPath(fork.conversation, "/messages?wait=false"), { message: box.value, attachments }, { "Idempotency-Key": key });
      location.assign(`/chat/${encodeURIComponent(fork.conversation)}`);
    } catch (error) {
      problem.textContent = error.message;
      send.disabled = false;
    }
  };
  const again = make("form", { onsubmit: submit }, box, make("div", { class: "row" },
    make("button", { type: "submit" }, "Send in a new conversation"),
    make("span", { class: "hint" }, "It shares what was said before. This one stays as it is.")));
  box.value = event.message;
  bubble.append(again);
  box.focus();
}

// What was sent is shown at once, with a mark that its record removes: while a turn runs it is queued until the
// chart takes it.
function addQueued(text, mark) {
  const badge = make("span", { class: "badge" }, mark);
  const bubble = makeBubble("user queued", make("div", { class: "text" }, text));
  bubble.querySelector(".who").after(badge);
  append(bubble);
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

async function decide(owner, id, decision) {
  problem.textContent = "";
  try {
    await request(conversationPath(owner, "/decisions?wait=false"), { call_id: id, ...decision });
  } catch (error) {
    problem.textContent = error.message;
  }
  await refresh();
  lookForWaiting();
}

function showApproval(pending) {
  const owner = pending.conversation || conversation;
  if (!hasCall(pending.id)) { // of a sub-agent
    append(makeCall(pending.id, { name: pending.tool, arguments: pending.params }));
  }
  offerDecision(pending.id, pending, {
    mayApprove,
    decide: (decision) => decide(owner, pending.id, decision),
    complain: (text) => { problem.textContent = text; },
  });
  keepEnd();
}

function showQuestion(question) {
  const owner = question.conversation || conversation;
  const key = `${owner}/${question.effect}/${question.question}`;
  if (questions.has(key)) {
    return;
  }
  const card = make("article", { class: "question" }, make("h2", {}, question.question || question.effect),
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

function reveal() {
  wanted = -1;
  log.classList.remove("loading");
}

function revealWhole() {
  if (newestRecord + 1 >= wanted) {
    reveal();
  }
}

async function refresh() {
  try {
    await showOverview();
    revealWhole();
  } catch (error) { // a log that cannot go on: its messages are there, and this says why there are no more
    problem.textContent ||= error.message;
    setState("cannot go on", false);
    reveal();
  }
}

async function showOverview() {
  const overview = await request(conversationPath(conversation));
  const result = overview.result;
  wanted = Math.min(wanted, overview.records);
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
    addAnswer(result.content);
  }
}

// -- the answer that is being written ------------------------------------------------------------

function beginWriting() {
  if (!writing) {
    const writer = makeMarkdownWriter(keepEnd);
    writing = { writer, bubble: makeBubble("assistant", writer.element) };
    append(writing.bubble);
  }
  return writing;
}

function endWriting() {
  writing?.writer.drop();
  writing?.bubble.remove();
  writing = null;
}

// The reply takes the place of what was shown of it; what is the same stays as it stands.
function endReply(text, parts) {
  if (!text && !parts.length) {
    endWriting();
  } else if (writing) {
    writing.writer.finish(text);
    writing.bubble.querySelectorAll("[data-index]").forEach((part) => part.remove());
    writing.bubble.append(...parts);
    writing = null;
    keepEnd();
  } else {
    addAnswer(text, parts);
  }
}

function takeRecord(record) {
  const event = record.event;
  switch (event.type) {
    case "forked":
      showShared(event.parent, event.seq);
      break;
    case "turn_started":
    case "user_said":
      dropQueued(event.message);
      addUserBubble(event, record.seq);
      lastText = "";
      break;
    case "replied": {
      const { content, parts, tool_calls: asked } = event.reply;
      endReply(content ?? "", showParts(parts));
      lastText = content ?? lastText;
      (asked ?? []).forEach((call, index) => append(makeCall(record.calls?.[index] ?? call.id, call)));
      break;
    }
    case "decided":
      showDecision(event);
      break;
    case "tool_finished":
      showResult(event);
      break;
  }
  const needsLook = record.ended || ["reviewed", "decided", "answered", "cancelled"].includes(event.type);
  setState(`running: ${record.target}`, true);
  if (needsLook) {
    refresh();
  }
}

// What a fork shares with its parent: the words alone, in front of its own.
async function showShared(parent, seq) {
  const name = make("a", { href: `/chat/${encodeURIComponent(parent)}`, class: "name" }, parent);
  const note = make("p", { class: "hint" }, "Shares what was said before with ", name, ".");
  append(note);
  try {
    const { records } = await request(conversationPath(parent, `/records?limit=${seq + 1}`));
    for (const { event } of records) {
      if (event.type === "turn_started" || event.type === "user_said") {
        note.before(makeBubble("user", make("div", { class: "text" }, event.message)));
      } else if (event.type === "replied" && event.reply.content) {
        note.before(makeBubble("assistant", renderMarkdown(event.reply.content)));
      }
    }
    keepEnd();
  } catch {
    // the parent is gone, or cannot be read: its name stands there
  }
}

// A record that somebody has damaged ends the chat here; the page of the run shows the rest.
function readRecord(event) {
  try {
    newestRecord = Number(event.lastEventId);
    takeRecord(JSON.parse(event.data));
    revealWhole();
  } catch (error) {
    stream.close();
    reveal();
    problem.replaceChildren(`Record ${event.lastEventId} cannot be read (${error.message}). `,
      make("a", { href: document.getElementById("chat-run").href }, "Show the run"));
  }
}

function takeDelta(delta) {
  if (delta.type === "text_withdrawn") {
    endWriting();
  } else if (delta.type === "text_delta") {
    beginWriting().writer.append(delta.text);
  } else if (delta.type === "part_delta" && delta.part.type !== "audio") { // a sound is whole with its reply
    const { bubble } = beginWriting();
    const part = showPart(delta.part);
    part.dataset.index = delta.index;
    const earlier = bubble.querySelector(`[data-index="${delta.index}"]`);
    if (earlier) {
      earlier.replaceWith(part);
    } else {
      bubble.append(part);
    }
    keepEnd();
  }
}

// All of the answer so far, for a reader that has missed some.
function takeText(text) {
  if (text) {
    beginWriting().writer.finish(text);
  } else {
    endWriting();
  }
}

function follow() {
  stream?.close();
  log.replaceChildren(...queued.map((item) => item.bubble));
  document.getElementById("chat-empty").hidden = true;
  forgetCalls();
  questions = new Map();
  stream = new EventSource(conversationPath(conversation, "/events"));
  newestRecord = -1;
  stream.addEventListener("record", readRecord);
  stream.addEventListener("delta", (event) => takeDelta(JSON.parse(event.data)));
  stream.addEventListener("text", (event) => takeText(JSON.parse(event.data).text));
  stream.addEventListener("result", () => {
    endWriting();
    refresh();
    showList();
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
  showList();
}

async function showList() {
  const row = await showConversations(conversation);
  if (row?.message) {
    document.getElementById("chat-title").textContent = row.message;
    document.title = `${row.message.slice(0, 60)} - Toolchart`;
  }
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
  follows = true;
  addQueued(text, isRunning ? "queued" : "sending"); // before the request, whose record may come first
  box.value = "";
  try {
    const attachments = await Promise.all([...files.files].map(readFile));
    await sendMessage({ message: text, attachments });
    files.value = "";
    showFiles();
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

function showFiles() {
  const names = [...document.getElementById("files").files].map((file) => file.name);
  document.getElementById("file-names").textContent = names.join(", ");
}

document.getElementById("files").addEventListener("change", showFiles);
document.getElementById("composer").addEventListener("submit", send);
document.getElementById("stop").addEventListener("click", stop);
document.getElementById("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    document.getElementById("composer").requestSubmit();
  } else if (event.key === "Escape" && !event.isComposing && !event.target.value && isRunning) {
    stop();
  }
});
offerKeys([
  [["m"], "write a message", () => document.getElementById("message").focus()],
  [["Escape"], "stop the turn that runs; with an empty message while you write", () => isRunning && stop()],
  [["Enter"], "send the message"],
  [["Shift+Enter"], "a new line in it"],
]);
keepConversations(() => conversation);
if (conversation) {
  log.classList.add("loading");
  setTimeout(reveal, REVEAL_MS);
  follow();
} else {
  showList();
}
