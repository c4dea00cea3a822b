// The page that edits a chart: each pause in typing has the server check and draw the text.

import { make, request } from "/static/api.js";
import { compareCharts, describeChanges } from "/static/chart_changes.js";
import { ChartMarks, parseDrawing } from "/static/chart_marks.js";
import { CounterexampleView } from "/static/counterexample.js";
import { YamlEditor } from "/static/yaml_editor.js";

const PAUSE_MS = 400;
const RETRY_MS = 1500;

const byId = (id) => document.getElementById(id);
const root = byId("editor");
const editor = new YamlEditor({ field: byId("yaml"), backdrop: byId("backdrop"), gutter: byId("gutter") });
const run = new CounterexampleView({ root: byId("run"), onClose: () => (opener?.isConnected ? opener : byId("findings")).focus() });
const draftKey = `chart ${location.search}`;

let base = root.dataset.base; // digest of the file that this text began with
let savedText = editor.text;
let opener = null; // the button that opened the counterexample
let report = null; // the newest answer, and the text that it is about
let beforeMarks = null;
let beforeStates = null;  // what its states say, as `states` of a report
let afterStates = null;
let afterMarks = null;
let timer = null;
let isChecking = false;

// -- checking ------------------------------------------------------------------------------------

function scheduleCheck(pause = PAUSE_MS) {
  clearTimeout(timer);
  timer = setTimeout(check, pause);
}

async function check() {
  if (isChecking) {
    return; // the newest text is checked when the answer is there
  }
  isChecking = true;
  const asked = { yaml: editor.text, name: byId("name").value, for_agent: byId("scope").value === "agent" };
  byId("checking").classList.add("shown");
  let pause = null;
  try {
    const answer = await request("/api/charts/check", asked);
    report = { ...answer, asked };
    showReport();
  } catch (error) {
    setVerdict("not checked", "warn");
    if (error.status === 429) {
      pause = RETRY_MS;
    } else {
      byId("findings").replaceChildren(make("p", { class: "problem" }, `The check failed: ${error.message}`),
        make("p", {}, make("button", { type: "button", onclick: () => scheduleCheck(0) }, "Check again")));
    }
  } finally {
    isChecking = false;
    byId("checking").classList.remove("shown");
  }
  if (pause !== null || editor.text !== asked.yaml) {
    scheduleCheck(pause ?? PAUSE_MS);
  }
}

function setVerdict(text, kind) {
  const badge = byId("verdict");
  badge.className = `badge ${kind}`;
  if (badge.textContent !== text) {
    badge.textContent = text;
  }
}

function showReport() {
  const { problem, findings, notes } = report;
  if (problem) {
    setVerdict("not a chart", "bad");
    editor.field.setAttribute("aria-invalid", "true");
    byId("bound").textContent = "Nothing is proved before the text is a chart.";
    byId("findings").replaceChildren(describeProblem(problem));
  } else {
    editor.field.removeAttribute("aria-invalid");
    setVerdict(report.verdict, findings.length ? "bad" : "good");
    byId("bound").textContent = `${report.bound[0].toUpperCase()}${report.bound.slice(1)}${report.without ? ` (${report.without})` : ""}.`;
    byId("findings").replaceChildren(
      ...(findings.length ? findings.map(describeFinding) : [make("p", { class: "empty" }, describeClean())]),
      ...(notes.length ? [make("h3", {}, "Notes"), ...notes.map((note) => describeFinding(note, null))] : []));
    showOwnWords();
  }
  if (editor.text === report.asked.yaml) {
    editor.showMarks(listMarks());
  }
  showDrawing();
}

function describeClean() {
  return `Clean: every state can be reached and left, every event is handled, ${report.has_bound ? "every turn ends, " : ""}` +
    `and no call runs before its approval. Proved over ${report.places} explored states.`;
}

function listMarks() {
  const { problem, findings } = report;
  const entries = problem ? [{ line: problem.line, text: problem.message }]
    : findings.map((finding) => ({ line: finding.line, text: finding.kind }));
  return entries.filter((entry) => entry.line);
}

function placeButton(place, line) {
  if (!line) {
    return make("span", { class: "hint" }, place || "in the chart that it extends");
  }
  return make("button", { type: "button", class: "place", "aria-label": `Go to ${place}`, onclick: () => editor.goTo(line) }, place);
}

function describeProblem(problem) {
  return make("div", { class: "card" },
    make("h3", {}, "Not a chart yet "), make("p", {}, placeButton(problem.place || "the text", problem.line)),
    problem.path ? make("p", { class: "hint" }, problem.path) : null,
    make("p", {}, problem.message),
    problem.hint ? make("p", {}, make("strong", {}, "What to do: "), problem.hint) : null);
}

function describeFinding(finding, index) {
  const steps = finding.run.length
    ? make("details", {}, make("summary", {}, `A run of ${finding.run.length} event${finding.run.length === 1 ? "" : "s"} leads there`),
      make("ol", { class: "run" }, ...finding.run.map((event) => make("li", {}, make("code", {}, event)))))
    : null;
  const stepThrough = index !== null && finding.run.length
    ? make("button", { type: "button", class: "quiet", onclick: (event) => openRun(event.currentTarget, index),
      "aria-label": `Step through the counterexample of finding ${index + 1}: ${finding.kind}, ${finding.state}` }, "Step through")
    : null;
  return make("div", { class: "card finding", "data-index": index },
    make("div", { class: "row spread" }, make("h3", {}, finding.kind, " ", finding.state ? make("span", { class: "badge" }, finding.state) : null), stepThrough),
    make("p", {}, placeButton(finding.place, finding.line)), make("p", {}, finding.message), steps,
    finding.change ? make("p", {}, make("strong", {}, "What to change: "), finding.change) : null);
}

// -- pictures ------------------------------------------------------------------------------------

function showDrawing() {
  const after = byId("after");
  run.close();
  const svg = report.svg ? parseDrawing(report.svg) : null;
  after.classList.toggle("stale", !svg && afterMarks !== null);
  if (!svg) {
    if (afterMarks === null) {
      after.replaceChildren(make("p", { class: "empty" }, report.problem ? "The drawing comes when the text is a chart." : report.no_svg));
    } else {
      byId("changes").textContent = "After, in the dashed frame, is the newest text that could be drawn.";
    }
    return;
  }
  after.replaceChildren(svg);
  afterMarks = new ChartMarks(after);
  afterStates = report.states;
  if (beforeMarks === null) {
    setBefore(svg.cloneNode(true), report.states);
  }
  markChanges();
}

function setBefore(svg, states) {
  const before = byId("before");
  before.replaceChildren(svg);
  beforeMarks = new ChartMarks(before);
  beforeStates = states;
}

function markChanges() {
  const found = compareCharts(beforeStates, afterStates);
  for (const [marks, keys] of [[beforeMarks, found.before], [afterMarks, found.after]]) {
    for (const [name, marked] of Object.entries(keys)) {
      marks.mark(marked, name);
    }
  }
  byId("changes").textContent = describeChanges(found);
}

// -- counterexamples -----------------------------------------------------------------------------

async function openRun(button, index) {
  opener = button;
  const { asked, findings } = report;
  const finding = findings[index];
  run.wait(`Counterexample: ${finding.kind}, ${finding.state}`);
  try {
    const answer = await request("/api/charts/replay", { ...asked, finding: index });
    if (run.isOpen) {
      run.open(answer, afterMarks);
    }
  } catch (error) {
    run.fail(error.message);
  }
}

// -- words at hand -------------------------------------------------------------------------------

function showOwnWords() {
  const { effects, facts } = report.words;
  const rows = [
    ...effects.map((row) => [row.name, row.meaning, row.events.length ? `answered by ${row.events.join(", ")}` : ""]),
    ...facts.map((row) => [row.name, row.meaning, row.type]),
  ];
  const box = byId("own-words");
  box.hidden = !rows.length;
  box.querySelector(".count").textContent = rows.length;
  box.querySelector("tbody").replaceChildren(...rows.map(([name, meaning, kind]) => make("tr", {},
    make("th", { scope: "row" }, make("button", { type: "button", class: "quiet word" }, name)),
    make("td", {}, meaning), make("td", { class: "hint" }, kind))));
}

function filterWords() {
  const wanted = byId("filter").value.trim().toLowerCase();
  for (const box of document.querySelectorAll("details.words, #own-words")) {
    let shown = 0;
    for (const row of box.querySelectorAll("tbody tr")) {
      row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    box.querySelector(".count").textContent = shown;
    if (wanted) {
      box.open = shown > 0;
    }
  }
}

root.addEventListener("click", (event) => {
  const word = event.target.closest("button.word");
  if (word) {
    editor.insert(word.textContent);
  }
});

// -- saving --------------------------------------------------------------------------------------

function say(text, isProblem = false) {
  byId("saved").textContent = text;
  byId("saved").className = isProblem ? "status problem" : "status";
}

async function save(event) {
  event?.preventDefault();
  if (byId("save-button").disabled) {
    return;
  }
  const yaml = editor.text;
  const name = byId("name").value.trim();
  byId("save-button").disabled = true;
  byId("compare").hidden = true;
  say("saving...");
  try {
    const form = { yaml, base: name === root.dataset.name ? base : "", for_agent: byId("scope").value === "agent" };
    const answer = await request(`/api/charts/files/${encodeURIComponent(name)}`, form);
    root.dataset.name = name;
    base = answer.digest;
    savedText = yaml;
    dropDraft();
    const count = answer.findings ? ` with ${answer.findings} finding${answer.findings === 1 ? "" : "s"}` : "";
    say(`${answer.saved_by} saved ${answer.name}${count}. Agents use it from their next start on.`);
    history.replaceState(null, "", `/charts/edit?file=${encodeURIComponent(name)}`);
    document.querySelector("h1 .name").textContent = name;
    if (report?.svg && report.asked.yaml === yaml) {
      setBefore(parseDrawing(report.svg), report.states);
      markChanges();
    }
  } catch (error) {
    say(error.message, true);
    byId("compare").hidden = !(error.status === 409 && error.body.digest);
    if (error.status === 409 && error.body.digest === "") {
      base = ""; // the file is gone, so the next save begins a new one
    }
    if (error.body?.problem?.line) {
      editor.goTo(error.body.problem.line);
    }
  } finally {
    byId("save-button").disabled = false;
  }
}

async function compare() {
  const name = byId("name").value.trim();
  try {
    const file = await request(`/api/charts/files/${encodeURIComponent(name)}`);
    const theirs = await request("/api/charts/check", { yaml: file.yaml, name, for_agent: byId("scope").value === "agent" });
    base = file.digest;
    root.dataset.name = name;
    if (theirs.svg) {
      setBefore(parseDrawing(theirs.svg), theirs.states);
      if (afterMarks) {
        markChanges();
      }
    }
    byId("theirs")?.remove();
    byId("saved").after(make("details", { id: "theirs", open: true }, make("summary", {}, `${name} as it is now`),
      make("pre", { tabindex: "0" }, file.yaml),
      make("button", { type: "button", class: "quiet", onclick: () => takeTheirs(file) }, "Take this text; yours is lost")));
    byId("compare").hidden = true;
    say(`Before is now the file${file.saved_by ? ` that ${file.saved_by} saved` : ""}. Saving puts your text in its place.`);
  } catch (error) {
    say(error.message, true);
  }
}

function takeTheirs(file) {
  editor.replace(file.yaml);
  savedText = file.yaml;
  byId("theirs").remove();
  say("Your text is that of the file now.");
}

// -- drafts --------------------------------------------------------------------------------------

function keepDraft() {
  try {
    if (editor.text === savedText) {
      sessionStorage.removeItem(draftKey);
    } else {
      sessionStorage.setItem(draftKey, JSON.stringify({ text: editor.text, base }));
    }
  } catch { // no room, or no storage: the question before leaving remains
  }
}

function dropDraft() {
  sessionStorage.removeItem(draftKey);
  byId("draft").hidden = true;
}

function takeDraft() {
  const draft = JSON.parse(sessionStorage.getItem(draftKey) ?? "null");
  if (draft && draft.text !== editor.text) {
    base = draft.base; // a file that has changed since is noticed when the text is saved
    editor.field.value = draft.text;
    editor.paint();
    byId("draft").hidden = false;
  }
}

// -- events --------------------------------------------------------------------------------------

editor.field.addEventListener("input", () => { keepDraft(); scheduleCheck(); });
byId("scope").addEventListener("change", () => scheduleCheck(0));
byId("name").addEventListener("change", () => scheduleCheck(0));
byId("save").addEventListener("submit", save);
byId("compare").addEventListener("click", compare);
byId("filter").addEventListener("input", filterWords);
byId("drop-draft").addEventListener("click", () => { dropDraft(); base = root.dataset.base; editor.replace(savedText); });
window.addEventListener("beforeunload", (event) => {
  if (editor.text !== savedText) {
    event.preventDefault();
  }
});
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
    event.preventDefault();
    save();
  } else if (event.key === "F8") {
    event.preventDefault();
    const lines = [...new Set(editor.marks.keys())].sort((a, b) => a - b);
    const next = lines.find((line) => line > editor.line) ?? lines[0];
    if (next) {
      editor.goTo(next);
    }
  }
});

takeDraft();
check();
