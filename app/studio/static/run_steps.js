// The steps of a conversation in columns, as the server sends them: a page holds 100,000 of them in this form.
//
// Pages of steps may come in any order that leaves no gap: the newest first, older ones before it, new ones after it.
// Places in the tables of a page become places in those of the whole run; steps in the lists become numbers of records.

import { conversationPath, request } from "/static/api.js";

export const FIRST_PAGE = 2000;  // steps that are there at the first paint
const PAGE = 10000;

const LISTS = ["asks", "calls", "outcomes", "started", "cancels", "usage", "models", "people", "failed", "ended"];

class Table {
  constructor() {
    this.values = [];
    this.places = new Map();
  }

  find(value) {
    const key = typeof value === "string" ? value : JSON.stringify(value);
    if (!this.places.has(key)) {
      this.places.set(key, this.values.length);
      this.values.push(value);
    }
    return this.places.get(key);
  }
}

export class Steps {
  constructor(conversation) {
    this.conversation = conversation;
    this.from = 0;         // number of the first step that is here
    this.columns = { at: [], turn: [], event: [], target: [], fired: [], answers: [], label: [] };
    this.events = new Table();
    this.targets = new Table();
    this.rows = new Table();
    this.active = [];      // by place in `targets`
    this.kinds = {};       // by name of an effect
    for (const name of LISTS) {
      this[name] = [];     // [number of the step, ...]; of `failed` and `ended` the number alone
    }
  }

  get to() {
    return this.from + this.columns.at.length;
  }

  has(seq) {
    return seq >= this.from && seq < this.to;
  }

  at(seq) { return this.columns.at[seq - this.from]; }
  turnOf(seq) { return this.columns.turn[seq - this.from]; }
  label(seq) { return this.columns.label[seq - this.from]; }
  answers(seq) { return this.columns.answers[seq - this.from]; }
  event(seq) { return this.events.values[this.columns.event[seq - this.from]]; }
  target(seq) { return this.targets.values[this.columns.target[seq - this.from]]; }
  activeStates(seq) { return this.active[this.columns.target[seq - this.from]] ?? []; }
  fired(seq) { return this.rows.values[this.columns.fired[seq - this.from]]; }

  add(page) {
    const maps = { event: page.events.map((value) => this.events.find(value)),
      target: page.targets.map((value) => this.targets.find(value)), fired: page.rows.map((value) => this.rows.find(value)) };
    page.active.forEach((states, place) => { this.active[maps.target[place]] = states; });
    Object.assign(this.kinds, page.kinds);
    const isBefore = this.columns.at.length > 0 && page.start < this.from;
    for (const [name, own] of Object.entries(this.columns)) {
      const map = maps[name];
      const values = map ? page[name].map((place) => map[place]) : page[name];
      this.columns[name] = isBefore ? values.concat(own) : own.length ? own.concat(values) : values;
    }
    for (const name of LISTS) {
      const rows = page[name].map((row) => (typeof row === "number" ? row + page.start : [row[0] + page.start, ...row.slice(1)]));
      this[name] = isBefore ? rows.concat(this[name]) : this[name].length ? this[name].concat(rows) : rows;
    }
    if (isBefore || this.columns.at.length === page.at.length) {
      this.from = page.start;
    }
  }

  // The rows of a list that belong to a step.
  find(name, seq) {
    const rows = this[name];
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle][0] < seq) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const found = [];
    for (; low < rows.length && rows[low][0] === seq; low += 1) {
      found.push(rows[low]);
    }
    return found;
  }

  readPage(start, limit = PAGE) {
    return request(conversationPath(this.conversation, `/steps?start=${start}&limit=${limit}`));
  }

  // The steps that were written since; gives whether there are any.
  async readNew() {
    let hasMore = false;
    for (;;) {
      const page = await this.readPage(this.to);
      if (page.start !== this.to || !page.at.length) {
        return hasMore;
      }
      this.add(page);
      hasMore = true;
      if (page.is_last) {
        return true;
      }
    }
  }

  // The newest steps of a run with so many records; the older ones come by `readOlder`.
  async readNewest(records) {
    this.add(await this.readPage(Math.max(0, records - FIRST_PAGE)));
    if (!this.columns.at.length && records > FIRST_PAGE) {  // a damaged record stands before them
      this.from = 0;
    }
    await this.readNew();
  }

  async readOlder() {
    const start = Math.max(0, this.from - PAGE);
    const page = await this.readPage(start, this.from - start);
    if (page.at.length < this.from - start) {
      throw new Error(`record ${start + page.at.length} cannot be read`);
    }
    this.add(page);
  }
}
