// The steps of a conversation in columns, from its records: what the server sends to the page of a run, made here in a
// file that is shared, where there is no server. A test compares the two over many records.

const LABEL_SIZE = 160;

const BLANKS = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;

// The first characters of a text; a pair of surrogates is one.
function takeFirst(text, count) {
  return text.length <= count ? text : Array.from(text.slice(0, 2 * count)).slice(0, count).join("");
}

function cut(text) {
  const short = takeFirst(text.toWellFormed(), 4 * LABEL_SIZE).split(BLANKS).filter(Boolean).join(" ");
  return Array.from(short).length <= LABEL_SIZE ? short : `${takeFirst(short, LABEL_SIZE - 3)}...`;
}

function cutValue(value) {
  return cut(typeof value === "string" ? value : JSON.stringify(value) ?? "");
}

function describeArguments(call) {
  if (!call.arguments || typeof call.arguments !== "object" || Array.isArray(call.arguments)) {
    return cut(String(call.raw ?? ""));
  }
  const texts = [];
  let length = 0;
  for (const [name, value] of Object.entries(call.arguments)) {
    const short = typeof value === "string" ? takeFirst(value, LABEL_SIZE) : value;
    texts.push(`${name}=${takeFirst(JSON.stringify(short), LABEL_SIZE * 2)}`);
    length += texts.at(-1).length;
    if (length > LABEL_SIZE) {
      break;
    }
  }
  return cut(texts.join(", "));
}

function describeEvent(event) {
  if (event.reply && event.type === "replied") {
    return cut(event.reply.content ?? "");
  }
  if (event.type === "tool_finished") {
    return event.result.success ? cutValue(event.result.result) : cut(String(event.result.error ?? ""));
  }
  if (event.verdicts?.length) {
    return cut(event.verdicts.filter((item) => item.ruling !== "run").map((item) => item.reason ?? item.ruling).join("; "));
  }
  if (event.type === "forked") {
    return cut(`from record ${event.seq} of ${event.parent}`);
  }
  if (event.value !== undefined) {
    return cutValue(event.value);
  }
  const text = event.message || event.content || event.reason || "";
  return cutValue(text);
}

class Table {
  constructor() {
    this.values = [];
    this.places = new Map();
  }

  find(value) {
    const key = JSON.stringify(value);
    if (!this.places.has(key)) {
      this.places.set(key, this.values.length);
      this.values.push(value);
    }
    return this.places.get(key);
  }
}

const LISTS = ["asks", "calls", "outcomes", "started", "cancels", "usage", "models", "people", "failed", "ended"];

export function makeColumns(records, start = 0) {
  const [events, targets, rows] = [new Table(), new Table(), new Table()];
  const page = { start, is_last: true, at: [], turn: [], event: [], target: [], fired: [], answers: [], label: [],
    events: events.values, targets: targets.values, rows: rows.values };
  LISTS.forEach((name) => { page[name] = []; });
  records.forEach((record, place) => {
    const event = record.event;
    page.at.push(Date.parse(record.at));
    page.turn.push(record.turn);
    page.event.push(events.find(event.type));
    page.target.push(targets.find(record.target));
    page.fired.push(rows.find((record.fired ?? []).map((row) => [row.source || record.source || "", row.row])));
    page.answers.push(record.late || !Number.isInteger(event.effect) ? 0 : event.effect);
    page.label.push(describeEvent(event));
    addRare(page, place, record, event);
  });
  return page;
}

function addRare(page, place, record, event) {
  for (const ask of record.asks ?? []) {
    page.asks.push([place, ask.id ?? 0, ask.effect ?? "", Number.isInteger(ask.messages) ? ask.messages : 0, [...ask.calls ?? [], ...ask.refused ?? []]]);
  }
  (event.reply?.tool_calls ?? []).forEach((call, index) => {
    page.calls.push([place, record.calls?.[index] ?? call.id ?? "", call.name, describeArguments(call)]);
  });
  if (event.call_id) {
    const decision = event.approved === undefined ? "" : event.approved ? "approved" : "denied";
    page.outcomes.push([place, event.call_id, event.outcome || decision, event.result?.execution_time_ms ?? null]);
  }
  if (event.type === "calls_started") {
    page.started.push([place, event.calls ?? []]);
  }
  if (record.cancels?.length) {
    page.cancels.push([place, record.cancels]);
  }
  const usage = event.reply ? event.reply.usage : event.usage;
  if (usage && Object.keys(usage).length) {
    page.usage.push([place, ...["input", "output", "cached", "cost"].map((name) => usage[name] ?? null)]);
  }
  const model = event.settings ? event.settings.model : event.reply?.model;
  if (model) {
    page.models.push([place, model]);
  }
  const person = event.author || event.by;
  if (person) {
    page.people.push([place, person, event.type === "decided" ? event.signature !== undefined : null]);
  }
  if (event.type === "failed" || event.type === "agent_failed" || ["failed", "timed_out"].includes(event.outcome)) {
    page.failed.push(place);
  }
  if (record.ended) {
    page.ended.push(place);
  }
}
