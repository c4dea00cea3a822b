// The page of a run: a slider over the records marks the chart by toggling classes of its drawing.

import { conversationPath, make, request, showJson } from "/static/api.js";
import { showParts } from "/static/parts.js";
import { collectElements } from "/static/chart_marks.js";
import { findEnds, listOpen } from "/static/run_effects.js";
import { clearHeat, showHeat } from "/static/run_heat.js";
import { offerRequests } from "/static/run_requests.js";
import { offerComparison, offerForks, offerMessages, offerReruns } from "/static/run_tasks.js";
import { readChildren, showTimeline } from "/static/run_timeline.js";

const PLAY_MS = 500;

const root = document.getElementById("run");
const conversation = root.dataset.conversation;
const slider = document.getElementById("slider");
const timeline = document.getElementById("timeline");
const marks = document.getElementById("marks");
let steps = { seq: [], at: [], event: [], target: [], fired: [], active: [], turn: [], by: [], is_signed: [], asks: [], answers: [], cancels: [], ended: [] };
let effects = [];            // every effect with the steps between which it was open
let children = new Map();    // effect id -> the sub-agents that it runs
let firstVisits = new Map(); // element id or class -> index of its first visit
let details = new Map();
let player = null;
let shown = -1;

const elements = collectElements(document.getElementById("diagram"));

function noteVisits(from) {
  for (let index = from; index < steps.seq.length; index += 1) {
    for (const state of steps.active[index]) {
      const key = `state ${state}`;
      if (!firstVisits.has(key)) {
        firstVisits.set(key, index);
      }
    }
    for (const [source, row] of steps.fired[index]) {
      const key = `row ${source} ${row}`;
      if (!firstVisits.has(key)) {
        firstVisits.set(key, index);
      }
    }
  }
}

function markChart(index) {
  const active = new Set(steps.active[index].map((state) => `state ${state}`));
  for (const [key, group] of elements) {
    const isVisited = (firstVisits.get(key) ?? Infinity) <= index;
    for (const element of group) {
      element.classList.toggle("visited", isVisited);
      element.classList.toggle("current", active.has(key));
    }
  }
}

async function readRecord(index) {
  const seq = steps.seq[index];
  if (!details.has(seq)) {
    const page = await request(conversationPath(conversation, `/records?start=${seq}&limit=1`));
    details.set(seq, page.records[0]);
    if (details.size > 500) {
      details.delete(details.keys().next().value);
    }
  }
  return details.get(seq);
}

async function showDetails(index) {
  const record = await readRecord(index);
  if (index !== shown) {
    return;
  }
  const guards = Object.entries(record.guards ?? {}).map(([text, truth]) => make("li", {},
    make("span", { class: `badge ${truth ? "good" : "bad"}` }, truth ? "true" : "false"), " ", make("code", {}, text)));
  document.getElementById("step").replaceChildren(
    make("p", {}, make("strong", {}, record.event.type), ...(record.source ? [" in ", make("code", {}, record.source)] : []),
      ...(record.target ? [" leads to ", make("code", {}, record.target)] : [])),
    make("p", { class: "hint" }, `${record.at}, turn ${record.turn}, iteration ${record.iteration}`),
    make("h3", {}, "Guards"),
    guards.length ? make("ul", { class: "plain" }, ...guards) : make("p", { class: "empty" }, "None was asked."),
    make("h3", {}, "Open effects"), showOpenEffects(index),
    make("h3", {}, "Asked for"),
    record.asks?.length ? showJson(record.asks) : make("p", { class: "empty" }, "Nothing."),
    ...offerRequests(conversation, record),
    ...showParts(record.event.reply?.parts ?? record.event.parts),
    make("h3", {}, "Event"), showJson(record.event));
}

function showOpenEffects(index) {
  const rows = listOpen(effects, index).map((row) => make("li", {}, make("code", {}, row.name),
    make("span", { class: "hint" }, ` asked for by record ${steps.seq[row.index]}`)));
  return rows.length ? make("ul", { class: "plain open" }, ...rows) : make("p", { class: "empty" }, "None.");
}

function show(index) {
  shown = Math.min(Math.max(index, 0), steps.seq.length - 1);
  if (shown < 0) {
    return null;
  }
  slider.value = shown;
  const text = `${shown + 1} of ${steps.seq.length}`;
  slider.setAttribute("aria-valuetext", `${text}: ${steps.event[shown]}${steps.target[shown] ? `, ${steps.target[shown]}` : ""}`);
  document.getElementById("position").textContent = text;
  markChart(shown);
  showTimeline(timeline, steps, shown, children, show);
  updateFork();
  return showDetails(shown).catch((error) => {
    document.getElementById("step").replaceChildren(make("p", { class: "problem" }, error.message));
  });
}

async function load() {
  const start = steps.seq.length;
  const page = await request(conversationPath(conversation, `/steps?start=${start}`));
  for (const key of Object.keys(steps)) {
    steps[key].push(...page[key]);
  }
  noteVisits(start);
  slider.max = Math.max(0, steps.seq.length - 1);
  return steps.seq.length > start;
}

// What the newest step leaves open is derived by the server; a damaged log has no answer to it.
async function loadOpenEffects() {
  const answer = await request(conversationPath(conversation, "/open")).catch(() => ({ open: [] }));
  effects = findEnds(steps, answer.open.map((row) => row.id));
}

async function loadChildren() {
  children = await readChildren(conversation).catch(() => children);
}

async function loadMore() {
  await Promise.all([loadOpenEffects(), loadChildren()]);
  show(shown);
}

function stopPlaying() {
  clearInterval(player);
  player = null;
  document.getElementById("play").textContent = "Play";
}

function play() {
  if (player) {
    stopPlaying();
    return;
  }
  if (shown >= steps.seq.length - 1) {
    show(0);
  }
  document.getElementById("play").textContent = "Pause";
  player = setInterval(() => (shown >= steps.seq.length - 1 ? stopPlaying() : show(shown + 1)), PLAY_MS);
}

slider.addEventListener("input", () => show(Number(slider.value)));
document.getElementById("play").addEventListener("click", play);
document.getElementById("first").addEventListener("click", () => show(0));
document.getElementById("back").addEventListener("click", () => show(shown - 1));
document.getElementById("forward").addEventListener("click", () => show(shown + 1));
document.getElementById("last").addEventListener("click", () => show(steps.seq.length - 1));
document.addEventListener("keydown", (event) => {
  const isField = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName);
  if (!isField && !event.altKey && !event.ctrlKey && !event.metaKey) {
    if (event.key === "ArrowLeft") {
      show(shown - 1);
    } else if (event.key === "ArrowRight") {
      show(shown + 1);
    }
  }
});

// -- heat --------------------------------------------------------------------------------------------

async function showMarks() {
  const kind = marks.value;
  document.getElementById("diagram").classList.toggle("hot", kind !== "path");
  document.getElementById("heat-problem").textContent = "";
  if (kind === "path") {
    clearHeat(elements);
    return;
  }
  await showHeat(conversation, elements, kind);
}

const reportHeat = (error) => { document.getElementById("heat-problem").textContent = error.message; };
marks.addEventListener("change", () => showMarks().catch(reportHeat));

// -- forks -------------------------------------------------------------------------------------------

const forkPanel = document.getElementById("fork-panel");

// The record that is shown, as far as a fork may change it: the message of its turn, and the result of its call.
async function findStep() {
  const start = steps.event.lastIndexOf("turn_started", shown);
  const [record, beginning] = await Promise.all([readRecord(shown), start < 0 ? null : readRecord(start)]);
  const event = record.event;
  const isResult = event.type === "tool_finished" && Boolean(event.call_id);
  return {
    seq: steps.seq[shown],
    beforeTurn: start < 0 ? null : steps.seq[start] - 1,
    message: beginning?.event.message ?? null,
    call: isResult ? event.call_id : null,
    result: isResult ? JSON.stringify(event.result.success ? event.result.result : event.result.error, null, 2) : "",
  };
}

const showStepInFork = offerForks(conversation, findStep);

function updateFork() {
  const index = shown;
  if (forkPanel.open && index >= 0) {
    findStep().then((step) => (index === shown ? showStepInFork(step) : null)).catch(() => {});
  }
}

forkPanel.addEventListener("toggle", updateFork);
offerReruns(conversation);
offerMessages(conversation);

// -- what is known about the run ----------------------------------------------------------------------

async function verify() {
  const badge = document.getElementById("verified");
  const answer = await request(conversationPath(conversation, "/verify"));
  badge.textContent = answer.is_sound ? "hashes verified" : "damaged";
  badge.className = `badge ${answer.is_sound ? "good" : "bad"}`;
  document.getElementById("damage").textContent = answer.problems.join("; ");
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

async function showFigures() {
  const row = await request(conversationPath(conversation));
  const cost = row.usage.cost ? `, cost ${row.usage.cost.toFixed(4)}` : "";
  const tokens = `${row.usage.input ?? 0} + ${row.usage.output ?? 0} tokens`;
  document.getElementById("state").textContent = row.state;
  document.getElementById("figures").textContent = `${count(row.turns, "turn")}, ${count(row.records, "record")}, ` +
    `${count(row.model_calls, "model call")}, ${count(row.tool_calls, "tool call")}, ${tokens}${cost}, ${row.seconds.toFixed(1)} s` +
    (row.models.length ? `, ${row.models.join(", ")}` : "");
}

async function showOrigin() {
  const first = steps.event[0] === "forked" ? (await readRecord(0)).event : null;
  offerComparison(conversation, first);
}

await load();
effects = findEnds(steps, []);
await show(steps.seq.length - 1); // what is seen first comes first: the rest reads every record of the run
const ignore = () => {}; // a damaged record: the badge says so
verify().catch((error) => { document.getElementById("verified").textContent = error.message; });
showFigures().catch(ignore);
showOrigin().catch(ignore);
loadMore().catch(ignore);

// -- what is new -------------------------------------------------------------------------------------

const stream = new EventSource(conversationPath(conversation, `/events?last_event_id=${steps.seq.at(-1) ?? ""}`));
let isLoading = false;
let pause = null;

function lookAgainSoon() {
  clearTimeout(pause);
  pause = setTimeout(() => {
    Promise.all([loadMore(), showFigures()]).catch(ignore);
    if (marks.value !== "path") {
      showMarks().catch(reportHeat);
    }
  }, 500);
}

stream.addEventListener("record", async () => {
  if (!isLoading) {
    isLoading = true;
    const wasAtEnd = shown === steps.seq.length - 1;
    await load().finally(() => { isLoading = false; });
    effects = findEnds(steps, effects.filter((row) => row.end === Infinity).map((row) => row.id));
    show(wasAtEnd ? steps.seq.length - 1 : shown);
    lookAgainSoon();
  }
});
