// The heat of a run: how often each state was visited, or how long the run was in it, as five shades.

import { conversationPath, make, request } from "/static/api.js";
import { formatSeconds } from "/static/run_timeline.js";

const SHADES = 5;
const CLASSES = Array.from({ length: SHADES }, (_, index) => `heat-${index + 1}`);
const LEGENDS = {
  visits: "The darker a state, the more often it was entered in the whole run.",
  seconds: "The darker a state, the longer the run was in it. Time between turns does not count.",
};

export function findShade(value, most) {
  return value > 0 && most > 0 ? Math.max(1, Math.ceil((SHADES * value) / most)) : 0;
}

export function clearHeat(elements) {
  for (const group of elements.values()) {
    for (const element of group) {
      element.classList.remove(...CLASSES);
    }
  }
  document.getElementById("heat").hidden = true;
}

export async function showHeat(conversation, elements, kind) {
  const counts = await request(conversationPath(conversation, "/visits"));
  const leaves = Object.entries(counts[kind]);
  const most = Math.max(0, ...leaves.map(([, value]) => value));
  clearHeat(elements);
  for (const [state, value] of leaves) {
    const shade = findShade(value, most);
    for (const element of shade ? elements.get(`state ${state}`) ?? [] : []) {
      element.classList.add(`heat-${shade}`);
    }
  }
  const mostTaken = Math.max(0, ...counts.edges.map(([, , count]) => count));
  for (const [source, row, count] of kind === "visits" ? counts.edges : []) {
    for (const element of elements.get(`row ${source} ${row}`) ?? []) {
      element.classList.add(`heat-${findShade(count, mostTaken)}`);
    }
  }
  showTable(counts, kind);
}

function showTable(counts, kind) {
  const names = Object.keys(counts.visits).sort((a, b) => (counts[kind][b] ?? 0) - (counts[kind][a] ?? 0));
  document.querySelector("#heat tbody").replaceChildren(...names.map((name) => make("tr", {},
    make("th", { scope: "row" }, name), make("td", { class: "number" }, counts.visits[name]),
    make("td", { class: "number" }, formatSeconds(counts.seconds[name] ?? 0)))));
  document.getElementById("heat-legend").textContent = LEGENDS[kind];
  document.getElementById("heat").hidden = false;
}
