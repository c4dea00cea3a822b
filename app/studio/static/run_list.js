// The list of the trace: a tree and a waterfall in one. However many rows there are, elements are made for those alone
// that are in sight, and used again when the list is scrolled.

import { make } from "/static/api.js";
import { formatCost, formatCount, formatSeconds, placeIn } from "/static/run_trace.js";

const MARGIN = 8;  // rows above and below those in sight

export class TraceList {
  constructor(place, { select, unfold }) {
    this.place = place;
    this.height = parseFloat(getComputedStyle(place).getPropertyValue("--row")) || 26;
    this.spacer = make("div", { class: "spacer", role: "presentation" });
    this.place.append(this.spacer);
    this.pool = [];
    this.rows = [];
    this.chosen = null;
    this.marked = null;       // a state: rows that ended there are marked
    this.place.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    new ResizeObserver(() => this.drawSoon()).observe(place);
    this.spacer.addEventListener("click", (event) => {
      const line = event.target.closest(".line");
      if (line) {
        const row = this.rows[line.index];
        select(row, event.target.closest(".fold") !== null);
        if (event.target.closest(".fold")) {
          unfold(row);
        }
      }
    });
  }

  setRows(rows, totals) {
    this.rows = rows;
    this.totals = totals;
    this.spacer.style.height = `${rows.length * this.height}px`;
    this.draw();
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    const first = Math.max(0, Math.floor(this.place.scrollTop / this.height) - MARGIN);
    const count = Math.min(this.rows.length - first, Math.ceil(this.place.clientHeight / this.height) + 2 * MARGIN);
    while (this.pool.length < count) {
      this.pool.push(makeLine());
      this.spacer.append(this.pool.at(-1));
    }
    this.pool.forEach((line, place) => {
      line.hidden = place >= count;
      if (place < count) {
        this.fill(line, first + place);
      }
    });
    const chosen = this.pool.find((line) => !line.hidden && this.rows[line.index] === this.chosen);
    if (chosen) {
      this.place.setAttribute("aria-activedescendant", chosen.id);
    } else {
      this.place.removeAttribute("aria-activedescendant");
    }
  }

  fill(line, index) {
    const row = this.rows[index];
    line.index = index;
    line.id = `row-${index}`;
    line.style.transform = `translateY(${index * this.height}px)`;
    const kind = row.isFailed ? "failed" : row.kind;
    line.className = `line kind-${row.kind} ${row.kind === "turn" ? "turn" : ""} ${row.isFailed ? "failed" : ""} ` +
      `${row === this.chosen ? "chosen" : ""} ${this.marked && row.steps.activeStates(row.seq).includes(this.marked) ? "marked" : ""}`;
    const { seq, what, fold, dot, name, detail, bar, tokens, cost, time } = line.parts;
    line.setAttribute("aria-level", Math.min(row.depth, 6) + 1);
    line.setAttribute("aria-selected", row === this.chosen);
    line.setAttribute("aria-setsize", this.rows.length);
    line.setAttribute("aria-posinset", index + 1);
    const canFold = row.kind === "turn" || row.links;
    if (canFold) {
      line.setAttribute("aria-expanded", !row.isFolded);
    } else {
      line.removeAttribute("aria-expanded");
    }
    setText(seq, row.isLink ? "" : String(row.seq));
    what.className = `what depth-${Math.min(row.depth, 6)}`;
    setText(fold, canFold ? (row.isFolded ? "▸" : "▾") : "");
    dot.hidden = row.kind === "turn" || row.kind === "quiet";
    setText(name, row.name);
    setText(detail, row.detail || (row.isOpen && row.kind !== "turn" ? "open" : ""));
    what.title = `${row.name} ${row.detail}`;
    setText(tokens, row.input === null && row.output === null ? "" : formatCount((row.input ?? 0) + (row.output ?? 0)));
    setText(cost, formatCost(row.cost));
    const seconds = ((row.to ?? row.from) - row.from) / 1000;
    setText(time, row.kind === "quiet" ? "" : row.isOpen && row.kind !== "turn" ? "open" : formatSeconds(seconds));
    this.fillBar(bar, row, kind);
  }

  fillBar(bar, row, kind) {
    let from = 0;
    let to = 0;
    if (row.kind === "turn" && row.length && !row.scale) {
      from = row.offset / this.totals.total;
      to = (row.offset + row.length) / this.totals.total;
    } else if (row.scale?.length && row.kind !== "quiet") {
      from = placeIn(row.scale, row.from);
      to = row.to === null ? 1 : placeIn(row.scale, row.to);
    }
    bar.hidden = row.kind === "quiet";
    bar.className = `fill ${kind === "failed" ? "bad" : ""} ${row.isOpen ? "open" : ""}`;
    bar.style.left = `${(from * 100).toFixed(2)}%`;
    bar.style.width = `${Math.max((to - from) * 100, 0).toFixed(2)}%`;
  }

  choose(row) {
    this.chosen = row;
    const index = this.rows.indexOf(row);
    if (index >= 0) {
      const top = index * this.height;
      const place = this.place;
      if (top < place.scrollTop + this.height) {
        place.scrollTop = Math.max(0, top - this.height);
      } else if (top + 2 * this.height > place.scrollTop + place.clientHeight) {
        place.scrollTop = top + 2 * this.height - place.clientHeight;
      }
    }
    this.draw();
  }
}

function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

function makeLine() {
  const parts = { seq: make("span", { class: "seq" }), fold: make("span", { class: "fold", "aria-hidden": "true" }),
    dot: make("span", { class: "dot" }), name: make("span", { class: "name-of" }), detail: make("code", {}),
    bar: make("span", { class: "fill" }), tokens: make("span", { class: "figure tokens" }),
    cost: make("span", { class: "figure cost" }), time: make("span", { class: "figure time" }) };
  parts.what = make("span", { class: "what" }, parts.fold, parts.dot, parts.name, parts.detail);
  const line = make("div", { class: "line", role: "treeitem" }, parts.seq, parts.what,
    make("span", { class: "track", "aria-hidden": "true" }, parts.bar), parts.tokens, parts.cost, parts.time);
  line.parts = parts;
  return line;
}

// -- the whole run in one strip ----------------------------------------------------------------------

const LANES = { model: 4, tool: 13, child: 22, person: 31, timer: 31 };

export class Overview {
  constructor(canvas, goTo) {
    this.canvas = canvas;
    this.turns = [];
    canvas.addEventListener("click", (event) => {
      const place = event.offsetX / canvas.clientWidth;
      const turn = this.turns.find((item) => (item.offset + item.length) / this.turns.total >= place);
      if (turn) {
        const share = (place * this.turns.total - turn.offset) / turn.length;
        goTo(turn, share);
      }
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  setTrace(trace) {
    this.trace = trace;
    this.turns = trace.turns;
    this.draw();
  }

  mark(row) {
    this.row = row;
    this.show();
  }

  draw() {
    if (!this.trace) {
      return;
    }
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    // The run is drawn once, beside the page; what is chosen is marked on a copy of it, however long the run is.
    this.drawn ??= document.createElement("canvas");
    for (const canvas of [this.canvas, this.drawn]) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
    }
    const context = this.drawn.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    const colours = Object.fromEntries(Object.keys(LANES).map((kind) => [kind, resolveColour(style, kind)]));
    const bad = resolveColour(style, "bad");
    context.fillStyle = resolveColour(style, "line");
    for (const turn of this.turns) {
      context.fillRect(Math.round((turn.offset / this.turns.total) * width), 0, 1, height);
    }
    for (const row of this.trace.rows) {
      const lane = LANES[row.kind];
      if (lane !== undefined && row.turn?.length) {
        const [from, to] = this.place(row);
        context.fillStyle = row.isFailed ? bad : colours[row.kind];
        context.fillRect(from * width, lane, Math.max(1, (to - from) * width), 6);
      }
    }
    this.show();
  }

  show() {
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!this.drawn?.width || !width) {
      return;
    }
    const context = this.canvas.getContext("2d");
    context.resetTransform();
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.drawn, 0, 0);
    const ratio = this.canvas.width / width;
    context.scale(ratio, ratio);
    this.drawMark(context, getComputedStyle(this.canvas), width, height);
  }

  drawMark(context, style, width, height) {
    const row = this.row?.kind === "turn" || this.row?.turn ? this.row : null;
    if (row) {
      const [from, to] = row.kind === "turn" ? [row.offset / this.turns.total, (row.offset + row.length) / this.turns.total] : this.place(row);
      context.strokeStyle = resolveColour(style, "accent");
      context.lineWidth = 1.5;
      context.strokeRect(from * width - 1, 1, Math.max(3, (to - from) * width + 2), height - 2);
    }
  }

  place(row) {
    const turn = row.scale ?? row.turn;
    const place = (time) => (turn.offset + placeIn(turn, time) * turn.length) / this.turns.total;
    return [place(row.from), place(row.to ?? turn.to)];
  }
}

function resolveColour(style, kind) {
  return style.getPropertyValue(`--drawn-${kind}`);
}
