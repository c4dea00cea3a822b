"""Markdown of the chat in a real browser: what it shows, and what hostile texts cannot do with it."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from browser import CHROMIUM, open_browser, sign_in
from effort import IS_LONG
from hostile_texts import HOSTILE_TEXTS
from served import make_site, serve

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]

SIZE = 200_000

RENDER = """async (texts) => {
    const { renderMarkdown } = await import("/static/markdown.js");
    return texts.map((text) => renderMarkdown(text).innerHTML);
}"""

INSPECT = """async (texts) => {
    const { renderMarkdown } = await import("/static/markdown.js");
    const allowed = new Set(["A", "BLOCKQUOTE", "BR", "BUTTON", "CODE", "DIV", "EM", "H3", "HR", "LI", "OL",
        "P", "PRE", "S", "SPAN", "STRONG", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"]);
    const attributes = new Set(["class", "href", "rel", "target", "tabindex", "role", "aria-label", "scope",
        "type", "start", "value"]);
    const onlyLetters = (text) => text.replace(/[^\\p{L}]/gu, "");
    const read = (root) => { // the texts in their order, and the address of each link after its text
        const found = [];
        const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
        const links = [];
        while (walker.nextNode()) {
            const node = walker.currentNode;
            while (links.length && !links.at(-1).contains(node)) {
                found.push(links.pop().getAttribute("href"));
            }
            if (node.nodeType === Node.TEXT_NODE) {
                found.push(node.parentElement.tagName === "BUTTON" ? "" : node.data);
            } else if (node.tagName === "A" && node.textContent !== node.getAttribute("href")) {
                links.push(node);
            }
        }
        return onlyLetters([...found, ...links.map((link) => link.getAttribute("href"))].join(""));
    };
    const problems = [];
    for (const text of texts) {
        const root = renderMarkdown(text);
        let deepest = 0;
        for (const element of root.querySelectorAll("*")) {
            let depth = 0;
            for (let place = element; place !== root && depth < 100; place = place.parentElement) {
                depth += 1;
            }
            deepest = Math.max(deepest, depth);
            const href = element.getAttribute("href");
            const names = element.getAttributeNames();
            if (!allowed.has(element.tagName) || names.some((name) => !attributes.has(name))
                || (element.tagName === "A" && (!/^(https?:\\/\\/|mailto:)/i.test(href)
                    || element.rel !== "noopener noreferrer nofollow" || element.target !== "_blank"))) {
                problems.push(["element", element.outerHTML.slice(0, 200), text.slice(0, 200)]);
            }
        }
        if (deepest > 40) {
            problems.push(["depth", deepest, text.slice(0, 200)]);
        }
        if (read(root) !== onlyLetters(text)) {
            problems.push(["words", read(root).slice(0, 300), text.slice(0, 300)]);
        }
    }
    return problems;
}"""
"""Checks each rendering: its elements, how deep they are, and whether each letter of the text is there."""

STREAM = """async (texts) => {
    const { renderMarkdown } = await import("/static/markdown.js");
    const { makeMarkdownWriter } = await import("/static/markdown_writer.js");
    window.requestAnimationFrame = (render) => { render(); return 0; };
    return texts.filter((pieces) => {
        const writer = makeMarkdownWriter();
        for (const piece of pieces) {
            writer.append(piece);
        }
        const before = writer.element.innerHTML;
        writer.finish(pieces.join(""));
        const whole = renderMarkdown(pieces.join("")).innerHTML;
        return before !== whole || writer.element.innerHTML !== whole;
    });
}"""
"""The texts that are not shown alike when they come in pieces, with a rendering after each."""

PARTS = (
    *(
        "word",
        "Wort ",
        " two words ",
        "\n",
        "\n\n",
        "\n",
        "  ",
        "    ",
        "\t",
        " ",
        "1. ",
        "- ",
        "* ",
        "+ ",
        "7) ",
        "> ",
    ),
    *(
        "#",
        "## ",
        "---",
        "***",
        "*",
        "**",
        "_",
        "__",
        "~~",
        "`",
        "``",
        "```",
        "```js\n",
        "~~~",
        "\\",
        "|",
        "|---|---|",
    ),
    *(
        "a|b",
        "[",
        "]",
        "(",
        ")",
        "![",
        "](",
        "](http://a.test/x)",
        "](javascript:alert(1))",
        "http://b.test/(y)",
        "<",
    ),
    *(
        "https://c.test.",
        "<https://d.test>",
        "<b>",
        "</b>",
        "<script>alert(1)</script>",
        "&lt;",
        "mailto:",
        "\r\n",
    ),
    *("é", "日本", "\u202e", "\ud83d\ude00", "\x00"),
)


def make_texts(seed: int, count: int) -> list[list[str]]:
    """Random texts in pieces: marks, words and markup in any order, and pieces of hostile texts."""
    source = random.Random(seed)
    hostile = [text.encode("utf-8", "replace").decode() for text in HOSTILE_TEXTS]
    return [
        [source.choice(hostile if source.random() < 0.1 else PARTS) for _ in range(source.randrange(1, 60))]
        for _ in range(count)
    ]


LARGE: dict[str, str] = {
    **{
        f"many {sign!r}": sign * (SIZE // len(sign))
        for sign in (
            *(
                "*",
                "[",
                ">",
                "_",
                "`",
                "~",
                "#",
                "|",
                "-",
                "\\",
                "<",
                "(",
                "!",
                "\n",
                " ",
                "\t",
                "a",
                "> ",
                "- ",
                "1. ",
                "* a ",
            ),
            *(
                " *a",
                " **a",
                "*a* ",
                "_a ",
                "a_",
                "[a](",
                "![a](http://",
                "[](http://a",
                "](http://a(b)",
                "http://",
                "<http://a",
            ),
            *(
                "`a",
                "``a` ",
                "- a\n",
                "1. a\n\n",
                "> a\n",
                "a|b\n",
                "|",
                "| a ",
                "\\*",
                "```\n",
                "#  ",
                "a\n",
                "a  \n",
                "***a",
            ),
            *(
                "- a\n  - b\n",
                "- a\n\n\n",
                "~~a",
                "**a*b__c_~~",
                "[*a](http://a)*",
                "<b>",
                "|-",
                "|-|-\n",
                "a|b\n-|-\n",
                "`a` ",
            ),
        )
    },
    "runs of every length": "".join("`" * size + " " for size in range(600)),
    "a list and blank lines": "- a" + "\n" * SIZE + "  b",
    "a wide table": "|" + "a|" * 50_000 + "\n|" + "-|" * 50_000 + "\n" + "|a|\n" * 10_000,
    "spaces and an end": "#" + " " * SIZE + "x\n" + "a" + " " * SIZE + "b",
    "much code": "```\n" + "line of code\n" * (SIZE // 13),
}
"""Texts of 200,000 characters, each made to be slow, deep or wide."""


async def open_page(context: Any, url: str) -> Any:
    """A page of the site, in which modules of the site can be used."""
    return await sign_in(context, url, "/chat")


async def test_what_markdown_shows() -> None:
    """Each form has its element; what has none stays text."""
    link = 'rel="noopener noreferrer nofollow" target="_blank"'
    cases = {
        "a *b* **c** `d` ~~e~~ _f_ ***g***": "<p>a <em>b</em> <strong>c</strong> <code>d</code> <s>e</s> "
        "<em>f</em> <strong><em>g</em></strong></p>",
        "# One #\nTwo\nThree": '<h3 class="level-1">One</h3><p>Two<br>Three</p>',
        "- a\n  1. b\n  2. c\n- d": '<ul><li>a<ol start="1"><li>b</li><li>c</li></ol></li><li>d</li></ul>',
        "3. e\n5. f": '<ol start="3"><li>e</li><li value="5">f</li></ol>',
        "> a\n> > b\n\n---": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><hr>",
        "a_b_c 2 * 3 * 4 **open": "<p>a_b_c 2 * 3 * 4 **open</p>",
        "[a](javascript:alert(1)) <b>x</b>": "<p>[a](javascript:alert(1)) &lt;b&gt;x&lt;/b&gt;</p>",
        "![p](http://a.test/p.png)": f'<p><a href="http://a.test/p.png" {link}>p</a></p>',
        "see (https://a.test/x).": f'<p>see (<a href="https://a.test/x" {link}>https://a.test/x</a>).</p>',
        "a|b\n-|-:\n1|2": '<div class="table-wrap" tabindex="0" role="group" aria-label="Table"><table>'
        '<thead><tr><th scope="col">a</th><th scope="col" class="number">b</th></tr></thead>'
        '<tbody><tr><td>1</td><td class="number">2</td></tr></tbody></table></div>',
        "- a\n  ```py\n  x = 1\n    y\n  ```": '<ul><li>a<div class="code-block"><div class="code-head">'
        '<span class="label">py</span><button type="button" class="quiet copy">Copy</button></div>'
        '<pre tabindex="0"><code>x = 1\n  y</code></pre></div></li></ul>',
    }
    with serve(make_site()) as url:
        async with open_browser() as context:
            page = await open_page(context, url)
            shown = await page.evaluate(RENDER, list(cases))
    assert dict(zip(cases, shown, strict=True)) == cases


async def test_a_hostile_text_loses_no_word_and_becomes_no_markup() -> None:
    """Whatever a text has: only the elements and attributes of Markdown are made, links lead to pages and
    mail alone, nothing is deep, and every letter stands there in its order."""
    texts = ["".join(pieces) for pieces in make_texts(1, 1500)]
    with serve(make_site()) as url:
        async with open_browser() as context:
            page = await open_page(context, url)
            assert await page.evaluate(INSPECT, texts) == []


async def test_a_text_in_pieces_is_shown_like_the_whole() -> None:
    """An answer that comes in pieces is shown as if it had come at once, after each of them."""
    texts = make_texts(2, 400)
    with serve(make_site()) as url:
        async with open_browser() as context:
            page = await open_page(context, url)
            assert await page.evaluate(STREAM, texts) == []


async def test_large_hostile_texts_are_rendered() -> None:
    """Texts of 200,000 characters that are made to be slow are rendered, and lose no letter."""
    with serve(make_site()) as url:
        async with open_browser() as context:
            page = await open_page(context, url)
            for name, text in LARGE.items():
                assert (name, await page.evaluate(INSPECT, [text])) == (name, [])
