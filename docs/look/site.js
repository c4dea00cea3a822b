// What the theme leaves out for people who use a keyboard or a screen reader.
function complete() {
  // A table or a block of code that is wider than the page is scrolled by the keyboard, too.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (box.scrollWidth > box.clientWidth && box.tabIndex < 0) box.tabIndex = 0;
  }
  // A list inside of the navigation is a part of it, and no navigation of its own.
  for (const list of document.querySelectorAll("nav nav:not([role])")) {
    for (const name of ["aria-label", "aria-labelledby", "aria-expanded"]) list.removeAttribute(name);
    list.setAttribute("role", "none");
  }
  // Each button that copies code says which one.
  document.querySelectorAll("nav.md-code__nav").forEach((nav, index) => {
    if (!nav.ariaLabel) nav.ariaLabel = `Code ${index + 1}`;
  });
}

complete();
// The theme adds buttons and wraps tables when it starts.
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
