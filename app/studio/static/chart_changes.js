// What differs between two charts: states and rows that are new, gone or changed, as keys of a drawing and in words.
// A chart is what a check says of its `states`: {NAME: {own, rows: [{event, text, own}]}}.

export function compareCharts(before, after) {
  const found = {
    states: { added: [], removed: [], changed: [] },
    rows: { added: [], removed: [], changed: [] },
    before: { removed: [], changed: [] },
    after: { added: [], changed: [] },
  };
  for (const name of Object.keys(after)) {
    if (!before[name]) {
      found.states.added.push(name);
      found.after.added.push(`state ${name}`, ...listRowKeys(name, after[name].rows));
    }
  }
  for (const [name, old] of Object.entries(before)) {
    if (!after[name]) {
      found.states.removed.push(name);
      found.before.removed.push(`state ${name}`, ...listRowKeys(name, old.rows));
    } else {
      compareState(found, name, old, after[name]);
    }
  }
  return found;
}

function listRowKeys(state, rows) {
  return rows.map((_, index) => rowKey(state, index));
}

function rowKey(state, index) {
  return `row ${state} ${index}`;
}

function compareState(found, name, old, fresh) {
  if (old.own !== fresh.own) {
    found.states.changed.push(name);
    found.before.changed.push(`state ${name}`);
    found.after.changed.push(`state ${name}`);
  }
  const { gone, come } = listUnequalRows(old.rows, fresh.rows);
  for (const index of come) {
    const row = fresh.rows[index];
    // A row for the same event that is gone is this row as it was.
    const was = gone.findIndex((other) => old.rows[other].event === row.event);
    if (was < 0) {
      found.rows.added.push(`${name}: ${row.text}`);
      found.after.added.push(rowKey(name, index));
      continue;
    }
    const [other] = gone.splice(was, 1);
    const before = old.rows[other].own === row.own ? "at another place" : `before: ${old.rows[other].text}`;
    found.rows.changed.push(`${name}: ${row.text} (${before})`);
    found.before.changed.push(rowKey(name, other));
    found.after.changed.push(rowKey(name, index));
  }
  for (const index of gone) {
    found.rows.removed.push(`${name}: ${old.rows[index].text}`);
    found.before.removed.push(rowKey(name, index));
  }
}

// The rows that are in no longest common sequence of both, because the first row that is enabled wins.
function listUnequalRows(old, fresh) {
  const lengths = Array.from({ length: old.length + 1 }, () => new Array(fresh.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = old[i].own === fresh[j].own ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const gone = [], come = [];
  let i = 0, j = 0;
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i].own === fresh[j].own) {
      i += 1;
      j += 1;
    } else if (j >= fresh.length || (i < old.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      gone.push(i);
      i += 1;
    } else {
      come.push(j);
      j += 1;
    }
  }
  return { gone, come };
}

const SENTENCES = [
  ["states", "added", "New states, drawn blue", ", "],
  ["states", "removed", "States that are gone, drawn dashed", ", "],
  ["states", "changed", "States that do something else, drawn on yellow", ", "],
  ["rows", "added", "New transitions, drawn blue", "; "],
  ["rows", "removed", "Transitions that are gone, drawn dashed", "; "],
  ["rows", "changed", "Changed transitions, drawn thick", "; "],
];

export function describeChanges(found) {
  const sentences = SENTENCES.filter(([kind, mark]) => found[kind][mark].length)
    .map(([kind, mark, title, comma]) => `${title}: ${found[kind][mark].join(comma)}.`);
  return sentences.join(" ") || "Before and after have the same states and transitions.";
}
