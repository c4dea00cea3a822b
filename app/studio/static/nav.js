// The number of calls and questions that wait for a person, in the navigation of every page.

const POLL_MS = 10000;
const MOST = 99;
const badge = document.getElementById("nav-waiting");
const hasOwnList = document.getElementById("approvals") !== null; // that page knows the number first
let isBusy = false;

export function showWaiting(count) {
  const text = count > MOST ? `${MOST}+` : count ? String(count) : "";
  if (badge && badge.textContent !== text) {
    badge.textContent = text;
  }
}

// The conversations in which something waits; undefined where the server cannot be asked. A page that somebody works on
// is not left for a session that has ended, as `request` would do.
export async function lookForWaiting() {
  try {
    const response = await fetch("/api/approvals?count=true");
    if (!response.ok) {
      return undefined;
    }
    const { count, conversations } = await response.json();
    showWaiting(count);
    return conversations;
  } catch {
    return undefined;
  }
}

async function update() {
  if (!document.hidden && !isBusy) {
    isBusy = true;
    await lookForWaiting();
    isBusy = false;
  }
}

if (badge && !hasOwnList) {
  update();
  setInterval(update, POLL_MS);
  document.addEventListener("visibilitychange", update);
}
