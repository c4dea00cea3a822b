// The page of a comparison: one pair of steps is chosen, its differing values stand below it, and keys lead from
// difference to difference. The address names the pair.

import { offerKeys } from "/static/keys.js";

const grid = document.getElementById("pairs");
const pairs = [...document.querySelectorAll(".pair")];
const different = pairs.filter((pair) => !pair.classList.contains("equal"));
const common = document.querySelector(".common");
let chosen = null;

function valuesOf(pair) {
  return pair.nextElementSibling?.classList.contains("values") ? pair.nextElementSibling : null;
}

function choose(pair, isOpen = true) {
  for (const other of new Set([chosen ?? pairs[0], pair])) {
    other.setAttribute("aria-selected", other === pair);
    const values = valuesOf(other);
    if (values) {
      values.hidden = other !== pair || !isOpen;
    }
  }
  chosen = pair;
  grid.setAttribute("aria-activedescendant", pair.id);
}

function goTo(pair) {
  if (pair) {
    choose(pair);
    grid.focus({ preventScroll: true });
    const values = valuesOf(pair);
    values?.scrollIntoView({ block: "nearest" });
    pair.scrollIntoView({ block: "nearest" });
    history.replaceState(null, "", `#${pair.id}`);
  }
}

// The next difference, or the one before; after the last comes the first.
function move(isForward) {
  const at = pairs.indexOf(chosen);
  const places = different.map((pair) => pairs.indexOf(pair));
  const next = isForward ? places.find((place) => place > at) : places.findLast((place) => place < at);
  goTo(pairs[next ?? (isForward ? places[0] : places.at(-1))]);
}

function step(by) {
  goTo(pairs[Math.min(pairs.length - 1, Math.max(0, pairs.indexOf(chosen) + by))]);
}

// The step of one side in its run; of the other side where this one has none.
function open(side) {
  const links = [...chosen?.querySelectorAll(".cell") ?? []].map((cell) => cell.querySelector("a.seq"));
  const link = links[side] ?? links[1 - side];
  if (link) {
    location.assign(link.href);
  }
}

grid?.addEventListener("click", (event) => {
  const pair = event.target.closest(".pair");
  if (pair && !event.target.closest("a")) {
    const wasOpen = pair === chosen && valuesOf(pair)?.hidden === false;
    choose(pair, !wasOpen);
    history.replaceState(null, "", `#${pair.id}`);
  }
});

offerKeys([
  [["j", "n"], "next difference", () => move(true), { repeats: true }],
  [["k", "N"], "previous difference", () => move(false), { repeats: true }],
  [["ArrowDown"], "next row", () => step(1), { repeats: true }],
  [["ArrowUp"], "previous row", () => step(-1), { repeats: true }],
  [["Home"], "first row", () => goTo(pairs[0])],
  [["End"], "last row", () => goTo(pairs.at(-1))],
  [["Enter", "a"], "open the step in the run A, or in B where A has none", () => open(0)],
  [["b"], "open the step in the run B, or in A where B has none", () => open(1)],
  [["o"], "show or hide the steps in common", () => { if (common) { common.open = !common.open; } }],
]);
if (pairs.length) {
  choose(pairs.find((pair) => `#${pair.id}` === location.hash) ?? pairs[0]);
  if (location.hash) {
    chosen.scrollIntoView({ block: "nearest" });
  }
}
document.getElementById("comparison").dataset.ready = "";
