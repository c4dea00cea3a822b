// The timeline of a run: one line for each record around the one that is shown. Idle time takes one line however
// long it was, and what a sub-agent did is folded under the record that asked for it.

import { conversationPath, make, nameDecider, request } from "/static/api.js";

const WINDOW = 20;     // records before and after the one that is shown
const IDLE_S = 60;     // from here on a gap is a line of its own
const CHILD_ROWS = 200;

export function formatSeconds(seconds) {
  if (seconds < 1) {
    return `${Math.round(seconds * 1000)} ms`;
  }
  if (seconds < 90) {
    return `${seconds.toFixed(1)} s`;
  }
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} days`;
}

export function nameStep(steps, index) {
  const person = steps.by[index] ? ` by ${nameDecider(steps.by[index], steps.is_signed[index])}` : "";
  return `${steps.seq[index]} ${steps.event[index]}${person}${steps.target[index] ? ` → ${steps.target[index]}` : ""}`;
}

function findGap(steps, index) {
  return index ? Math.max(0, (Date.parse(steps.at[index]) - Date.parse(steps.at[index - 1])) / 1000) : 0;
}

function showIdle(gap) {
  return make("li", { class: "idle" }, `idle for ${formatSeconds(gap)}`);
}

function showTurn(turn) {
  return make("li", { class: "turn" }, `Turn ${turn}`);
}

// -- sub-agents ------------------------------------------------------------------------------------

const folds = new Map(); // conversation -> its element, which keeps whether it is open

export function indexChildren(rows) {
  const children = new Map();
  for (const row of rows) {
    children.set(row.effect, [...children.get(row.effect) ?? [], row]);
  }
  return children;
}

export async function readChildren(conversation) {
  return indexChildren((await request(conversationPath(conversation, "/children"))).children);
}

function makeFold(child) {
  const place = make("ol", { class: "plain" });
  const status = make("span", { class: "badge" });
  const count = make("span", { class: "hint" });
  const fold = make("details", { class: "child", "data-child": child.conversation },
    make("summary", {}, "sub-agent ", make("span", { class: "name" }, child.conversation), " ", status, " ", count),
    make("p", {}, make("a", { href: `/conversations/${encodeURIComponent(child.conversation)}` }, "Open its run")), place);
  let shownRecords = -1;
  const fill = async () => {
    if (fold.open && shownRecords !== fold.records) {
      shownRecords = fold.records;
      place.replaceChildren(...await listChildSteps(child.conversation));
    }
  };
  fold.update = (row) => {
    fold.records = row.records;
    status.textContent = row.problem ? "damaged" : row.state;
    status.className = `badge ${row.problem ? "bad" : ""}`;
    count.textContent = row.records === 1 ? "1 record" : `${row.records} records`;
    fill().catch((error) => place.replaceChildren(make("li", { class: "problem" }, error.message)));
  };
  fold.addEventListener("toggle", () => fold.update(fold.row));
  return fold;
}

async function listChildSteps(conversation) {
  const [steps, children] = await Promise.all([
    request(conversationPath(conversation, "/steps")), readChildren(conversation)]);
  const rows = [];
  for (let index = 0; index < Math.min(steps.seq.length, CHILD_ROWS); index += 1) {
    const gap = findGap(steps, index);
    if (gap >= IDLE_S) {
      rows.push(showIdle(gap));
    }
    rows.push(make("li", {}, nameStep(steps, index), make("span", { class: "hint" }, ` +${formatSeconds(gap)}`)));
    rows.push(...listFolds(steps, index, children).map((fold) => make("li", {}, fold)));
  }
  if (steps.seq.length > CHILD_ROWS) {
    rows.push(make("li", { class: "hint" }, `and ${steps.seq.length - CHILD_ROWS} more`));
  }
  return rows;
}

function listFolds(steps, index, children) {
  const asked = steps.asks[index].flatMap(([id]) => children.get(id) ?? []);
  return asked.map((row) => {
    const fold = folds.get(row.conversation) ?? makeFold(row);
    folds.set(row.conversation, fold);
    if (fold.row !== row) {
      fold.row = row;
      fold.update(row);
    }
    return fold;
  });
}

// -- the list --------------------------------------------------------------------------------------

export function showTimeline(list, steps, index, children, show) {
  const hadFocus = list.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
  const from = Math.max(0, index - WINDOW);
  const to = Math.min(steps.seq.length, index + WINDOW + 1);
  const rows = [];
  for (let row = from; row < to; row += 1) {
    const gap = findGap(steps, row);
    const isIdle = gap >= IDLE_S;
    if (isIdle) {
      rows.push(showIdle(gap));
    }
    if (steps.turn[row] && (row === from || steps.turn[row] !== steps.turn[row - 1])) {
      rows.push(showTurn(steps.turn[row]));
    }
    rows.push(make("li", { "aria-current": row === index ? "step" : null },
      make("button", { type: "button", class: "quiet", onclick: () => show(row) }, nameStep(steps, row)),
      isIdle ? null : make("span", { class: "hint" }, ` +${formatSeconds(gap)}`),
      ...listFolds(steps, row, children)));
  }
  list.replaceChildren(...rows);
  const current = list.querySelector("[aria-current]");
  if (current) {
    list.scrollTop = current.offsetTop - list.clientHeight / 2;
    if (hadFocus) {
      current.querySelector("button").focus({ preventScroll: true });
    }
  }
}
