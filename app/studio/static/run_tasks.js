// What can be done with a run: read its messages, fork it, run it again, compare it.

import { conversationPath, make, request, showJson } from "/static/api.js";

const runPath = (id) => `/conversations/${encodeURIComponent(id)}`;
const diffPath = (id, other) => `${runPath(id)}/diff?with=${encodeURIComponent(other)}`;

function parseSettings(text) {
  if (!text.trim()) {
    return {};
  }
  try {
    const settings = JSON.parse(text);
    if (settings && typeof settings === "object" && !Array.isArray(settings)) {
      return settings;
    }
  } catch {
    // said below
  }
  throw new Error("Other settings: write a JSON object, such as {\"temperature\": 0}.");
}

function readChanges(form) {
  const settings = parseSettings(form.elements.settings.value);
  for (const name of ["llm", "model"]) {
    const value = form.elements[name].value.trim();
    if (value) {
      settings[name] = value;
    }
  }
  const system = form.elements.system.value;
  return { settings, system: system && system !== form.recordedSystem ? system : null };
}

async function readTranscript(conversation) {
  return request(conversationPath(conversation, "/messages"));
}

// The recorded prompt stands in the form, so that it can be edited; unchanged it is no change.
function fillPrompt(panel, form, conversation) {
  panel.addEventListener("toggle", async () => {
    if (panel.open && form && form.recordedSystem === undefined) {
      form.recordedSystem = "";
      const transcript = await readTranscript(conversation).catch(() => ({ system: "" }));
      form.recordedSystem = transcript.system ?? "";
      form.elements.system.value ||= form.recordedSystem;
    }
  });
}

function submitTo(form, place, send) {
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    place.replaceChildren(make("p", { class: "hint" }, "running..."));
    try {
      place.replaceChildren(...await send());
    } catch (error) {
      place.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
    } finally {
      button.disabled = false;
    }
  });
}

// -- forks -----------------------------------------------------------------------------------------

// `findStep` gives what the form needs of the record that is shown: {seq, beforeTurn, message, call, result}.
export function offerForks(conversation, findStep) {
  const panel = document.getElementById("fork-panel");
  const form = document.getElementById("fork");
  fillPrompt(panel, form, conversation);
  submitTo(form, document.getElementById("fork-answer"), async () => {
    const step = await findStep();
    const fork = await beginFork(conversation, form, step);
    return [make("p", {}, make("span", { class: "badge good" }, "forked"), " ",
      make("a", { href: runPath(fork), class: "name" }, fork), " ",
      make("a", { href: diffPath(conversation, fork) }, "Compare with this run"), " ",
      make("a", { href: `/chat/${encodeURIComponent(fork)}` }, "Open in the chat"))];
  });
  return (step) => showStepInFork(form, step);
}

async function beginFork(conversation, form, step) {
  const changes = readChanges(form);
  const message = form.elements.message.value;
  if (step.message !== null && message !== step.message) {
    return forkMessage(conversation, step, message, changes);
  }
  const body = { ...changes, run_tools: form.elements.run_tools.checked, from_log: form.elements.from_log.checked };
  let at = form.elements.at.value === "shown" ? step.seq : null;
  if (step.call && form.elements.result.value !== step.result) {
    body.results = { [step.call]: parseResult(form.elements.result.value) };
    at = step.seq - 1;
  }
  return (await request(conversationPath(conversation, "/fork?wait=false"), { ...body, at })).conversation;
}

// Another message: the fork shares what was before the turn, and hears the message as its next one.
async function forkMessage(conversation, step, message, changes) {
  const { llm = null, model = null, ...others } = changes.settings;
  if (changes.system !== null || Object.keys(others).length) {
    throw new Error("Another message begins a turn under the agent's own prompt and settings: change the message, " +
      "or prompt and settings, not both. Host and model may change with the message.");
  }
  const fork = await request(conversationPath(conversation, "/fork"), { at: step.beforeTurn });
  await request(conversationPath(fork.conversation, "/messages?wait=false"), { message, llm, model });
  return fork.conversation;
}

function parseResult(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("The result of the call is not JSON; write a text in quotes.");
  }
}

function showStepInFork(form, step) {
  if (!form) {
    return;
  }
  document.getElementById("fork-shown").textContent = `record ${step.seq}, which is shown`;
  const area = form.elements.message;
  if (area.value === (form.shownMessage ?? "")) {
    area.value = step.message ?? "";
  }
  form.shownMessage = step.message ?? "";
  area.disabled = step.message === null;
  document.getElementById("fork-result-field").hidden = !step.call;
  if (form.shownCall !== step.call) {
    form.shownCall = step.call;
    form.elements.result.value = step.call ? step.result : "";
  }
}

// -- reruns ----------------------------------------------------------------------------------------

const KINDS = { same: "good", different: "warn", diverged: "warn", failed: "bad", skipped: "" };

export function offerReruns(conversation) {
  const form = document.getElementById("rerun");
  fillPrompt(document.getElementById("rerun-panel"), form, conversation);
  submitTo(form, document.getElementById("rerun-answer"), async () => {
    const body = { ...readChanges(form), offline: !form.elements.live.checked };
    return showRerun(await request(conversationPath(conversation, "/rerun"), body));
  });
}

function showRerun(result) {
  const rows = [make("p", {}, make("span", { class: `badge ${KINDS[result.status] ?? ""}` }, result.status), " ",
    result.reason || (result.status === "same" ? "The run is the same as the recording." : ""))];
  for (const text of result.request_differences) {
    rows.push(make("p", { class: "text" }, text));
  }
  if (result.first) {
    rows.push(make("p", {}, "First difference: ", make("code", {}, `${result.first.event}${result.first.pointer}`)));
  }
  if (result.recorded && result.rerun && result.status !== "same") {
    rows.push(make("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Recording and rerun" },
      make("table", { class: "comparison" },
        make("thead", {}, make("tr", {}, make("td", {}), make("th", { scope: "col" }, "Recording"), make("th", { scope: "col" }, "Rerun"))),
        make("tbody", {},
          ...result.recorded.messages.map((message, turn) => compareTurn(result, message, turn)),
          make("tr", {}, make("th", { scope: "row" }, "Calls"), showCalls(result.recorded), showCalls(result.rerun))))));
  }
  return rows;
}

function compareTurn(result, message, turn) {
  return make("tr", {}, make("th", { scope: "row" }, `Answer to turn ${turn + 1}`),
    make("td", { class: "text" }, result.recorded.answers[turn] ?? ""), make("td", { class: "text" }, result.rerun.answers[turn] ?? ""));
}

function showCalls(view) {
  return make("td", {}, ...view.calls.map((call) => showJson(call)));
}

// -- messages and comparisons ----------------------------------------------------------------------

export function offerMessages(conversation) {
  const panel = document.getElementById("messages-panel");
  panel.addEventListener("toggle", async () => {
    if (!panel.open) {
      return;
    }
    const place = document.getElementById("run-messages");
    try {
      const transcript = await readTranscript(conversation);
      const first = transcript.system ? [showMessage({ role: "system", content: transcript.system })] : [];
      place.replaceChildren(make("ol", { class: "messages", tabindex: "0", "aria-label": "Messages" },
        ...first, ...transcript.messages.map(showMessage)));
    } catch (error) {
      place.replaceChildren(make("p", { class: "problem" }, error.message));
    }
  });
}

function showMessage(message) {
  const calls = message.tool_calls ?? [];
  return make("li", { class: `bubble ${message.role}` },
    make("p", { class: "who" }, message.name ? `${message.role} ${message.name}` : message.role),
    message.content ? make("div", { class: "text" }, message.content) : null,
    message.parts?.length ? make("p", { class: "hint" }, `${message.parts.length} attachments`) : null,
    ...calls.map((call) => showJson({ [call.name]: call.arguments ?? call.raw })));
}

export function offerComparison(conversation, parent) {
  const panel = document.getElementById("compare-panel");
  panel.addEventListener("toggle", async () => {
    const names = document.getElementById("compare-names");
    if (panel.open && !names.childElementCount) {
      const page = await request("/api/conversations?limit=100").catch(() => ({ conversations: [] }));
      names.replaceChildren(...page.conversations.filter((row) => row.conversation !== conversation).map((row) =>
        make("option", { value: row.conversation }, row.message ?? "")));
    }
  });
  if (parent) {
    const origin = document.getElementById("origin");
    origin.hidden = false;
    origin.append("Forked from record ", String(parent.seq), " of ", make("a", { href: runPath(parent.parent), class: "name" }, parent.parent),
      ". ", make("a", { href: diffPath(parent.parent, conversation) }, "Compare the two"));
    document.getElementById("compare-with").value = parent.parent;
  }
}
