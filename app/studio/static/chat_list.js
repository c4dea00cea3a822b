// The newest conversations, beside the chat: what each began with, and whether it waits for a person or has failed.

import { make, request } from "/static/api.js";
import { lookForWaiting } from "/static/nav.js";

const MOST = 50;
const POLL_MS = 15000;
const list = document.getElementById("conversations");
let shown = "";

function nameTime(text) {
  const time = new Date(text);
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : time.toLocaleDateString([], { day: "numeric", month: "short" });
}

function showRow(row, current, waiting) {
  const id = row.conversation;
  const mark = row.damaged ? ["bad", "damaged"] : waiting.has(id) ? ["person", "waits"] : row.state === "error" ? ["bad", "failed"] : null;
  return make("li", {}, make("a", { href: `/${row.damaged ? "conversations" : "chat"}/${encodeURIComponent(id)}`,
    "aria-current": id === current ? "page" : null, title: id },
  make("span", { class: "title" }, row.message || id),
  mark ? make("span", { class: `badge ${mark[0]}` }, mark[1])
    : make("span", { class: "when" }, row.newest_at ? nameTime(row.newest_at) : "")));
}

export async function showConversations(current) {
  try {
    const [page, waiting] = await Promise.all([request(`/api/conversations?limit=${MOST}`), lookForWaiting()]);
    const state = JSON.stringify([page.conversations, waiting, current]);
    if (state !== shown) {
      shown = state;
      const focused = document.activeElement?.closest("#conversations a")?.getAttribute("href");
      list.replaceChildren(...page.conversations.map((row) => showRow(row, current, new Set(waiting))));
      [...list.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    }
    return page.conversations.find((row) => row.conversation === current);
  } catch {
    return undefined; // the chat itself says what is wrong
  }
}

export function keepConversations(findCurrent) {
  setInterval(() => {
    if (!document.hidden) {
      showConversations(findCurrent());
    }
  }, POLL_MS);
  const button = document.getElementById("show-history");
  button.addEventListener("click", () => {
    const isOpen = document.getElementById("history").classList.toggle("open");
    button.setAttribute("aria-expanded", String(isOpen));
  });
}
