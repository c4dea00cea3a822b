// The inspector: one step, from what matters most to what matters least. What was said first, what was new in the request,
// why the chart went where it went, figures, and the record as it is stored. What a fork may change is edited here.

import { conversationPath, make, nameDecider, request, showJson } from "/static/api.js";
import { listFacts, makeDecisionForm, showFacts } from "/static/decision_form.js";
import { showParts } from "/static/parts.js";
import { formatCost, formatCount, formatSeconds } from "/static/run_trace.js";
import { makeSchemaForm } from "/static/schema_form.js";

const LATER_MS = 150;   // what has to be derived waits until the selection rests
const KEPT = 500;

// What Toolchart says about a message or a reply.
function showWarnings({ event }) {
  const warnings = [...(event.warnings ?? []), ...(event.reply?.warnings ?? [])];
  return warnings.length ? section("Warnings", make("ul", { class: "plain" }, ...warnings.map((words) => make("li", {}, words)))) : null;
}

function section(title, ...children) {
  return make("section", {}, make("h3", { class: "label" }, title), ...children);
}

function fold(title, ...children) {
  return make("details", {}, make("summary", {}, title), ...children);
}

// JSON with blanks, so that lines break between words.
function spaceJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1).replace(/\n\s*/g, " ");
  } catch {
    return text;
  }
}

function showText(text, kind = "") {
  return make("div", { class: `said ${kind}` }, text);
}

export class Inspector {
  constructor(place, { mayChat, mayDebug, mayApprove, changed, decided, fork }) {
    this.place = place;
    this.rights = { mayChat, mayDebug, mayApprove };
    this.changed = changed;
    this.decided = decided;
    this.fork = fork;
    place.addEventListener("keydown", (event) => this.pressInField(event));
    this.records = new Map();
    this.edits = new Map();   // name of what is edited -> {kind, seq, call, value}
    this.waiting = { approvals: [], questions: [] };
    this.usage = null;        // of the whole run, as soon as it is known
  }

  async readRecord(conversation, seq) {
    const key = `${conversation} ${seq}`;
    if (!this.records.has(key)) {
      const page = await request(conversationPath(conversation, `/records?start=${seq}&limit=1`));
      this.records.set(key, page.records[0]);
      if (this.records.size > KEPT) {
        this.records.delete(this.records.keys().next().value);
      }
    }
    return this.records.get(key);
  }

  show(choice) {
    this.showing = this.read(choice);
    return this.showing;
  }

  async read(choice) {
    this.choice = choice;
    clearTimeout(this.timer);
    try {
      const record = await this.readRecord(choice.steps.conversation, choice.seq);
      if (this.choice === choice) {
        this.draw(choice, record);
      }
    } catch (error) {
      if (this.choice === choice) {
        this.place.replaceChildren(make("p", { class: "problem" }, error.message));
      }
    }
  }

  draw(choice, record) {
    const { row } = choice;
    this.waits = make("div", {}, ...this.showWaiting(choice));
    this.figures = make("div", {}, this.showFigures(choice, record));
    const fresh = row?.kind === "model" && choice.seq === row.seq && row.messages ? make("section", { class: "fresh" }) : null;
    const parts = [this.showHead(choice, record), this.waits, ...this.showSaid(choice, record), showWarnings(record), fresh, this.showWhy(record), this.figures,
      this.showOpen(choice), ...this.showRaw(choice, record)];
    this.place.replaceChildren(...parts.filter(Boolean));
    this.drawn = { choice, record };
    this.place.scrollTop = 0;
    if (fresh) {
      this.timer = setTimeout(() => this.showFresh(choice, fresh), LATER_MS);
    }
  }

  // What became known since the step was drawn: figures of the whole run, and what waits. Nothing else moves.
  update() {
    if (this.drawn && this.drawn.choice === this.choice) {
      const { choice, record } = this.drawn;
      this.figures.replaceChildren(...[this.showFigures(choice, record)].filter(Boolean));
      if (!this.waits.contains(document.activeElement)) {
        this.waits.replaceChildren(...this.showWaiting(choice));
      }
    }
  }

  showHead(choice, record) {
    const { row, steps, seq } = choice;
    const states = record.source || record.target ? [": ", record.source || "start", record.source === record.target ? "" : ` → ${record.target}`] : [];
    const isForeign = choice.isChild ? make("p", { class: "hint" }, "A step of the agent ",
      make("a", { class: "name", href: `/conversations/${encodeURIComponent(steps.conversation)}#${seq}` }, steps.conversation)) : null;
    return make("div", { class: "head" },
      make("h2", {}, make("span", { class: `dot kind-${row?.kind ?? "quiet"}` }), make("span", { id: "step-name" }, record.event.type, ...states)),
      make("p", { class: "hint" }, `record ${seq} · turn ${record.turn} · iteration ${record.iteration} · `,
        make("time", { datetime: record.at }, record.at.replace("T", " ").replace("Z", ""))), isForeign);
  }

  // -- what waits ------------------------------------------------------------------------------------

  showWaiting({ row, steps }) {
    if (!row?.isOpen || row.kind !== "person") {
      return [];
    }
    const conversation = steps.conversation;
    const call = this.waiting.approvals.find((item) => item.id === row.call && (item.conversation || conversation) === conversation);
    const question = this.waiting.questions.find((item) => !row.call && item.effect === row.name);
    const note = make("p", { class: "problem", role: "alert" });
    if (call) {
      return [section("Waits for a decision", make("p", {}, make("strong", {}, call.tool)),
        make("dl", { class: "facts" }, ...showFacts(listFacts(call))), note, ...this.offerDecision(conversation, call, note))];
    }
    if (question) {
      const submit = async (content) => {
        await request(conversationPath(question.conversation || conversation, "/answers?wait=false"), { content, question: question.effect });
        this.decided();
      };
      return [section("Waits for an answer", make("p", {}, question.question ?? ""), note, this.rights.mayApprove ?
        makeSchemaForm(question.form, { submit, label: "Answer" }) : make("p", { class: "hint" }, "Your token lacks the role approve."))];
    }
    return [];
  }

  offerDecision(conversation, call, note) {
    if (!this.rights.mayApprove) {
      return [showJson(call.params ?? {}), make("p", { class: "hint" }, "Your token lacks the role approve.")];
    }
    const decide = async (decision) => {
      note.textContent = "";
      try {
        await request(conversationPath(call.conversation || conversation, "/decisions?wait=false"), { call_id: call.id, ...decision });
        this.decided();
      } catch (error) {
        note.textContent = error.message;
      }
    };
    const form = makeDecisionForm({ tool: call.tool, params: call.params ?? {}, decide, complain: (text) => { note.textContent = text; } });
    return [form.values, form.bar];
  }

  // -- what was said ---------------------------------------------------------------------------------

  showSaid(choice, record) {
    const event = record.event;
    const says = { turn_started: () => this.showMessage(choice, event), replied: () => this.showReply(choice, record),
      tool_finished: () => this.showResult(choice, event), decided: () => [this.showDecision(event)] };
    const own = says[event.type];
    if (own) {
      return own();
    }
    const texts = [["message", ""], ["content", ""], ["reason", ""], ["value", ""]].filter(([name]) => event[name] !== undefined && event[name] !== null && event[name] !== "");
    const kind = event.type === "failed" || event.type === "agent_failed" ? "bad" : "";
    return [...texts.map(([name]) => section(name, typeof event[name] === "string" ? showText(event[name], kind) : showJson(event[name]))),
      ...showParts(event.parts)];
  }

  showMessage(choice, event) {
    const key = `message ${choice.seq}`;
    return [section("The user says", this.offerEdit(choice, key, { kind: "message", seq: choice.seq, value: event.message }, "chat")),
      ...showParts(event.parts),
      event.system ? fold("System prompt", showText(event.system)) : null].filter(Boolean);
  }

  showReply(choice, record) {
    const reply = record.event.reply;
    const parts = record.event.changed_calls?.length ?
      [make("p", { class: "hint" }, "A fork changed arguments of this reply; the rest is as its parent heard it.")] : [];
    if (reply.content) {
      parts.push(section("The model says", showText(reply.content)));
    }
    (reply.tool_calls ?? []).forEach((call, index) => {
      const id = record.calls?.[index] ?? call.id;
      const edit = { kind: "arguments", seq: choice.seq, call: id, value: call.arguments ?? call.raw ?? {} };
      parts.push(make("section", {}, make("h3", { class: "label" }, "Calls ", make("span", { class: "tool-name" }, call.name)),
        call.problem ? make("p", { class: "problem" }, call.problem) : null,
        this.offerEdit(choice, `arguments ${id}`, edit, "debug")));
    });
    if (reply.reasoning) {
      parts.push(fold("Reasoning", showText(reply.reasoning)));
    }
    if (reply.refusal) {
      parts.push(section("Refused", showText(reply.refusal, "bad")));
    }
    return [...parts, ...showParts(reply.parts)];
  }

  showResult(choice, event) {
    const row = choice.row;
    const isGood = event.result.success;
    const value = isGood ? event.result.result : event.result.error;
    const edit = { kind: "result", seq: choice.seq, call: event.call_id, value };
    const call = row?.args !== undefined ? section("Called with", showText(row.args || "no arguments", "mono")) : null;
    return [call, make("section", {}, make("h3", { class: "label" }, isGood ? "Gave" : event.outcome, " ", make("span", { class: "tool-name" }, event.result.tool_name)),
      this.offerEdit(choice, `result ${event.call_id}`, edit, "debug", isGood ? "" : "bad")),
      event.notes?.length ? section("Notes", ...event.notes.map((note) => make("p", {}, note))) : null, ...showParts(event.parts)].filter(Boolean);
  }

  showDecision(event) {
    const who = event.by ? `by ${nameDecider(event.by, Boolean(event.signature))}` : "by a rule";
    return section("Decision", make("p", {}, make("strong", {}, event.approved ? "approved " : "denied "), who),
      event.reason ? showText(event.reason) : null, event.arguments ? section("With other arguments", showJson(event.arguments)) : null);
  }

  // -- editing ---------------------------------------------------------------------------------------

  offerEdit(choice, key, edit, role, kind = "") {
    const isText = edit.kind === "message";
    const write = (value) => (isText ? value : typeof value === "string" && edit.kind !== "arguments" ? JSON.stringify(value) : JSON.stringify(value, null, 2));
    const edited = this.edits.get(key);
    const shown = isText ? showText(edit.value) : make("pre", { tabindex: "0", class: kind }, typeof edit.value === "string" ? edit.value : JSON.stringify(edit.value, null, 2));
    const may = this.rights.mayChat && (role !== "debug" || this.rights.mayDebug) && !choice.isChild;
    if (!may) {
      return shown;
    }
    const place = make("div", { class: "editable" });
    const open = () => {
      const name = { message: "Message", arguments: "Arguments", result: "Result" }[edit.kind];
      const area = make("textarea", { "aria-label": name, rows: "4", spellcheck: "false", class: isText ? "" : "mono" });
      area.value = edited ? edited.text : write(edit.value);
      area.rows = Math.min(16, area.value.split("\n").length + 1);
      area.addEventListener("input", () => {
        if (area.value === write(edit.value)) {
          this.edits.delete(key);
        } else {
          this.edits.set(key, { ...edit, text: area.value });
        }
        area.classList.toggle("edited", this.edits.has(key));
        this.changed();
      });
      area.classList.toggle("edited", Boolean(edited));
      place.replaceChildren(area);
      return area;
    };
    if (edited) {
      open();
    } else {
      place.append(shown, make("button", { type: "button", class: "bare edit-here", "aria-label": `Edit the ${edit.kind}`, onclick: () => open().focus() }, "Edit"));
    }
    return place;
  }

  // Ctrl+Enter forks with what was edited; Escape leaves a field, so that letters are keys again.
  pressInField(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest(".editable")) {
      event.preventDefault();
      this.fork();
    } else if (event.key === "Escape" && event.target.matches("input, textarea, select") && !event.isComposing) {
      this.place.focus();
    }
  }

  // To the decision or the answer for which the chosen step waits: Enter approves, Tab goes to the rest.
  async goToDecision() {
    const { choice } = this;
    await this.showing;
    if (this.choice === choice) {
      (this.waits.querySelector("button.approve") ?? this.waits.querySelector("input, select, textarea, button"))?.focus();
    }
  }

  // Of the step that is chosen now: it may still be read, and another may be chosen before it is drawn.
  async editFirst() {
    const { choice } = this;
    await this.showing;
    const place = this.choice === choice ? this.place.querySelector(".editable") : null;
    (place?.querySelector("textarea") ?? place?.querySelector("button"))?.focus();
    place?.querySelector("button")?.click();
  }

  dropEdits() {
    this.edits.clear();
    this.changed();
  }

  // -- why, and the rest -----------------------------------------------------------------------------

  showWhy(record) {
    const guards = Object.entries(record.guards ?? {});
    const rows = (record.fired ?? []).map((row) => `${row.source || record.source}`);
    if (!guards.length && !rows.length) {
      return null;
    }
    const reason = record.source === record.target && !rows.length ? "The chart stays where it is." :
      `${record.event.type} in ${record.source || "the chart"} leads to ${record.target || "its end"}`;
    return section("Why", make("p", {}, reason, guards.length ? ":" : "."), guards.length ?
      make("ul", { class: "plain guards" }, ...guards.map(([text, truth]) => make("li", { class: truth ? "held" : "" },
        make("span", { class: "truth" }, truth ? "holds" : "does not hold"), make("code", {}, text)))) : null);
  }

  showFigures({ row }, record) {
    if (!row || row.kind === "quiet") {
      return null;
    }
    const facts = [];
    const add = (name, value) => { if (value) { facts.push(make("dt", {}, name), make("dd", {}, value)); } };
    const seconds = ((row.to ?? row.from) - row.from) / 1000;
    add("model", row.kind === "model" ? row.name : "");
    add("tokens", row.input === null && row.output === null ? "" : `${formatCount(row.input ?? 0)} in${row.cached ? ` (${formatCount(row.cached)} cached)` : ""} → ${formatCount(row.output ?? 0)} out`);
    add("cost", row.cost === null ? "" : `${formatCost(row.cost)}${this.usage?.cost ? ` · ${Math.round((100 * row.cost) / this.usage.cost)} % of the run` : ""}`);
    add("time", row.isOpen ? "open" : formatSeconds(seconds));
    add("speed", row.kind === "model" && row.output && seconds > 0.2 ? `${Math.round(row.output / seconds)} tokens a second` : "");
    add("finished", record.event.reply?.finish_reason ?? "");
    return facts.length ? section("Figures", make("dl", { class: "facts" }, ...facts)) : null;
  }

  showOpen({ open }) {
    return open?.length ? section("Open after this step", make("ul", { class: "plain open" }, ...open.map((row) =>
      make("li", {}, make("code", {}, row.name), make("span", { class: "hint" }, ` asked for by record ${row.begin}`))))) : null;
  }

  showRaw(choice, record) {
    const parts = [];
    const asks = (record.asks ?? []).filter((ask) => ask.messages && ask.digest);
    if (asks.length || choice.row?.kind === "model") {
      const seq = asks.length ? choice.seq : choice.row.begin;
      const place = make("div", { "aria-live": "polite" });
      const whole = make("details", { class: "requests" }, make("summary", {}, "The whole request to the model"), place);
      whole.addEventListener("toggle", () => {
        if (whole.open && !place.childElementCount) {
          showRequests(choice.steps.conversation, seq, place);
        }
      });
      parts.push(whole);
    }
    parts.push(fold("Record as it is stored", showJson(record)));
    return parts;
  }

  async showFresh({ row, steps }, place) {
    const before = steps.asks.filter((ask) => ask[0] < row.begin && ask[3] && ask[2] === steps.asks.find((own) => own[1] === row.effect)?.[2]).at(-1);
    try {
      const answer = await request(conversationPath(steps.conversation, `/requests?seq=${row.begin}&from=${before?.[3] ?? 0}`));
      const found = answer.requests.find((item) => item.effect === row.effect);
      if (found) {
        const messages = before ? found.request.messages.filter((message) => message.role !== "assistant") : found.request.messages;
        place.append(make("h3", { class: "label" }, before ? "New since the last request" : "The first request"),
          ...messages.slice(0, 20).map(showFreshMessage));
      }
    } catch (error) {
      place.append(make("p", { class: "hint" }, error.message));
    }
  }
}

function showFreshMessage(message) {
  const calls = message.tool_calls ?? [];
  return make("div", { class: "fresh-message" }, make("span", { class: "label" }, message.name ? `${message.role} ${message.name}` : message.role),
    message.content ? showText(message.role === "tool" ? spaceJson(message.content) : message.content, message.role === "tool" ? "mono" : "") : null,
    ...calls.map((call) => showText(`${call.name} ${spaceJson(JSON.stringify(call.arguments ?? call.raw))}`, "mono")));
}

async function showRequests(conversation, seq, place) {
  place.replaceChildren(make("p", { class: "hint" }, "deriving..."));
  try {
    const answer = await request(conversationPath(conversation, `/requests?seq=${seq}`));
    place.replaceChildren(...answer.requests.flatMap((row) => [
      make("p", { class: "hint" }, `To ${row.host}. Derived from the log; its digest is the recorded one, ${row.digest}.`),
      showJson(row.request)]));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
  }
}
