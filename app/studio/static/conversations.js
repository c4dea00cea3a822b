// Keeps the list of conversations up to date: states and records of rows, and a note about new ones.

import { request } from "/static/api.js";

const POLL_MS = 3000;
const table = document.getElementById("conversations");

async function update() {
  const query = new URLSearchParams(location.search);
  query.delete("figures");
  const page = await request(`/api/conversations?${query}`);
  const known = new Map([...table.tBodies[0].rows].map((row) => [row.dataset.conversation, row]));
  let fresh = 0;
  for (const item of page.conversations) {
    const row = known.get(item.conversation);
    if (!row) {
      fresh += 1;
    } else if (row.querySelector(".records")?.textContent !== String(item.records)) {
      row.querySelector(".records").textContent = item.records;
      row.querySelector(".state").textContent = item.state;
    }
  }
  if (fresh) {
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = `${fresh} new: show`;
    document.getElementById("news").replaceChildren(link);
  }
}

if (table && !new URLSearchParams(location.search).has("before")) {
  setInterval(() => {
    if (!document.hidden) {
      update().catch(() => {});
    }
  }, POLL_MS);
}
