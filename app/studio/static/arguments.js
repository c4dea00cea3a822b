// The arguments of a call: one row for each, readable, with nothing that could deceive whoever decides.

import { make, showJson } from "/static/api.js";

const MOST_CHARACTERS = 600;
const MOST_LINES = 10;
const MOST_IN_LINE = 60;

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const LOOKS_LIKE_JSON = /^\s*(?:["[{]|-?\d[\d.eE+-]*\s*$|(?:true|false|null)\s*$|$)/;

const hasRows = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// Characters that are not seen, or that turn the order of others, stand as escapes. Lines and tabs are seen.
export function showVisibly(text) {
  const nodes = document.createDocumentFragment();
  let end = 0;
  for (const { 0: sign, index } of text.matchAll(HIDDEN)) {
    if (sign !== "\n" && sign !== "\t") {
      nodes.append(text.slice(end, index), make("span", { class: "escape" }, `\\u{${sign.codePointAt(0).toString(16)}}`));
      end = index + sign.length;
    }
  }
  nodes.append(text.slice(end));
  return nodes;
}

function showValue(value) {
  const isText = typeof value === "string" && !LOOKS_LIKE_JSON.test(value);
  const text = isText ? value : writeJson(value);
  const kind = isText ? "value" : "value data";
  const lines = text.split("\n", MOST_LINES + 1);
  if (text.length <= MOST_CHARACTERS && lines.length <= MOST_LINES) {
    return make("div", { class: kind }, showVisibly(text));
  }
  const start = lines.slice(0, 3).join("\n").slice(0, 200);
  return make("details", { class: "long" },
    make("summary", {}, make("span", { class: `${kind} start` }, showVisibly(start), "… "),
      make("span", { class: "hint" }, `all ${text.length.toLocaleString()} characters`)),
    make("div", { class: kind }, showVisibly(text)));
}

function writeJson(value) {
  const line = JSON.stringify(value);
  return line.length > MOST_IN_LINE && typeof value === "object" ? JSON.stringify(value, null, 2) : line;
}

export function showArguments(values) {
  if (!hasRows(values)) { // a text that the model did not end, for instance
    return showJson(values ?? {});
  }
  const rows = Object.entries(values);
  const list = make("dl", { class: "arguments" });
  for (const [name, value] of rows) {
    list.append(make("dt", {}, showVisibly(name)), make("dd", {}, showValue(value)));
  }
  return rows.length ? list : make("p", { class: "hint" }, "No arguments.");
}

// All arguments in one line of at most so many characters.
export function nameArguments(values, most = 80) {
  const text = hasRows(values)
    ? Object.entries(values).map(([name, value]) => `${name}=${shorten(JSON.stringify(value), most)}`).join(", ")
    : values === null || values === undefined ? "" : shorten(typeof values === "string" ? values : JSON.stringify(values), most);
  return shorten(text, most);
}

export function shorten(text, most = 80) {
  const line = String(text).slice(0, 4 * most).replace(/\s+/g, " ").replace(HIDDEN, "�");
  return line.length > most || text.length > 4 * most ? `${line.slice(0, most - 1)}…` : line;
}
