// Markdown that is being written: rendered at most once a frame, and only from the last block on, because the blocks before
// it do not change any more.

import { make } from "/static/api.js";
import { splitLines, takeBlocks } from "/static/markdown.js";

// `shown` is called after each rendering.
export function makeMarkdownWriter(shown = () => {}) {
  const element = make("div", { class: "markdown" });
  let text = "";
  let stable = 0;   // where the block begins that may still change
  let tail = [];    // its elements, and those after it
  let frame = 0;

  function render() {
    cancelAnimationFrame(frame);
    frame = 0;
    const lines = splitLines(text.slice(stable));
    const blocks = takeBlocks(lines);
    replaceTail(blocks.map((block) => block.element));
    // The last line may go on, and the one before it may yet be the head of a table.
    const last = blocks.findLastIndex(({ start }) => start < lines.length - 2);
    if (last > 0) {
      stable = findLine(text, stable, blocks[last].start);
      tail = tail.slice(last);
    }
    shown();
  }

  // What is the same stays where it is, so that nothing flickers and a selection is kept.
  function replaceTail(blocks) {
    const kept = [];
    blocks.forEach((block, index) => {
      const old = tail[index];
      const stays = old && (old.isEqualNode(block) || growCode(old, block));
      kept.push(stays ? old : block);
      if (!old) {
        element.append(block);
      } else if (!stays) {
        old.replaceWith(block);
      }
    });
    tail.slice(blocks.length).forEach((old) => old.remove());
    tail = kept;
  }

  return {
    element,
    append(piece) {
      text += piece;
      frame ||= requestAnimationFrame(render);
    },
    // The whole text, shown at once; what is shown of it already stays.
    finish(whole) {
      if (!whole.startsWith(text)) {
        element.replaceChildren();
        [stable, tail] = [0, []];
      }
      text = whole;
      render();
    },
    drop() {
      cancelAnimationFrame(frame);
    },
  };
}

// Code that grows gets what is new: its place in the scrolling and its button stay.
function growCode(old, fresh) {
  const [from, to] = [old.querySelector(":scope > pre > code"), fresh.querySelector(":scope > pre > code")];
  if (!from || !to || old.className !== "code-block" || fresh.className !== "code-block"
    || old.querySelector(".label").textContent !== fresh.querySelector(".label").textContent
    || !to.textContent.startsWith(from.textContent)) {
    return false;
  }
  from.firstChild ? from.firstChild.appendData(to.textContent.slice(from.textContent.length)) : from.append(to.textContent);
  return true;
}

function findLine(text, start, count) {
  let at = start;
  for (let line = 0; line < count; line += 1) {
    at = text.indexOf("\n", at) + 1;
  }
  return at;
}
