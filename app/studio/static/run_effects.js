// Which effects were open after a step: asked for, and not answered or cancelled yet.
//
// The log says which effect a record asks for, answers or cancels. An effect with several items is answered several
// times, so it is open until the last answer that names it. What is still open at the end, the server says.

export function findEnds(steps, openIds) {
  const ends = new Map(); // effect id -> index of the step that closed it
  const asked = [];
  for (let index = 0; index < steps.seq.length; index += 1) {
    if (steps.answers[index]) {
      ends.set(steps.answers[index], index);
    }
    for (const id of steps.cancels[index]) {
      ends.set(id, index);
    }
    for (const [id, name] of steps.asks[index]) {
      asked.push({ id, name, index });
    }
  }
  for (const id of openIds) {
    ends.set(id, Infinity);
  }
  return asked.map((row) => ({ ...row, end: ends.get(row.id) ?? row.index }));
}

export function listOpen(effects, index) {
  return effects.filter((row) => row.index <= index && index < row.end);
}
