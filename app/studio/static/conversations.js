// The list of runs: the search answers while somebody types, and what goes on is kept up to date. The server makes the rows;
// a list that it sends is put in place of the one that is shown.

import { offerKeys } from "/static/keys.js";

const POLL_MS = 3000;

const form = document.getElementById("search");
const words = document.getElementById("search-words");
const list = document.getElementById("list");
let asked = 0;
let isSearching = false;
let isWanted = false;       // something was typed since the server was asked
let chosen = "";

const rows = () => [...list.querySelectorAll("tbody tr")];

function findQuery() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value) {
      query.append(name, value);
    }
  }
  return query;
}

// Another list of the server in place of this one; an answer that was overtaken is dropped.
async function show(query) {
  const number = ++asked;
  const address = `/conversations${query.size ? `?${query}` : ""}`;
  const response = await fetch(address, { headers: { Accept: "text/html" } });
  const text = await response.text();
  if (number !== asked || !response.ok) {
    return;
  }
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("list");
  if (fresh && fresh.textContent !== list.textContent) {
    list.replaceChildren(...document.importNode(fresh, true).childNodes);
    choose(chosen);
  }
  if (location.pathname + location.search !== address) {
    history.replaceState(null, "", address);
  }
}

// Asks at once, and once more for all that was typed until the answer came.
async function search() {
  isWanted = true;
  if (isSearching) {
    return;
  }
  isSearching = true;
  while (isWanted) {
    isWanted = false;
    await show(findQuery()).catch(() => {});
  }
  isSearching = false;
}

form.addEventListener("input", search);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});

// -- keys --------------------------------------------------------------------------------------------

function choose(name) {
  chosen = name;
  for (const row of rows()) {
    row.classList.toggle("chosen", row.dataset.conversation === name);
  }
}

function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.dataset.conversation === chosen);
  const row = all[Math.min(all.length - 1, Math.max(0, at + by))];
  if (row) {
    choose(row.dataset.conversation);
    row.querySelector("a").focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
}

offerKeys([
  [["j", "ArrowDown"], "next run; from the search, the first", () => move(1), { repeats: true }],
  [["k", "ArrowUp"], "the run before", () => move(-1), { repeats: true }],
  [["Enter"], "open it"],
  [["/"], "search", () => words.focus()],
]);
words.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") {
    event.preventDefault();
    move(1);
  }
});

setInterval(() => {
  if (!document.hidden && !new URLSearchParams(location.search).has("before") && document.activeElement !== words) {
    show(findQuery()).catch(() => {});
  }
}, POLL_MS);
