// A run in one file: what the page of a run asks the server for is answered from the records in the file. Nothing is
// fetched. The hash chain is checked here: a changed byte is named with its record.

import { answerLocally } from "/static/api.js";
import { makeColumns } from "/static/shared_columns.js";

const GENESIS = "0".repeat(64);
const TAIL = ',"hash":""}'.length + 64;

// A browser saves a page as it was drawn: nothing of that counts once the file is opened again.
document.getElementById("verified").textContent = "checking...";
document.getElementById("verified").className = "badge";
document.getElementById("damage").textContent = "";
document.getElementById("trace").replaceChildren();

function readBlock(id) {
  return document.getElementById(id).textContent.trim().replaceAll("&lt;", "<").replaceAll("&amp;", "&");
}

const BEGINNING = '{"conversation":"';

// Conversation -> {heading, lines, records}, as `export --format jsonl` writes them, and what is wrong with the headings.
function readConversations(text) {
  const groups = [];
  const faults = [];
  text.split("\n").forEach((line, index) => {
    const current = groups.at(-1);
    const isHeading = line.startsWith(BEGINNING);
    if (!isHeading && current && (line.startsWith('{"seq":') || current.lines.length < current.heading?.records)) {
      current.lines.push(line);
      current.records.push(parseJson(line));
      return;
    }
    const heading = isHeading ? readHeading(line) : null;
    if (!heading) {
      faults.push(`line ${index + 1} of the records: it is no heading of a conversation, as one was expected here`);
    }
    groups.push({ heading, lines: [], records: [] });
  });
  const found = new Map();
  for (const group of groups) {
    // Without its heading a conversation is shown by the name in its first record.
    const name = group.heading?.conversation ?? group.records[0]?.event?.conversation;
    if (found.has(name) && group.heading) {
      faults.push(`conversation ${name}: the file has it twice`);
    } else if (typeof name === "string" && !found.has(name)) {
      found.set(name, { ...group, name });
    }
  }
  return { found, faults };
}

function readHeading(line) {
  const { conversation, records, head } = parseJson(line) ?? {};
  return JSON.stringify({ conversation, records, head }) === line ? { conversation, records, head } : null;
}

function parseJson(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

async function hash(text) {
  if (!globalThis.crypto?.subtle) {
    throw new Error("hashes not checked: this browser does that only for a page from a disk or over HTTPS");
  }
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// What is wrong with a conversation, by its records: the first record that is not the one that was written.
export async function findFault({ name, heading, lines, records }) {
  let prev = GENESIS;
  for (let seq = 0; seq < lines.length; seq += 1) {
    const [line, record] = [lines[seq], records[seq]];
    const place = `record ${seq} of conversation ${name}`;
    if (!record) {
      return `${place}: it is not JSON`;
    }
    if (record.seq !== seq) {
      return `${place}: it says that it is record ${record.seq}`;
    }
    if (await hash(`${line.slice(0, -TAIL)}}`) !== line.slice(-66, -2) || record.hash !== line.slice(-66, -2)) {
      return `${place}: its hash does not match its content`;
    }
    if (record.prev !== prev) {
      return `${place}: it does not follow the record before it`;
    }
    if (!seq && record.event?.conversation !== name) {
      return `${place}: it belongs to another conversation`;
    }
    prev = record.hash;
  }
  if (heading && lines.length !== heading.records) {
    return `conversation ${name}: ${heading.records} records were written, and ${lines.length} are here`;
  }
  return heading && prev !== heading.head ? `conversation ${name}: its newest record is not the one that its heading names` : "";
}

const { found: conversations, faults } = readConversations(readBlock("records"));
const drawnText = readBlock("drawn");
const drawn = parseJson(drawnText) ?? {};
const name = document.getElementById("run").dataset.conversation;

// What is wrong with what the server has written beside the records.
async function findDrawnFault() {
  const isSame = await hash(drawnText) === document.getElementById("drawn").dataset.digest;
  return isSame ? "" : "what is written beside the records was changed: visits, states and agents";
}

// The records up to the first that cannot be shown.
function readable({ records }) {
  const canShow = (record) => {
    try {
      return makeColumns([record]).at.length > 0;
    } catch {
      return false;
    }
  };
  const end = records.findIndex((record) => !canShow(record));
  return end < 0 ? records : records.slice(0, end);
}

const answers = {
  steps: (own, query) => {
    const start = Number(query.get("start") ?? 0);
    const records = readable(own).slice(start);
    const page = makeColumns(records, start);
    const names = [...new Set(page.asks.map((ask) => ask[2]))];
    const { active = {}, kinds = {} } = drawn[own.name] ?? {};
    return { ...page, active: page.targets.map((label) => active[label] ?? label.split("+")),
      kinds: Object.fromEntries(names.map((effect) => [effect, kinds[effect] ?? "other"])) };
  },
  records: (own, query) => ({ records: [own.records[Number(query.get("start"))]] }),
  children: (own) => ({ children: (drawn[own.name]?.children ?? []).filter((child) => conversations.has(child.conversation)) }),
  verify: async () => {
    const problems = [...faults, ...await Promise.all([...conversations.values()].map(findFault)), await findDrawnFault()].filter(Boolean);
    if (!conversations.has(name)) {
      problems.push(`conversation ${name}: it is not in the file`);
    }
    return { is_sound: !problems.length, problems };
  },
  requests: () => { throw new Error("Requests are derived from the log: `toolchart import` takes this file into one."); },
  visits: (own) => drawn[own.name]?.visits,
  "": (own) => describe(own),
};

// Figures of a run, from its own records.
function describe(own) {
  const records = readable(own);
  const usage = {};
  const models = new Set();
  let [seconds, model] = [0, ""];
  records.forEach((record, index) => {
    const event = record.event;
    model = event.settings?.model ?? model;
    const paid = event.reply ? event.reply.usage : event.usage;
    for (const key of ["input", "output", "cached", "cost"]) {
      if (typeof paid?.[key] === "number") {
        usage[key] = (usage[key] ?? 0) + paid[key];
      }
    }
    if (event.type === "replied") {
      models.add(event.reply?.model ?? model);
    }
    if (index && event.type !== "turn_started" && record.turn) {
      seconds += (Date.parse(record.at) - Date.parse(records[index - 1].at)) / 1000;
    }
  });
  return { usage, seconds, models: [...models], state: records.at(-1)?.target ?? "", is_running: false, result: null };
}

answerLocally((path) => {
  const [, conversation, what, query] = /^\/api\/conversations\/([^/?]+)\/?([^?]*)\??(.*)$/.exec(path) ?? [];
  const own = conversations.get(decodeURIComponent(conversation ?? ""));
  if (!Object.hasOwn(answers, what) || (!own && what !== "verify")) {
    throw new Error("This file holds no such thing.");
  }
  return answers[what](own, new URLSearchParams(query));
});

document.getElementById("head").textContent = conversations.get(name)?.heading?.head ?? "";
