// The page of a run: a slider over the records marks the chart by toggling classes of its drawing.

import { conversationPath, make, request, showJson } from "/static/api.js";

const WINDOW = 20; // rows of the timeline before and after the current one
const PLAY_MS = 500;

const root = document.getElementById("run");
const conversation = root.dataset.conversation;
const slider = document.getElementById("slider");
let steps = { seq: [], at: [], event: [], target: [], fired: [], active: [], turn: [] };
let firstVisits = new Map(); // element id or class -> index of its first visit
let details = new Map();
let player = null;
let shown = -1;

const elements = new Map();
for (const state of document.querySelectorAll("#diagram [data-state]")) {
  elements.set(`state ${state.dataset.state}`, [state]);
}
for (const label of document.querySelectorAll("#diagram [data-source]")) {
  const name = [...label.classList].find((item) => /^transition-\d+$/.test(item));
  elements.set(`row ${label.dataset.source} ${label.dataset.row}`, [...document.querySelectorAll(`#diagram .${name}`)]);
}

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

function formatGap(index) {
  const gap = index ? (Date.parse(steps.at[index]) - Date.parse(steps.at[index - 1])) / 1000 : 0;
  return gap < 1 ? `+${Math.round(gap * 1000)} ms` : gap < 90 ? `+${gap.toFixed(1)} s` : `+${Math.round(gap / 60)} min`;
}

function showTimeline(index) {
  const from = Math.max(0, index - WINDOW);
  const to = Math.min(steps.seq.length, index + WINDOW + 1);
  const rows = [];
  for (let row = from; row < to; row += 1) {
    rows.push(make("li", { "aria-current": row === index ? "step" : null, value: steps.seq[row] },
      make("button", { type: "button", class: "quiet", onclick: () => show(row) },
        `${steps.seq[row]} ${steps.event[row]}${steps.target[row] ? ` → ${steps.target[row]}` : ""}`),
      make("span", { class: "hint" }, ` ${formatGap(row)}`)));
  }
  const list = document.getElementById("timeline");
  list.replaceChildren(...rows);
  const current = list.querySelector("[aria-current]");
  if (current) {
    list.scrollTop = current.offsetTop - list.offsetTop - list.clientHeight / 2;
  }
}

async function showDetails(index) {
  const seq = steps.seq[index];
  if (!details.has(seq)) {
    const page = await request(conversationPath(conversation, `/records?start=${seq}&limit=1`));
    details.set(seq, page.records[0]);
    if (details.size > 500) {
      details.delete(details.keys().next().value);
    }
  }
  if (index !== shown) {
    return;
  }
  const record = details.get(seq);
  const guards = Object.entries(record.guards ?? {}).map(([text, truth]) => make("li", {},
    make("span", { class: `badge ${truth ? "good" : "bad"}` }, truth ? "true" : "false"), " ", make("code", {}, text)));
  document.getElementById("step").replaceChildren(
    make("p", {}, make("strong", {}, record.event.type), ...(record.source ? [" in ", make("code", {}, record.source)] : []),
      ...(record.target ? [" leads to ", make("code", {}, record.target)] : [])),
    make("p", { class: "hint" }, `${record.at}, turn ${record.turn}, iteration ${record.iteration}`),
    make("h3", {}, "Guards"),
    guards.length ? make("ul", { class: "plain" }, ...guards) : make("p", { class: "empty" }, "None was asked."),
    make("h3", {}, "Asked for"),
    record.asks?.length ? showJson(record.asks) : make("p", { class: "empty" }, "Nothing."),
    make("h3", {}, "Event"), showJson(record.event));
}

function show(index) {
  shown = Math.min(Math.max(index, 0), steps.seq.length - 1);
  if (shown < 0) {
    return;
  }
  slider.value = shown;
  const text = `${shown + 1} of ${steps.seq.length}`;
  slider.setAttribute("aria-valuetext", `${text}: ${steps.event[shown]}${steps.target[shown] ? `, ${steps.target[shown]}` : ""}`);
  document.getElementById("position").textContent = text;
  markChart(shown);
  showTimeline(shown);
  showDetails(shown).catch((error) => {
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
  document.getElementById("figures").textContent = `${count(row.turns, "turn")}, ${count(row.records, "record")}, ` +
    `${count(row.model_calls, "model call")}, ${count(row.tool_calls, "tool call")}, ${tokens}${cost}, ${row.seconds.toFixed(1)} s` +
    (row.models.length ? `, ${row.models.join(", ")}` : "");
}

await load();
show(steps.seq.length - 1);
verify().catch((error) => { document.getElementById("verified").textContent = error.message; });
showFigures().catch(() => {}); // a damaged record: the badge says so
const stream = new EventSource(conversationPath(conversation, `/events?last_event_id=${steps.seq.at(-1) ?? ""}`));
let isLoading = false;
stream.addEventListener("record", async () => {
  if (!isLoading) {
    isLoading = true;
    const wasAtEnd = shown === steps.seq.length - 1;
    await load().finally(() => { isLoading = false; });
    show(wasAtEnd ? steps.seq.length - 1 : shown);
  }
});
