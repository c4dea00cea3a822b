// Markdown as elements: texts become text nodes, nothing is parsed as HTML, and nothing is fetched. Whatever has no form
// here stays text, so no word of a text is lost. Each step looks at a line a bounded number of times: the time is linear.

import { make } from "/static/api.js";

const MOST_DEEP = 8;      // lists and quotes within each other; deeper marks stay text
const MOST_IN_RUN = 3;    // longer runs of * _ ~ stay text

// -- inline --------------------------------------------------------------------------------------

const SIGN = /[\\`*_~[\]!<\n]|https?:\/\//g;
const TARGET = /\]\(\s{0,9}((?:https?:\/\/|mailto:)[^\s()<>]{0,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,200}){0,9})\s{0,9}\)/iy;
const ADDRESS = /https?:\/\/[^\s<>"'`]+/y;
const IN_ANGLES = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const RUN = /\*+|_+|~+/y;
const TICKS = /`+/g;
const ESCAPED = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const EMPHASIS = { "*": ["em", "strong"], _: ["em", "strong"], "~": [null, "s"] };

const makeLink = (href, ...children) =>
  make("a", { href, rel: "noopener noreferrer nofollow", target: "_blank" }, ...children);

// Where the runs of backticks stand, by length: the end of each span of code is found without a search.
function findTicks(text) {
  const places = new Map();
  for (const { 0: run, index } of text.matchAll(TICKS)) {
    if (!places.has(run.length)) {
      places.set(run.length, { starts: [], next: 0 });
    }
    places.get(run.length).starts.push(index);
  }
  return places;
}

// A list of texts, elements, and marks {tag, href} and {end} around what stands between them.
function scanInline(text) {
  const out = [];
  const open = new Map(); // the mark that may still be closed: for each kind the last one alone, so depth is bounded
  const ticks = findTicks(text);
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const close = (kind, start, end) => {
    const place = open.get(kind);
    out[place] = start;
    out.push(end);
    for (const [other, position] of open) {
      if (position >= place) {
        open.delete(other);
      }
    }
  };
  const begin = (kind, sign) => {
    open.set(kind, out.length);
    out.push(sign);
  };
  while (at < text.length) {
    SIGN.lastIndex = at;
    const next = SIGN.exec(text)?.index ?? text.length;
    if (next > at) {
      out.push(text.slice(at, next));
      at = next;
      continue;
    }
    const sign = text[at];
    if (sign === "\n") {
      out.push(make("br"));
      at += 1;
    } else if (sign === "\\" && ESCAPED.test(text[at + 1] ?? "")) {
      out.push(text[at + 1]);
      at += 2;
    } else if (sign === "\\" && text[at + 1] === "\n") {
      at += 1;
    } else if (sign === "`") {
      at = takeCode(text, at, ticks, out);
    } else if (sign in EMPHASIS) {
      at = takeRun(text, at, take(RUN)[0], open, begin, close, out);
    } else if (sign === "[" || (sign === "!" && text[at + 1] === "[")) {
      const mark = sign === "!" ? "![" : "[";
      begin("[", mark);
      at += mark.length;
    } else if (sign === "]" && open.has("[") && take(TARGET)) {
      close("[", { tag: "a", href: take(TARGET)[1] }, { end: true });
      at = TARGET.lastIndex;
    } else if (sign === "<" && take(IN_ANGLES)) {
      const [all, href] = take(IN_ANGLES);
      out.push({ href, text: href });
      at += all.length;
    } else if (sign === "h" && !WORD.test(text[at - 1] ?? "") && take(ADDRESS)) {
      const href = cutAddress(take(ADDRESS)[0]);
      out.push({ href, text: href });
      at += href.length;
    } else {
      out.push(sign);
      at += 1;
    }
  }
  return out;
}

function takeCode(text, at, ticks, out) {
  let end = at;
  while (text[end] === "`") {
    end += 1;
  }
  const runs = ticks.get(end - at);
  while (runs?.starts[runs.next] < end) {
    runs.next += 1;
  }
  const close = runs?.starts[runs.next];
  if (close === undefined) { // also the rest of a run whose first sign is escaped
    out.push(text.slice(at, end));
    return end;
  }
  const code = text.slice(end, close).replaceAll("\n", " ");
  out.push(make("code", {}, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code));
  return close + (end - at);
}

function takeRun(text, at, run, open, begin, close, out) {
  const sign = run[0];
  const [before, after] = [text[at - 1] ?? " ", text[at + run.length] ?? " "];
  const isInWord = sign === "_" && WORD.test(before) && WORD.test(after);
  const tags = run.length > MOST_IN_RUN || isInWord ? [] : run.length === 3 ? [2, 1] : [run.length];
  const sizes = tags.filter((size) => EMPHASIS[sign][size - 1]);
  const mayClose = !/\s/.test(before) && sizes.length && sizes.every((size) => open.has(sign + size));
  const mayOpen = !/\s/.test(after) && sizes.length;
  if (mayClose) {
    for (const size of sizes.toSorted((a, b) => open.get(sign + b) - open.get(sign + a))) {
      if (open.has(sign + size)) {
        close(sign + size, { tag: EMPHASIS[sign][size - 1] }, { end: true });
      }
    }
  } else if (mayOpen && sizes.length === tags.length) {
    sizes.forEach((size) => begin(sign + size, sign.repeat(size)));
  } else {
    out.push(run);
  }
  return at + run.length;
}

// What ends a sentence, or closes a bracket that the address does not open, is no part of it.
function cutAddress(address) {
  let end = address.length;
  let surplus = address.split(")").length - address.split("(").length;
  while (end > 0 && (/[.,;:!?*_~\]"']/.test(address[end - 1]) || (address[end - 1] === ")" && surplus > 0))) {
    end -= 1;
    surplus -= address[end] === ")" ? 1 : 0;
  }
  return address.slice(0, end);
}

export function appendInline(parent, text) {
  const places = [parent];
  for (const item of scanInline(text)) {
    const place = places.at(-1);
    if (item.end) {
      places.pop();
    } else if (item.tag) {
      const element = item.tag === "a" ? makeLink(item.href) : make(item.tag);
      place.append(element);
      places.push(element);
    } else if (item.href) { // a link within a link would be none
      place.append(places.some((other) => other.tagName === "A") ? item.text : makeLink(item.href, item.text));
    } else {
      place.append(item);
    }
  }
  return parent;
}

// -- blocks --------------------------------------------------------------------------------------

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*(.*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: |\t|$)/;

const isBlank = (line) => line.trim() === "";

// Of the blanks before the text; a tab counts as four.
function countIndent(line) {
  let [count, at] = [0, 0];
  while (line[at] === " " || line[at] === "\t") {
    count += line[at] === " " ? 1 : 4;
    at += 1;
  }
  return count;
}

function dropIndent(line, most) {
  let [count, at] = [0, 0];
  while (count < most && (line[at] === " " || line[at] === "\t")) {
    count += line[at] === " " ? 1 : 4;
    at += 1;
  }
  return line.slice(at);
}

function readFence(line) {
  const match = FENCE.exec(line);
  return match && !(match[1][0] === "`" && match[2].includes("`")) ? match : null;
}

function isRule(line) {
  const signs = line.replaceAll(" ", "");
  return signs.length >= 3 && "-*_".includes(signs[0]) && signs === signs[0].repeat(signs.length) && countIndent(line) < 4;
}

function isHeading(line) {
  return /^ {0,3}#{1,6}(?:[ \t]|$)/.test(line);
}

const isQuote = (line) => /^ {0,3}>/.test(line);

function readItem(line) {
  const match = isRule(line) ? null : ITEM.exec(line);
  return match && { indent: match[1].length, mark: match[2], width: match[0].length, isOrdered: match[2].length > 1 };
}

function splitCells(line) {
  const row = line.trim();
  const cells = row.split(/(?<!\\)\|/);
  return cells.slice(row.startsWith("|") ? 1 : 0, row.length > 1 && cells.at(-1) === "" ? -1 : undefined).map((cell) => cell.trim());
}

function readDelimiters(line) {
  if (!line?.includes("-") || !line.includes("|") || /[^-|: \t]/.test(line)) {
    return null;
  }
  const cells = splitCells(line);
  return cells.every((cell) => /^:?-+:?$/.test(cell)) ? cells : null;
}

function isTable(lines, at) {
  const delimiters = lines[at].includes("|") ? readDelimiters(lines[at + 1]) : null;
  return delimiters !== null && splitCells(lines[at]).length === delimiters.length;
}

function endsParagraph(lines, at) {
  const line = lines[at];
  const item = readItem(line);
  return isBlank(line) || readFence(line) || isRule(line) || isHeading(line) || isQuote(line) || isTable(lines, at)
    || (item && (!item.isOrdered || parseInt(item.mark, 10) === 1) && item.width <= line.length && !isBlank(line.slice(item.width)));
}

// The block that begins in a line, and the line after it.
function takeBlock(lines, at, depth) {
  const line = lines[at];
  const fence = readFence(line);
  if (fence) {
    return takeFence(lines, at, fence);
  }
  if (isRule(line)) {
    return [make("hr"), at + 1];
  }
  if (isHeading(line)) {
    return [makeHeading(line), at + 1];
  }
  if (isTable(lines, at)) {
    return takeTable(lines, at);
  }
  if (depth < MOST_DEEP && isQuote(line)) {
    return takeQuote(lines, at, depth);
  }
  if (depth < MOST_DEEP && readItem(line)) {
    return takeList(lines, at, depth);
  }
  let end = at + 1;
  while (end < lines.length && !endsParagraph(lines, end)) {
    end += 1;
  }
  return [appendInline(make("p"), lines.slice(at, end).map((text) => text.trim()).join("\n")), end];
}

function makeHeading(line) {
  const text = line.trim();
  let level = 0;
  while (text[level] === "#") {
    level += 1;
  }
  let end = text.length;
  while (end > level && text[end - 1] === "#") {
    end -= 1;
  }
  const isClosed = end < text.length && " \t".includes(text[end - 1]);
  // One level for all: a text may begin with any, and the headings of a page leave none out.
  return appendInline(make("h3", { class: `level-${level}` }), text.slice(level, isClosed ? end : text.length).trim());
}

function takeFence(lines, at, [, fence, info]) {
  const indent = countIndent(lines[at]);
  let end = at + 1;
  const isEnd = (line) => {
    const text = line.trim();
    return text.length >= fence.length && text === fence[0].repeat(text.length) && countIndent(line) < 4;
  };
  while (end < lines.length && !isEnd(lines[end])) {
    end += 1;
  }
  const code = lines.slice(at + 1, end).map((line) => dropIndent(line, indent)).join("\n");
  return [makeCode(code, info.trim()), Math.min(lines.length, end + 1)];
}

function makeCode(text, info) {
  const code = make("code", {}, text);
  const copy = make("button", { type: "button", class: "quiet copy", onclick: () => copyText(code, copy) }, "Copy");
  return make("div", { class: "code-block" }, make("div", { class: "code-head" }, make("span", { class: "label" }, info), copy),
    make("pre", { tabindex: "0" }, code));
}

// Where a page may not write to the clipboard, the text is selected: the person copies it.
async function copyText(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

function takeTable(lines, at) {
  const kinds = readDelimiters(lines[at + 1]);
  const addCells = (tag, line) => {
    const cells = splitCells(line);
    const surplus = cells.splice(kinds.length).map((cell) => ` | ${cell}`).join(""); // stays in the last cell
    const row = make("tr");
    cells.forEach((cell, index) => row.append(appendInline(make(tag, { scope: tag === "th" ? "col" : null,
      class: kinds[index].endsWith(":") ? "number" : null }),
    (index === kinds.length - 1 ? cell + surplus : cell).replaceAll("\\|", "|"))));
    return row;
  };
  const head = make("thead", {}, addCells("th", lines[at]));
  let end = at + 2;
  const rows = [];
  while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end])) {
    rows.push(addCells("td", lines[end]));
    end += 1;
  }
  const table = make("table", {}, head, make("tbody"));
  rows.forEach((row) => table.tBodies[0].append(row));
  return [make("div", { class: "table-wrap", tabindex: "0", role: "group", "aria-label": "Table" }, table), end];
}

function takeQuote(lines, at, depth) {
  let end = at;
  const inner = [];
  while (end < lines.length && isQuote(lines[end])) {
    inner.push(lines[end].replace(/^ {0,3}> ?/, ""));
    end += 1;
  }
  return [appendBlocks(make("blockquote"), inner, depth + 1), end];
}

// An item has what stands further in than its mark, also after a blank line, and the lines that go on with its text.
function takeList(lines, at, depth) {
  const first = readItem(lines[at]);
  const list = make(first.isOrdered ? "ol" : "ul", first.isOrdered ? { start: parseInt(first.mark, 10) } : {});
  let expected = parseInt(first.mark, 10);
  let end = at;
  while (end < lines.length) {
    const item = readItem(lines[end]);
    if (!item || item.isOrdered !== first.isOrdered || item.indent > first.indent + 1 || item.indent < first.indent) {
      break;
    }
    const inner = [lines[end].slice(item.width)];
    let blank = 0; // lines that belong to the item only if more of it follows
    end += 1;
    while (end + blank < lines.length) {
      const line = lines[end + blank];
      const isIn = countIndent(line) >= item.indent + 2;
      if (isBlank(line)) {
        blank += 1;
      } else if (isIn || (!blank && !endsParagraph(lines, end) && !readItem(line))) {
        for (; blank; blank -= 1, end += 1) {
          inner.push("");
        }
        inner.push(dropIndent(line, Math.max(item.width, item.indent + 2)));
        end += 1;
      } else {
        break;
      }
    }
    const number = parseInt(item.mark, 10);
    list.append(appendItem(make("li", item.isOrdered && number !== expected ? { value: number } : {}), inner, depth + 1));
    expected = number + 1;
    const next = lines[end + blank] === undefined ? null : readItem(lines[end + blank]);
    if (next && next.isOrdered === first.isOrdered && next.indent >= first.indent && next.indent <= first.indent + 1) {
      end += blank;
    }
  }
  return [list, end];
}

// An item of one paragraph has no paragraph of its own.
function appendItem(element, lines, depth) {
  appendBlocks(element, lines, depth);
  const first = element.firstElementChild;
  if (first?.tagName === "P" && !lines.some(isBlank)) {
    while (first.firstChild) {
      element.insertBefore(first.firstChild, first);
    }
    first.remove();
  }
  return element;
}

// The blocks of some lines, each with the line in which it begins.
export function takeBlocks(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
    } else {
      const [element, end] = takeBlock(lines, at, depth);
      blocks.push({ element, start: at });
      at = end;
    }
  }
  return blocks;
}

function appendBlocks(parent, lines, depth) {
  takeBlocks(lines, depth).forEach(({ element }) => parent.append(element));
  return parent;
}

export const splitLines = (text) => text.replaceAll("\r\n", "\n").split("\n");

export function renderMarkdown(text) {
  return appendBlocks(make("div", { class: "markdown" }), splitLines(text), 0);
}
