// The page of tools: the test bench, and a form for each tool.

import { make, request, showJson } from "/static/api.js";
import { makeSchemaForm } from "/static/schema_form.js";

const bench = document.getElementById("bench");

function showBadge() {
  const option = document.getElementById("bench-model").selectedOptions[0];
  const status = option?.dataset.status ? JSON.parse(option.dataset.status) : null;
  const badge = document.getElementById("bench-badge");
  const isTested = status && status.totalTests > 0;
  badge.textContent = option?.dataset.tools === "no" ? "no tools" : isTested && status.validated ? "validated" : "not validated";
  badge.className = `badge ${isTested && status.validated ? "good" : "warn"}`;
  badge.title = isTested
    ? `${status.successCount} of ${status.totalTests} tests succeeded; last test ${status.lastTestedAt}`
    : "not tested yet";
}

function showOutcome(place, answer) {
  const calls = answer.tool_calls.map((call) => make("li", { class: "card call" },
    make("h4", {}, call.tool, " ",
      make("span", { class: `badge ${call.result.success ? "" : "bad"}` }, call.outcome ?? "")),
    make("p", { class: "hint" }, `iteration ${call.iteration}, ${call.execution_time_ms.toFixed(1)} ms`),
    make("h5", {}, "Arguments"), showJson(call.params),
    make("h5", {}, "Result"), showJson(call.result.success ? call.result.result : call.result.error)));
  place.replaceChildren(
    answer.max_iterations_reached ? make("p", { class: "problem" }, "Max iterations reached") : "",
    make("h3", {}, "Tool calls"),
    calls.length ? make("ol", { class: "cards" }, ...calls) : make("p", { class: "empty" }, "No tool was called."),
    make("h3", {}, "Answer"), make("p", { class: "answer" }, answer.content),
    make("p", {}, make("a", { href: `/conversations/${encodeURIComponent(answer.conversation)}` }, "Show the run")));
}

function updateStatus(validation) {
  const select = document.getElementById("bench-model");
  let option = [...select.options].find((item) => item.value === validation.modelId);
  if (!option) {
    option = make("option", { value: validation.modelId }, validation.modelId);
    select.append(option);
  }
  option.dataset.status = JSON.stringify(validation);
  select.value = validation.modelId;
  document.getElementById("bench-name").value = "";
  showBadge();
}

async function runTest(event) {
  event.preventDefault();
  const button = document.getElementById("bench-run");
  const place = document.getElementById("bench-result");
  const chosen = document.getElementById("bench-model").value;
  const llm = chosen.slice(0, chosen.indexOf("/"));
  const model = document.getElementById("bench-name").value.trim() || chosen.slice(chosen.indexOf("/") + 1);
  button.disabled = true;
  button.textContent = "Testing...";
  place.replaceChildren();
  try {
    const query = document.getElementById("bench-query").value;
    const answer = await request("/api/tools/test", { llm, model, query });
    showOutcome(place, answer);
    updateStatus(answer.validation);
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
    if (error.body?.validation) {
      updateStatus(error.body.validation);
    }
  } finally {
    button.disabled = false;
    button.textContent = "Test";
  }
}

function addForm(card) {
  const place = card.querySelector(".form-place");
  if (!place) { // the token may not run tools alone
    return;
  }
  const result = make("div", { class: "result", "aria-live": "polite" });
  const run = async (args, approved = false) => {
    result.replaceChildren("Running...");
    try {
      const answer = await request(`/api/tools/${encodeURIComponent(card.dataset.tool)}/run`, { arguments: args, approved });
      const outcome = make("span", { class: `badge ${answer.success ? "" : "bad"}` }, answer.outcome);
      result.replaceChildren(make("p", {}, outcome, ` ${answer.execution_time_ms.toFixed(1)} ms`),
        showJson(answer.success ? answer.result : answer.error));
    } catch (error) {
      const again = error.body?.needs_approval
        ? make("button", { type: "button", onclick: () => run(args, true) }, "Approve and run") : "";
      result.replaceChildren(make("p", { class: "problem" }, error.message), again);
    }
  };
  place.append(makeSchemaForm(JSON.parse(card.dataset.schema), { submit: run, label: "Run" }), result);
}

if (bench) {
  bench.addEventListener("submit", runTest);
  document.getElementById("bench-model").addEventListener("change", showBadge);
  for (const button of document.querySelectorAll(".example")) {
    button.addEventListener("click", () => {
      document.getElementById("bench-query").value = button.textContent;
    });
  }
  showBadge();
}
for (const card of document.querySelectorAll(".tool")) {
  addForm(card);
}
