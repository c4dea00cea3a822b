// The page of a run: its trace, its chart and one step, all of the same choice. The address names the step.

import { conversationPath, make, request } from "/static/api.js";
import { RunChart } from "/static/run_chart.js";
import { Inspector } from "/static/run_inspector.js";
import { offerKeys, openDialog } from "/static/keys.js";
import { Overview, TraceList } from "/static/run_list.js";
import { Panes } from "/static/run_panes.js";
import { Steps } from "/static/run_steps.js";
import { beginFork, offerForks, offerReruns, showComparisons, showForkLinks, showMessages } from "/static/run_tasks.js";
import { formatCost, formatCount, formatSeconds, listVisible, Trace } from "/static/run_trace.js";

const SOON_MS = 300;

const root = document.getElementById("run");
const conversation = root.dataset.conversation;
const rights = { mayChat: root.dataset.mayChat === "true", mayDebug: root.dataset.mayDebug === "true", mayApprove: root.dataset.mayApprove === "true" };
const byId = (id) => document.getElementById(id);
const ignore = () => {}; // a damaged record: the badge says so

const steps = new Steps(conversation);
const trace = new Trace(steps);
const panes = new Panes();
const view = { withQuiet: false, state: null, text: "" };
let visible = [];
let choice = null;          // {steps, seq, row, isChild}
let followsEnd = true;

const chart = new RunChart(byId("diagram"), { percent: byId("percent"), pickState });
const list = new TraceList(byId("trace"), { select: (row, isFold) => chooseRow(row, !isFold), unfold: (row) => unfold(row, row.isFolded) });
const overview = new Overview(byId("overview"), (turn, share) => {
  const rows = visible.filter((row) => row.turn === turn && row.scale === turn);
  const time = turn.from + share * ((turn.to ?? turn.from) - turn.from);
  const row = rows.findLast((item) => item.from <= time) ?? turn;
  chooseRow(row);
});
const inspector = new Inspector(byId("step"), { ...rights, changed: showEdits, decided: () => setTimeout(refresh, SOON_MS), fork: () => forkEdits() });

// -- what is seen ------------------------------------------------------------------------------------

function matches(row) {
  const text = view.text.toLowerCase();
  return (!view.state || row.steps.activeStates(row.seq).includes(view.state) || row.steps.activeStates(row.begin).includes(view.state)) &&
    (!text || `${row.name} ${row.detail} ${row.result ?? ""}`.toLowerCase().includes(text));
}

function showRows() {
  const only = view.state || view.text ? matches : null;
  visible = listVisible(trace, { withQuiet: view.withQuiet, only });
  list.marked = view.state;
  list.setRows(visible, trace.turns);
  const quiet = trace.rows.filter((row) => row.kind === "quiet").length;
  byId("row-count").textContent = view.withQuiet ? `hide ${quiet} quiet rows` : `show ${quiet} quiet rows`;
  byId("quiet-rows").setAttribute("aria-pressed", view.withQuiet);
  byId("quiet-rows").hidden = !quiet;
  byId("only").hidden = !only;
  byId("only").querySelector("span").textContent = view.state ? `Rows in the state ${view.state}` : `Rows with “${view.text}”`;
}

function rebuild() {
  trace.build();
  trace.setChildren(children);
  showRows();
  overview.setTrace(trace);
  chart.noteVisits(steps);
  if (choice) {
    const row = findRow(choice.steps, choice.seq);
    choice.row = row ?? choice.row;
    list.choose(choice.row);
    overview.mark(choice.row);
  }
}

// -- the choice --------------------------------------------------------------------------------------

// The row of a record, or the one that was begun or closed by the newest record before it.
function findRow(own, seq) {
  const rows = own === steps ? trace.rows : visible.filter((row) => row.steps === own);
  return rows.find((row) => row.seq === seq && row.kind !== "quiet") ?? rows.find((row) => row.seq === seq) ??
    rows.findLast((row) => row.begin <= seq);
}

function chooseRow(row, isLook = true) {
  if (row) {
    choose(row.steps, row.seq, row);
    if (panes.isNarrow && isLook) {
      panes.show("step");
    }
  }
}

function choose(own, seq, row = findRow(own, seq)) {
  if (!own.has(seq)) {
    return null;
  }
  choice = { steps: own, seq, row, isChild: own !== steps };
  followsEnd = own === steps && seq === steps.to - 1;
  const shown = row?.kind === "quiet" && !view.withQuiet ? visible.findLast((item) => item.steps === own && item.begin <= seq) : row;
  list.choose(shown);
  overview.mark(row);
  if (own === steps) {
    chart.show(steps, seq);
  }
  showPosition();
  choice.open = own === steps ? trace.rows.filter((item) => item.begin <= seq && item.kind !== "turn" && item.kind !== "quiet" &&
    (item.to === null || item.seq > seq)).slice(0, 20) : null;
  nameStep();
  return inspector.show(choice);
}

function showPosition() {
  byId("position").textContent = choice.isChild ? `${choice.seq} of ${choice.steps.conversation}` : `${choice.seq + 1} of ${steps.to}`;
}

let naming = null;
function nameStep() {
  clearTimeout(naming);
  naming = setTimeout(() => {
    const name = choice.isChild ? `#${choice.seq}@${encodeURIComponent(choice.steps.conversation)}` : `#${choice.seq}`;
    if (location.hash !== name) {
      history.replaceState(null, "", name);
    }
  }, SOON_MS);
}

function move(by) {
  const at = visible.indexOf(list.chosen);
  chooseRow(visible[Math.min(visible.length - 1, Math.max(0, at + by))], false);
}

// The next of some rows, or the one before; after the last comes the first.
function moveTo(rows, isForward) {
  const at = visible.indexOf(list.chosen);
  const places = new Map(visible.map((row, place) => [row, place]));
  const found = isForward ? rows.find((row) => places.get(row) > at) ?? rows[0] : rows.findLast((row) => places.get(row) < at) ?? rows.at(-1);
  chooseRow(found, false);
}

function moveToTurn(by) {
  const at = visible.indexOf(list.chosen);
  const isTurn = (row) => row.kind === "turn" && row.steps === steps;
  chooseRow(by > 0 ? visible.slice(at + 1).find(isTurn) : visible.slice(0, Math.max(0, at)).findLast(isTurn), false);
}

function stepBy(by) {
  if (choice) {
    choose(choice.steps, Math.min(choice.steps.to - 1, Math.max(choice.steps.from, choice.seq + by)));
  }
}

function pickState(state) {
  const wasPicked = view.state === state;
  view.state = state;
  showRows();
  moveTo(visible.filter((row) => row.kind !== "turn"), wasPicked);
}

function showAll() {
  view.state = null;
  view.text = "";
  byId("find").value = "";
  showRows();
  list.choose(list.chosen);
}

// -- folding -----------------------------------------------------------------------------------------

async function unfold(row, isOpen) {
  if (!row || !(row.kind === "turn" || row.links)) {
    return;
  }
  row.isFolded = !isOpen;
  if (isOpen && row.links) {
    await Promise.all(row.links.filter((link) => !link.row || link.row === row).map((link) => readChild(row, link)));
  }
  showRows();
  list.choose(list.chosen);
}

async function readChild(row, link) {
  if (link.trace) {
    return;
  }
  const own = new Steps(link.child.conversation);
  await own.readNew();
  const inner = new Trace(own, row.depth + 1, row.scale);
  inner.build();
  const answer = await request(conversationPath(link.child.conversation, "/children")).catch(() => ({ children: [] }));
  inner.setChildren(answer.children);
  link.trace = inner;
}

function foldHere() {
  const row = list.chosen;
  if (row && (row.kind === "turn" || row.links) && !row.isFolded) {
    unfold(row, false);
  } else if (row) {
    const at = visible.indexOf(row);
    chooseRow(visible.slice(0, at).findLast((item) => item.depth < row.depth), false);
  }
}

// -- edits, and forks of them --------------------------------------------------------------------------

function showEdits() {
  const count = inspector.edits.size;
  byId("edits").hidden = count === 0;
  byId("fork-edits").replaceChildren(`Fork with ${count} edit${count === 1 ? "" : "s"} `, make("kbd", {}, "Enter"));
  byId("edit-answer").replaceChildren();
}

async function forkEdits() {
  if (!inspector.edits.size || byId("fork-edits").disabled) {
    return;
  }
  byId("fork-edits").disabled = true;
  byId("edit-answer").replaceChildren("forking...");
  try {
    const fork = await beginFork(conversation, steps, [...inspector.edits.values()]);
    inspector.edits.clear();
    byId("edit-answer").replaceChildren(...showForkLinks(conversation, fork));
    byId("edit-answer").querySelector("a").focus();
  } catch (error) {
    byId("edit-answer").replaceChildren(make("span", { class: "problem" }, error.message));
  } finally {
    byId("fork-edits").disabled = false;
  }
}

byId("fork-edits").addEventListener("click", forkEdits);
byId("drop-edits").addEventListener("click", () => {
  inspector.dropEdits();
  inspector.show(choice);
});
const openFork = offerForks(conversation, steps, () => ({ seq: choice.isChild ? steps.to - 1 : choice.seq, edits: [...inspector.edits.values()] }));
const openRerun = offerReruns(conversation);

// -- what is known about the run ----------------------------------------------------------------------

let children = [];

async function verify() {
  const badge = byId("verified");
  const answer = await request(conversationPath(conversation, "/verify"));
  badge.textContent = answer.is_sound ? "hashes verified" : "damaged";
  badge.className = `badge ${answer.is_sound ? "good" : "bad"}`;
  byId("damage").textContent = answer.problems.join("; ");
}

async function showFigures() {
  const row = await request(conversationPath(conversation));
  const usage = row.usage;
  inspector.usage = usage;
  const cached = usage.cached ? ` (${formatCount(usage.cached)} cached)` : "";
  const hasTokens = usage.input || usage.output;
  byId("state").textContent = row.is_running ? `running: ${row.state}` : row.state;
  byId("figure-time").textContent = formatSeconds(row.seconds);
  byId("figure-tokens").textContent = hasTokens ? `${formatCount(usage.input ?? 0)} → ${formatCount(usage.output ?? 0)}` : "not known";
  byId("figure-tokens").title = `in → out${cached}`;
  byId("figure-cost").textContent = usage.cost ? formatCost(usage.cost) : "not known";
  byId("figure-models").textContent = row.models.join(", ") || "none";
  const result = row.result;
  inspector.waiting = { approvals: result?.pending_approvals ?? [], questions: result?.questions ?? [] };
  const waits = inspector.waiting.approvals.length + inspector.waiting.questions.length;
  byId("waits").hidden = !waits;
  byId("waits").replaceChildren(`${waits} wait${waits === 1 ? "s" : ""} for a person `, make("kbd", {}, "w"));
}

function showWaiting() {
  moveTo(visible.filter((row) => row.isOpen && row.kind === "person"), true);
  panes.show("step");
  inspector.goToDecision();
}

// -- keys ----------------------------------------------------------------------------------------------

function findDearest() {
  const priced = trace.rows.filter((row) => row.kind === "model");
  const worth = (row) => row.cost ?? ((row.input ?? 0) + (row.output ?? 0)) / 1e9;
  chooseRow(priced.sort((a, b) => worth(b) - worth(a))[0], false);
}

function goTo() {
  const dialog = openDialog("go");
  byId("go-to").value = "";
  byId("go-to").focus();
  byId("go").onsubmit = () => {
    const seq = Number(byId("go-to").value);
    if (Number.isInteger(seq)) {
      choose(steps, Math.min(steps.to - 1, Math.max(steps.from, seq)));
    }
    dialog.close();
  };
}

// What needs a server: a file that is shared can only be looked at.
const serverKeys = [
  [["w"], "what waits for a person: Enter approves, Tab goes to the rest", showWaiting],
  [["e"], "edit what is shown: message, arguments, result", () => { panes.show("step"); inspector.editFirst(); }],
  [["f"], "fork with another model, prompt or settings", () => openFork(openDialog("fork"))],
  [["r"], "run it again and compare", () => openRerun(openDialog("rerun"))],
  [["c"], "forks of this run, and comparisons", () => { openDialog("compare"); showComparisons(conversation); }],
  [["S"], "share it as one file", () => byId("share").click()],
  [["m"], "more: messages, chat, export", () => { openDialog("more"); showMessages(conversation); }],
];
const fileKeys = [[["m"], "about this file", () => openDialog("more")]];

offerKeys([
  [["j", "ArrowDown"], "next row", () => move(1), { repeats: true }],
  [["k", "ArrowUp"], "row before", () => move(-1), { repeats: true }],
  [[".", "ArrowRight"], "next record", () => stepBy(1), { repeats: true }],
  [[",", "ArrowLeft"], "record before", () => stepBy(-1), { repeats: true }],
  [["Home"], "first row", () => chooseRow(visible[0], false)],
  [["End", "G"], "last row", () => chooseRow(visible.at(-1), false)],
  [["]"], "next turn", () => moveToTurn(1), { repeats: true }],
  [["["], "turn before", () => moveToTurn(-1), { repeats: true }],
  [["n"], "next failure", () => moveTo(visible.filter((row) => row.isFailed), true), { repeats: true }],
  [["N"], "failure before", () => moveTo(visible.filter((row) => row.isFailed), false), { repeats: true }],
  [["$"], "the model call that cost most", findDearest],
  [["s"], "next row in the same state", () => { const state = choice && steps.activeStates(choice.seq).at(-1); if (state) { pickState(state); } }],
  [["x"], "show all rows again", showAll],
  [["l"], "unfold the row", () => unfold(list.chosen, true)],
  [["h"], "fold the row, or go to the row above it", foldHere],
  [["q"], "quiet rows: show them or hide them", () => { view.withQuiet = !view.withQuiet; showRows(); list.choose(list.chosen); }],
  [["/"], "find in this run", () => { byId("find").focus(); }],
  [["g"], "go to a record by its number", goTo],
  [["1"], "fold or show the trace", () => panes.toggle("trace")],
  [["2"], "fold or show the chart", () => panes.toggle("chart")],
  [["3"], "fold or show the step", () => panes.toggle("step")],
  [["+", "="], "make the chart larger", () => chart.zoom(1.2), { repeats: true }],
  [["-"], "make the chart smaller", () => chart.zoom(1 / 1.2), { repeats: true }],
  [["0"], "fit the chart", () => chart.fit()],
  [["Enter"], "fork with the edits (in a field: Ctrl+Enter); without edits, go into the step", () => (inspector.edits.size ? forkEdits() : byId("step").focus())],
  ...(root.dataset.shared ? fileKeys : serverKeys),
], "Zoom the chart with Ctrl and the wheel too, and drag it.");

byId("find").addEventListener("input", () => { view.text = byId("find").value.trim(); showRows(); });
byId("find").addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === "Escape") {
    if (event.key === "Escape") {
      showAll();
    }
    byId("trace").focus();
    moveTo(visible.filter((row) => row.kind !== "turn"), true);
  }
});

const reportHeat = (error) => { byId("heat-problem").textContent = error.message; };
byId("marks").addEventListener("change", () => {
  byId("heat-problem").textContent = "";
  chart.showHeat(conversation, byId("marks").value).catch(reportHeat);
});

// -- the run as it is, and as it goes on ------------------------------------------------------------------

async function readOlder() {
  while (steps.from > 0) {
    await steps.readOlder();
    rebuild();
  }
}

async function readChildren() {
  children = (await request(conversationPath(conversation, "/children"))).children;
  trace.setChildren(children);
  showRows();
}

async function refresh() {
  await Promise.all([showFigures(), readChildren()]);
  rebuild();
  inspector.update();
}

async function openAddressed() {
  const [, number, child] = /^#(\d+)(?:@(.+))?$/.exec(location.hash) ?? [];
  if (number === undefined) {
    const waiting = trace.rows.find((row) => row.isOpen && row.kind === "person");
    return waiting ? choose(steps, waiting.seq, waiting) : choose(steps, steps.to - 1);
  }
  if (child) {
    location.replace(`/conversations/${child}#${number}`);
    return null;
  }
  while (!steps.has(Number(number)) && steps.from > 0) {
    await steps.readOlder();
    rebuild();
  }
  return choose(steps, steps.has(Number(number)) ? Number(number) : steps.to - 1);
}

addEventListener("hashchange", () => openAddressed());

inspector.waiting = JSON.parse(root.dataset.waiting);
try {
  await steps.readNewest(Number(root.dataset.records));
  rebuild();
  chart.fit();
  await openAddressed(); // what is seen first comes first: the rest reads every record of the run
} catch (error) {
  byId("damage").textContent = error.message; // what cannot be shown is checked all the same
}
root.dataset.ready = "true";
verify().catch((error) => { byId("verified").textContent = error.message; });
await Promise.all([showFigures().catch(ignore), readChildren().catch(ignore)]);
inspector.update();
readOlder().then(() => { root.dataset.whole = "true"; }).catch((error) => { byId("damage").textContent ||= error.message; });

let isReading = false;
let hasMore = false;        // what was written while a page was read need not be in that page
let later = null;

async function readOn() {
  hasMore = true;
  if (isReading) {
    return;
  }
  isReading = true;
  while (hasMore) {
    hasMore = false;
    await steps.readNew().catch(ignore);
  }
  isReading = false;
  rebuild();
  if (followsEnd && !document.activeElement.matches("#step :is(input, textarea, select)")) {
    choose(steps, steps.to - 1);
  } else if (choice) {
    showPosition();
  }
  byId("live").textContent = `record ${steps.to - 1}`;
  clearTimeout(later);
  later = setTimeout(() => refresh().catch(ignore), SOON_MS);
}

if (!root.dataset.shared) {
  const stream = new EventSource(conversationPath(conversation, `/events?last_event_id=${steps.to - 1}`));
  stream.addEventListener("record", readOn);
}
