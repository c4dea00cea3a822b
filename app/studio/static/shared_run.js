// A run in one file: what the page of a run asks the server for is answered from the records in the file. Nothing is
// fetched. The hash chain is checked here: a changed byte is named with its record.

import { answerLocally } from "/static/api.js";
import { makeColumns } from "/static/shared_columns.js";

const GENESIS = "0".repeat(64);
const TAIL = ',"hash":""}'.length + 64;

function readBlock(id) {
  return document.getElementById(id).textContent.trim().replaceAll("&lt;", "<").replaceAll("&amp;", "&");
}

// Conversation -> {heading, lines}, as `export --format jsonl` writes them.
function readConversations(text) {
  const conversations = new Map();
  let current = null;
  for (const line of text.split("\n")) {
    if (line.startsWith('{"conversation":"')) {
      const heading = readHeading(line);
      current = { heading, lines: [], records: [] };
      conversations.set(heading.conversation, current);
    } else if (line && current) {
      current.lines.push(line);
      current.records.push(parseRecord(line));
    }
  }
  return conversations;
}

function readHeading(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { conversation: "?", records: 0, head: "" };
  }
}

function parseRecord(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

async function hash(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// What is wrong with a conversation, by its records: the first record that is not the one that was written.
export async function findFault({ heading, lines, records }) {
  let prev = GENESIS;
  for (let seq = 0; seq < lines.length; seq += 1) {
    const [line, record] = [lines[seq], records[seq]];
    const place = `record ${seq} of conversation ${heading.conversation}`;
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
    prev = record.hash;
  }
  if (lines.length !== heading.records || prev !== heading.head) {
    return `conversation ${heading.conversation}: ${heading.records} records were written, and ${lines.length} are here`;
  }
  return "";
}

const conversations = readConversations(readBlock("records"));
const drawn = JSON.parse(readBlock("drawn"));
const name = document.getElementById("run").dataset.conversation;

function readable(records) {
  const end = records.indexOf(null);
  return end < 0 ? records : records.slice(0, end);
}

const answers = {
  steps: (own, query) => {
    const start = Number(query.get("start") ?? 0);
    const records = readable(own.records).slice(start);
    const page = makeColumns(records, start);
    const names = [...new Set(page.asks.map((ask) => ask[2]))];
    const { active = {}, kinds = {} } = drawn[own.heading.conversation] ?? {};
    return { ...page, active: page.targets.map((label) => active[label] ?? label.split("+")),
      kinds: Object.fromEntries(names.map((effect) => [effect, kinds[effect] ?? "other"])) };
  },
  records: (own, query) => ({ records: [own.records[Number(query.get("start"))]] }),
  children: (own) => ({ children: (drawn[own.heading.conversation]?.children ?? []).filter((child) => conversations.has(child.conversation)) }),
  verify: async () => {
    const problems = (await Promise.all([...conversations.values()].map(findFault))).filter(Boolean);
    return { is_sound: !problems.length, problems };
  },
  requests: () => { throw new Error("Requests are derived from the log: `toolchart import` takes this file into one."); },
  visits: (own) => drawn[own.heading.conversation]?.visits,
  "": (own) => describe(own),
};

// Figures of a run, from its own records.
function describe(own) {
  const records = readable(own.records);
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
      models.add(event.reply.model ?? model);
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
  if (!own || !Object.hasOwn(answers, what)) {
    throw new Error("This file holds no such thing.");
  }
  return answers[what](own, new URLSearchParams(query));
});

document.getElementById("head").textContent = conversations.get(name)?.heading.head ?? "";
