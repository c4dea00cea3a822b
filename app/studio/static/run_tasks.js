// What can be done with a run: fork it with edits, run it again, compare it, read its messages.

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
async function fillPrompt(form, conversation) {
  if (form && form.recordedSystem === undefined) {
    form.recordedSystem = "";
    const transcript = await readTranscript(conversation).catch(() => ({ system: "" }));
    form.recordedSystem = transcript.system ?? "";
    form.elements.system.value ||= form.recordedSystem;
  }
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

const NO_CHANGES = { settings: {}, system: null };

export function showForkLinks(conversation, fork) {
  return [make("a", { href: runPath(fork), class: "name" }, fork), " ",
    make("a", { href: diffPath(conversation, fork) }, "Compare with this run"), " ",
    make("a", { href: `/chat/${encodeURIComponent(fork)}` }, "Open in the chat")];
}

// A fork with edits ({kind, seq, call, text}), with changes of the form, or both. `at` is the newest record that it shares;
// null where the changes need another one.
export async function beginFork(conversation, steps, edits, { changes = NO_CHANGES, at = null, others = {} } = {}) {
  const message = edits.find((edit) => edit.kind === "message");
  if (message) {
    if (edits.length > 1) {
      throw new Error("Another message begins its turn anew, so nothing else of the turn can be edited with it. Drop the other edits.");
    }
    return forkMessage(conversation, message, changes);
  }
  const body = { ...changes, ...others, at };
  for (const edit of edits) {
    const name = edit.kind === "result" ? "results" : "arguments";
    body[name] = { ...body[name], [edit.call]: parseJson(edit) };
  }
  if (edits.length) {
    body.at = Math.min(...edits.map((edit) => edit.seq)) - 1;
  }
  return (await request(conversationPath(conversation, "/fork?wait=false"), body)).conversation;
}

// Another message: the fork shares what was before the turn, and hears the message as its next one.
async function forkMessage(conversation, edit, changes) {
  const { llm = null, model = null, ...others } = changes.settings;
  if (changes.system !== null || Object.keys(others).length) {
    throw new Error("Another message begins a turn under the agent's own prompt and settings: change the message, " +
      "or prompt and settings, not both. Host and model may change with the message.");
  }
  const fork = await request(conversationPath(conversation, "/fork"), { at: edit.seq - 1 });
  await request(conversationPath(fork.conversation, "/messages?wait=false"), { message: edit.text, llm, model });
  return fork.conversation;
}

function parseJson(edit) {
  try {
    return JSON.parse(edit.text);
  } catch {
    throw new Error(`The ${edit.kind === "result" ? "result" : "arguments"} that you edited ${edit.kind === "result" ? "is" : "are"} not JSON; write a text in quotes.`);
  }
}

// `find` gives {seq, edits}: the record that is shown, and what was edited.
export function offerForks(conversation, steps, find) {
  const form = document.getElementById("fork");
  submitTo(form, document.getElementById("fork-answer"), async () => {
    const { seq, edits } = find();
    const others = { run_tools: form.elements.run_tools.checked, from_log: form.elements.from_log.checked };
    const at = form.elements.at.value === "shown" ? seq : null;
    const fork = await beginFork(conversation, steps, edits, { changes: readChanges(form), at, others });
    return [make("p", {}, make("span", { class: "badge" }, "forked"), " ", ...showForkLinks(conversation, fork))];
  });
  return () => {
    if (form) {
      const { seq, edits } = find();
      document.getElementById("fork-shown").textContent = `record ${seq}, which is shown` +
        (edits.length ? `; with ${edits.length} edit${edits.length === 1 ? "" : "s"}, the record before what was edited` : "");
      fillPrompt(form, conversation);
    }
  };
}

// -- reruns ----------------------------------------------------------------------------------------

const KINDS = { same: "", different: "warn", diverged: "warn", failed: "bad", skipped: "" };

export function offerReruns(conversation) {
  const form = document.getElementById("rerun");
  submitTo(form, document.getElementById("rerun-answer"), async () => {
    const body = { ...readChanges(form), offline: !form.elements.live.checked };
    return showRerun(await request(conversationPath(conversation, "/rerun"), body));
  });
  return () => fillPrompt(form, conversation);
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

export async function showMessages(conversation) {
  const place = document.getElementById("run-messages");
  try {
    const transcript = await readTranscript(conversation);
    const first = transcript.system ? [showMessage({ role: "system", content: transcript.system })] : [];
    place.replaceChildren(make("ol", { class: "messages", tabindex: "0", "aria-label": "Messages" },
      ...first, ...transcript.messages.map(showMessage)));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem" }, error.message));
  }
}

function showMessage(message) {
  const calls = message.tool_calls ?? [];
  return make("li", { class: `bubble ${message.role}` },
    make("p", { class: "who" }, message.name ? `${message.role} ${message.name}` : message.role),
    message.content ? make("div", { class: "text" }, message.content) : null,
    message.parts?.length ? make("p", { class: "hint" }, `${message.parts.length} attachments`) : null,
    ...calls.map((call) => showJson({ [call.name]: call.arguments ?? call.raw })));
}

export async function showComparisons(conversation) {
  const place = document.getElementById("forks");
  try {
    place.replaceChildren(...showForks(conversation, await request(conversationPath(conversation, "/forks"))));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem" }, error.message));
  }
  const names = document.getElementById("compare-names");
  if (!names.childElementCount) {
    const page = await request("/api/conversations?limit=100").catch(() => ({ conversations: [] }));
    names.replaceChildren(...page.conversations.filter((row) => row.conversation !== conversation).map((row) =>
      make("option", { value: row.conversation }, row.message ?? "")));
  }
}

function showForks(conversation, { root, forks }) {
  if (!forks.length) {
    return [make("p", { class: "empty" }, "This run has no forks yet.")];
  }
  const list = (parent) => {
    const rows = forks.filter((fork) => fork.parent === parent);
    return rows.length ? make("ul", {}, ...rows.map((fork) => make("li", {}, nameRun(conversation, fork.conversation), " ",
      make("span", { class: "hint" }, `from record ${fork.at}`), " ", make("span", { class: "badge" }, fork.state), " ",
      fork.conversation === conversation ? "" : make("a", { href: diffPath(conversation, fork.conversation) }, "Compare"), list(fork.conversation)))) : "";
  };
  return [make("div", { class: "fork-tree" }, nameRun(conversation, root), " ",
    root === conversation ? "" : make("a", { href: diffPath(conversation, root) }, "Compare"), list(root))];
}

function nameRun(conversation, name) {
  return conversation === name ? make("span", { class: "name", "aria-current": "true" }, `${name} (this run)`) :
    make("a", { href: runPath(name), class: "name" }, name);
}
