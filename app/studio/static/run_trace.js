// The trace of a run: its turns, model calls, tools, agents and people as the rows of a tree, each with its time.
//
// A row is made when an effect is asked for, and closed by the record that answers it: that is the record which is
// selected with the row. Records that neither begin nor close a row are quiet; they are rows of their own, and hidden.

const KINDS = { model: "model", tools: "tool", function: "tool", agent: "child", person: "person", user: "person", timer: "timer" };
const HIDDEN = new Set(["review_calls", "answer", "answer_with_error"]);
const NAMES = { call_model: "", ask_approval: "approval", await_user: "the user", run_tools: "tools" };

export function makeRow(steps, kind, depth, seq, name) {
  return { steps, kind, depth, begin: seq, seq, name, detail: "", from: steps.at(seq), to: null, input: null, output: null,
    cached: null, cost: null, isFailed: false, isOpen: false, isFolded: false, turn: null, scale: null, links: null, effect: 0,
    call: "", item: 0 };
}

export class Trace {
  // Those of a sub-agent stand deeper, and their times within the turn in which it runs (`scale`).
  constructor(steps, depth = 0, scale = null) {
    this.steps = steps;
    this.depth = depth;
    this.scale = scale;
    this.rows = [];
    this.turns = [];
    this.model = "";
  }

  // All rows anew: what is folded stays so. Some 50 ms for 100,000 steps.
  build() {
    const nameRow = (row) => `${row.kind} ${row.begin} ${row.call}`;
    const known = new Map(this.rows.filter((row) => row.isFolded || row.links).map((row) => [nameRow(row), row]));
    new Builder(this).run();
    for (const row of known.size ? this.rows : []) {
      const before = known.get(nameRow(row));
      if (before) {
        row.isFolded = before.isFolded;
        row.links = before.links;
      }
    }
    measureTurns(this.turns);
  }

  // The agents that it runs ({conversation, effect, item, state, records}), under the rows that asked for them.
  setChildren(children) {
    const rows = new Map();
    for (const row of this.rows) {
      if (row.kind === "child" || row.kind === "tool") {
        rows.set(`${row.effect} ${row.kind === "tool" ? row.item : ""}`, row);
      }
    }
    const links = new Map();
    for (const child of children) {
      const row = rows.get(`${child.effect} `) ?? rows.get(`${child.effect} ${child.item}`);
      if (row) {
        links.set(row, [...links.get(row) ?? [], child]);
      }
    }
    for (const [row, list] of links) {
      row.kind = "child";
      row.links = list.map((child, index) => {
        const link = row.links?.[index] ?? { trace: null, row: null };
        link.child = child;
        if (list.length > 1) {
          link.row ??= makeLinkRow(row, link);
          link.row.detail = `${child.problem || child.state} · ${child.records} records`;
        }
        return link;
      });
      row.isFolded ||= row.isFolded === false && !row.links.some((link) => link.trace);
    }
  }
}

function makeLinkRow(row, link) {
  const made = { ...row, depth: row.depth + 1, name: link.child.conversation, links: [link], isFolded: true, isLink: true };
  return made;
}

// A turn's own scale, in which the time that people and timers take is a quarter at most; and where the turn stands in the
// whole run, in which the time between turns does not count.
function measureTurns(turns) {
  let offset = 0;
  for (const turn of turns) {
    const span = Math.max(1, (turn.to ?? turn.from) - turn.from);
    const waits = [];
    for (const row of turn.waits ?? []) {
      const end = Math.min(row.to ?? turn.to, turn.to);
      const begin = Math.max(row.from, waits.at(-1)?.[1] ?? row.from);
      if (end > begin) {
        waits.push([begin, end]);
      }
    }
    const waited = waits.reduce((sum, [from, to]) => sum + to - from, 0);
    turn.cuts = waits;
    turn.factor = waited > (span - waited) / 3 ? Math.max(1, (span - waited) / 3) / Math.max(1, waited) : 1;
    turn.factor = Math.min(1, turn.factor);
    turn.length = Math.max(1, span - waited * (1 - turn.factor));
    turn.offset = offset;
    offset += turn.length;
  }
  turns.total = Math.max(1, offset);
}

// The place of a time in a turn, from 0 to 1.
export function placeIn(turn, time) {
  let at = time - turn.from;
  for (const [from, to] of turn.cuts) {
    if (time > from) {
      at -= (Math.min(time, to) - from) * (1 - turn.factor);
    }
  }
  return Math.min(1, Math.max(0, at / turn.length));
}

class Builder {
  constructor(trace) {
    this.trace = trace;
    this.steps = trace.steps;
    this.rows = [];
    this.turns = [];
    this.turn = null;
    this.model = "";
    this.answered = "";        // the model that a reply names
    this.open = new Map();     // effect -> its row
    this.calls = new Map();    // call -> {name, args, row, approval}
    this.places = new Map();   // list -> how far it was read
  }

  // The rows of a list that belong to this step; steps come in order.
  take(name, seq) {
    const list = this.steps[name];
    let place = this.places.get(name) ?? 0;
    const found = [];
    while (place < list.length && (list[place][0] ?? list[place]) <= seq) {
      if ((list[place][0] ?? list[place]) === seq) {
        found.push(list[place]);
      }
      place += 1;
    }
    this.places.set(name, place);
    return found;
  }

  run() {
    const steps = this.steps;
    for (let seq = steps.from; seq < steps.to; seq += 1) {
      this.addStep(seq);
    }
    for (const row of this.open.values()) {
      row.isOpen = row.to === null;
    }
    for (const call of this.calls.values()) {
      for (const row of [call.row, call.approval]) {
        if (row && row.to === null) {
          row.isOpen = true;
        }
      }
    }
    Object.assign(this.trace, { rows: this.rows, turns: this.turns });
  }

  push(kind, depth, seq, name) {
    const row = makeRow(this.steps, kind, depth + this.trace.depth, seq, name);
    row.turn = this.turn;
    row.scale = this.trace.scale ?? this.turn;
    if (this.turn && (kind === "person" || kind === "timer")) {
      (this.turn.waits ??= []).push(row);
    }
    this.rows.push(row);
    return row;
  }

  addStep(seq) {
    const steps = this.steps;
    const event = steps.event(seq);
    let isClaimed = false;
    this.answered = "";
    for (const [, model] of this.take("models", seq)) {
      this.model = event === "replied" ? this.model : model;
      this.answered = model;
    }
    const turnNumber = steps.turnOf(seq);
    if (event === "turn_started" || (turnNumber && this.turn?.number !== turnNumber)) {
      isClaimed = this.beginTurn(seq, event, turnNumber);
    }
    this.take("calls", seq).forEach(([, id, tool, args], item) => {
      this.calls.set(id, { name: tool, args, seq, item, row: null, approval: null });
    });
    isClaimed = this.closeRows(seq, event) || isClaimed;
    for (const [, ids] of this.take("started", seq)) {
      for (const id of ids) {
        const row = this.calls.get(id)?.row;
        if (row) {
          row.from = steps.at(seq);
        }
      }
    }
    if (!isClaimed) {
      const row = this.push("quiet", 1, seq, event);
      row.detail = steps.label(seq);
      row.to = row.from;
      row.isFailed = event === "cancelled";
    }
    for (const [, ids] of this.take("cancels", seq)) {
      ids.forEach((id) => this.cancel(id, seq));
    }
    for (const [, id, name, messages, calls] of this.take("asks", seq)) {
      this.ask(seq, id, name, messages, calls);
    }
    if (this.turn) {
      this.turn.to = steps.at(seq);
      this.turn.last = seq;
    }
    if (this.take("ended", seq).length && this.turn) {
      this.turn.isOpen = false;
    }
  }

  beginTurn(seq, event, number) {
    const isWhole = event === "turn_started";
    const row = this.push("turn", 0, seq, isWhole ? `Turn ${number}` : `Turn ${number}, goes on`);
    row.detail = isWhole ? this.steps.label(seq) : "";
    row.number = number;
    row.isOpen = true;
    row.turn = null;
    this.turn = row;
    this.turns.push(row);
    return isWhole;
  }

  ask(seq, id, name, messages, calls) {
    const kind = this.steps.kinds[name] ?? "other";
    if (HIDDEN.has(name) || kind === "other" || kind === "answer") {
      return;
    }
    if (kind === "tools") {
      for (const call of calls) {
        this.askCall(seq, id, call);
      }
      return;
    }
    if (name === "ask_approval") {
      for (const call of calls) {
        const asked = this.calls.get(call);
        const row = this.push("person", 2, seq, "approval");
        row.detail = asked ? `${asked.name}(${asked.args})` : call;
        row.call = call;
        row.effect = id;
        this.calls.set(call, { ...(asked ?? { name: call, args: "" }), approval: row });
      }
      this.open.set(id, { to: null });
      return;
    }
    const row = this.push(KINDS[kind] ?? "tool", 1, seq, NAMES[name] ?? name);
    row.effect = id;
    row.messages = messages;
    if (kind === "model") {
      row.name = this.model;
      row.detail = name === "call_model" ? "" : name;
    }
    this.open.set(id, row);
  }

  askCall(seq, effect, id) {
    const call = this.calls.get(id) ?? { name: id, args: "", seq: null, item: 0, row: null, approval: null };
    const row = this.push("tool", 2, seq, call.name);
    row.detail = call.args;
    row.args = call.args;
    row.call = id;
    row.effect = effect;
    row.asked = call.seq;
    row.item = call.item;
    this.calls.set(id, { ...call, row });
  }

  cancel(id, seq) {
    const row = this.open.get(id);
    if (row && row.to === null) {
      row.to = this.steps.at(seq);
      row.detail = row.detail ? `${row.detail} · cancelled` : "cancelled";
    }
    this.open.delete(id);
  }

  closeRows(seq, event) {
    const steps = this.steps;
    const usage = this.take("usage", seq)[0];
    const outcome = this.take("outcomes", seq)[0];
    const person = this.take("people", seq)[0];
    const isFailed = this.take("failed", seq).length > 0;
    const effect = steps.answers(seq);
    let row = null;
    if (outcome) {
      const call = this.calls.get(outcome[1]);
      row = event === "decided" ? call?.approval : call?.row;
      if (row && event === "decided") {
        row.name = outcome[2];
        row.detail = `${person ? `by ${person[1]}${person[2] === false ? " (unsigned)" : ""}` : "by a rule"}${steps.label(seq) ? ` · ${steps.label(seq)}` : ""} · ${call.name}`;
      } else if (row) {
        row.result = steps.label(seq);
        row.detail = isFailed || outcome[2] !== "succeeded" ? `${outcome[2]} · ${row.result}` : row.detail;
      }
    } else if (effect && this.open.has(effect)) {
      row = this.open.get(effect);
      if (row.begin === undefined) {
        row = null;
      } else if (event === "replied") {
        row.name = this.answered || row.name;
        const asked = steps.find("calls", seq).map((call) => call[2]);
        const text = asked.length > 1 ? `→ ${asked.length} calls: ${asked.join(", ")}` : asked.length ? `→ ${asked[0]}` : steps.label(seq);
        row.detail = row.detail ? `${row.detail} ${text}` : text;
      } else if (event !== "calls_started" && event !== "call_submitted") {
        row.detail = [person && `by ${person[1]}`, steps.label(seq)].filter(Boolean).join(" · ") || row.detail;
      }
    }
    if (!row || event === "calls_started" || event === "call_submitted") {
      this.addUsage(this.turn, usage);
      return false;
    }
    row.seq = seq;
    row.to = steps.at(seq);
    row.isFailed = isFailed;
    this.addUsage(row, usage);
    this.addUsage(this.turn, usage);
    if (isFailed && this.turn) {
      this.turn.failures = (this.turn.failures ?? 0) + 1;
    }
    return true;
  }

  addUsage(row, usage) {
    if (!row || !usage) {
      return;
    }
    ["input", "output", "cached", "cost"].forEach((name, index) => {
      const value = usage[index + 1];
      row[name] = value === null ? row[name] : (row[name] ?? 0) + value;
    });
  }
}

// The rows that are seen, top to bottom: nothing below what is folded, quiet ones where they are wanted.
export function listVisible(trace, options = {}, into = []) {
  const { withQuiet = false, only = null } = options;
  const hasOneTurn = trace.depth > 0 && trace.turns.length <= 1;
  let isFolded = false;
  for (const row of trace.rows) {
    if (row.kind === "turn") {
      isFolded = row.isFolded;
      if (!hasOneTurn && (!only || trace.depth === 0)) {
        into.push(row);
      }
    } else if (!isFolded && (withQuiet || row.kind !== "quiet") && (!only || only(row))) {
      into.push(row);
      listLinks(row, options, into);
    }
  }
  return into;
}

function listLinks(row, options, into) {
  for (const link of row.links && !row.isFolded ? row.links : []) {
    if (link.row && link.row !== row) {
      into.push(link.row);
      listLinks(link.row, options, into);
    } else if (link.trace) {
      listVisible(link.trace, options, into);
    }
  }
}

export function formatSeconds(seconds) {
  if (seconds < 0.9995) {
    return `${Math.round(seconds * 1000)} ms`;
  }
  if (seconds < 90) {
    return `${seconds.toFixed(1)} s`;
  }
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} d`;
}

export function formatCost(cost) {
  return cost === null || cost === undefined ? "" : cost >= 1 ? cost.toFixed(2) : cost.toFixed(4).replace(/^0/, "");
}

export function formatCount(number) {
  return number === null || number === undefined ? "" : number.toLocaleString("en");
}
