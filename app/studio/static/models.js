// The page of models: asks a host which models it offers.

import { make, request } from "/static/api.js";

const show = (value) => (value === null || value === undefined ? "not said" : value === true ? "yes" : value === false
  ? "no" : typeof value === "number" ? value.toLocaleString("en") : String(value));

function showOffers(llm, models) {
  if (!models.length) {
    return make("p", { class: "empty" }, "The host offers no models. Load one there, and ask again.");
  }
  const columns = ["name", "tools", "vision", "thinking", "context"];
  const titles = ["Model", "Tools", "Vision", "Thinking", "Context, tokens"];
  const rows = models.map((model) => make("tr", {},
    ...columns.map((column, index) => make(index ? "td" : "th", { scope: index ? null : "row" }, show(model[column])))));
  return make("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": `Models that ${llm} offers` },
    make("table", { class: "wide" },
      make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))),
      make("tbody", {}, ...rows)));
}

async function ask(section, button) {
  const place = section.querySelector(".offers");
  const llm = section.dataset.llm;
  button.disabled = true;
  place.replaceChildren("Asking...");
  try {
    const answer = await request(`/api/models/${encodeURIComponent(llm)}/offered`, {});
    place.replaceChildren(make("p", {}, `${answer.count} offered`), showOffers(llm, answer.models));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem" }, error.message));
  } finally {
    button.disabled = false;
    button.focus();
  }
}

for (const section of document.querySelectorAll(".host")) {
  const button = section.querySelector(".offered");
  button?.addEventListener("click", () => ask(section, button));
}
