// A text field for YAML: line numbers, colours, and problems beside their lines. The text itself is a plain
// textarea, so that keyboards, screen readers and undoing work as everywhere; what is drawn lies behind it.

import { make } from "/static/api.js";

const TOKEN = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(^\s*(?:- )*(?:\{)?\s*[\w.-]+(?=:(?:\s|$))|[{,]\s*[\w.-]+(?=:\s))/g;
const COLOURED_CHARACTERS = 60000; // a longer text is shown in one colour

export class YamlEditor {
  constructor({ field, backdrop, gutter }) {
    this.field = field;
    this.backdrop = backdrop;
    this.gutter = gutter;
    this.marks = new Map(); // line -> text
    field.addEventListener("input", () => { this.marks.clear(); this.paint(); });
    field.addEventListener("scroll", () => this.follow());
    field.addEventListener("keydown", (event) => this.keepIndentation(event));
    this.paint();
  }

  get text() {
    return this.field.value;
  }

  // Replaces everything, as one step that can be undone.
  replace(text) {
    this.field.focus();
    this.field.select();
    this.insert(text);
  }

  insert(text) {
    this.field.focus();
    // The only way to write into a field that undoing knows.
    if (!document.execCommand("insertText", false, text)) {
      this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, "end");
      this.field.dispatchEvent(new Event("input"));
    }
  }

  showMarks(marks) {
    this.marks = new Map();
    for (const { line, text } of marks) {
      this.marks.set(line, this.marks.has(line) ? `${this.marks.get(line)}; ${text}` : text);
    }
    this.paint();
  }

  goTo(line) {
    const lines = this.text.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, item) => sum + item.length + 1, 0);
    this.field.focus();
    this.field.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    const height = this.field.scrollHeight / Math.max(1, lines.length);
    this.field.scrollTop = Math.max(0, (line - 1) * height - this.field.clientHeight / 3);
    this.field.scrollLeft = 0;
    this.follow();
  }

  get line() {
    return this.text.slice(0, this.field.selectionStart).split("\n").length;
  }

  keepIndentation(event) {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || this.field.readOnly) {
      return;
    }
    const before = this.text.slice(0, this.field.selectionStart).split("\n").at(-1);
    const indentation = /^\s*/.exec(before)[0] + (/:\s*$/.test(before) ? "  " : "");
    if (indentation) {
      event.preventDefault();
      this.insert(`\n${indentation}`);
    }
  }

  paint() {
    const lines = this.text.split("\n");
    const isColoured = this.text.length <= COLOURED_CHARACTERS;
    this.gutter.replaceChildren(...lines.map((_, index) =>
      make("span", { class: this.marks.has(index + 1) ? "faulty" : null }, `${index + 1}\n`)));
    this.backdrop.replaceChildren(...lines.map((line, index) => {
      const mark = this.marks.get(index + 1);
      return make("span", { class: mark ? "line faulty" : "line" }, ...(isColoured ? colour(line) : [line]),
        mark ? make("span", { class: "mark" }, `  ◂ ${mark}`) : null, "\n");
    }));
    this.follow();
  }

  follow() {
    this.backdrop.scrollTop = this.gutter.scrollTop = this.field.scrollTop;
    this.backdrop.scrollLeft = this.field.scrollLeft;
  }
}

function colour(line) {
  const parts = [];
  let end = 0;
  for (const match of line.matchAll(TOKEN)) {
    parts.push(line.slice(end, match.index), make("span", { class: match[1] ? "comment" : match[2] ? "string" : "key" }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, line.slice(end)].filter((part) => part !== "");
}
