// The requests to models that a step asks for. The log holds what they are made of and their digests, so the server
// derives them, and only when somebody looks.

import { conversationPath, make, request, showJson } from "/static/api.js";

export function offerRequests(conversation, record) {
  if (!record.asks?.some((ask) => ask.messages && ask.digest)) {
    return [];
  }
  const place = make("div", { "aria-live": "polite" });
  const fold = make("details", { class: "requests" }, make("summary", {}, "The whole request to the model"), place);
  fold.addEventListener("toggle", () => {
    if (fold.open && !place.childElementCount) {
      showRequests(conversation, record.seq, place);
    }
  });
  return [fold];
}

async function showRequests(conversation, seq, place) {
  place.replaceChildren(make("p", { class: "hint" }, "deriving..."));
  try {
    const answer = await request(conversationPath(conversation, `/requests?seq=${seq}`));
    place.replaceChildren(...answer.requests.flatMap(showRequest));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
  }
}

function showRequest(row) {
  return [
    make("p", { class: "hint" }, `To ${row.host}. Derived from the log; its digest is the recorded one, ${row.digest}.`),
    showJson(row.request),
  ];
}
