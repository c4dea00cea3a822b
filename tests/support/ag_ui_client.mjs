// Drives a served agent with the AG-UI client from npm, and prints what it saw as JSON.
//
// Arguments: the folder that holds `node_modules`, the address, the token, the message, and for a run that ends
// with an interrupt the payload of the answer as JSON.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, url, token, message, payload] = process.argv.slice(2);
const find = createRequire(join(folder, "package.json"));
const { HttpAgent } = await import(pathToFileURL(find.resolve("@ag-ui/client")));

const agent = new HttpAgent({ url, headers: { Authorization: `Bearer ${token}` }, threadId: "npm-thread" });
const outcomes = [];
const watcher = {
  onRunFinishedEvent: ({ event }) => {
    outcomes.push(event.outcome);
  },
};

agent.addMessage({ id: "u1", role: "user", content: message });
await agent.runAgent({}, watcher);
const interrupts = outcomes[0].interrupts ?? [];
if (interrupts.length > 0) {
  const resume = interrupts.map(({ id }) => ({
    interruptId: id,
    status: "resolved",
    payload: JSON.parse(payload),
  }));
  await agent.runAgent({ resume }, watcher);
}
const text = agent.messages.filter(({ role }) => role === "assistant").map(({ content }) => content ?? "");
process.stdout.write(
  JSON.stringify({
    outcomes: outcomes.map(({ type }) => type),
    text: text.join(""),
    roles: agent.messages.map(({ role }) => role),
    configuration: agent.state.configuration,
  }),
);
