// Checks that the browser tests run on a page. Each function lists faults, so a good page gives empty lists.
window.looking = (() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const styles = new WeakMap(); // a computed style stays up to date, so one for each element is enough
  const style = (element) => {
    if (!styles.has(element)) styles.set(element, getComputedStyle(element));
    return styles.get(element);
  };
  const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  // The class "active" marks the section on the screen. It changes as the page scrolls, so it is no part of a name.
  const named = (element) => {
    const classes = [...element.classList].filter((one) => one !== "active").join(" ");
    return `${element.localName}${element.id ? `#${element.id}` : `.${classes}`}: ${element.textContent.trim().slice(0, 60)}`;
  };
  const ancestors = function* (element) {
    for (; element && element !== document.documentElement; element = element.parentElement) yield element;
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  // Formulas are checked as a whole. Text that is only for screen readers has a box of one pixel.
  const elements = () => all("body *:not(mjx-container *)");
  const texts = () => elements().filter((one) => hasText(one) || one.matches("mjx-container, img"));
  const seen = () => texts().filter((one) => shown(one) && one.getBoundingClientRect().width > 1);

  const scrolls = (element) => /auto|scroll/.test(style(element).overflowX);
  // The width of an inline box is reported as 0, and such a box hides nothing.
  const holdsMore = (element) => element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1;

  // Says by how many pixels the page is wider than the window.
  const tooWide = () => {
    const excess = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    return excess > 0 ? [`${excess} pixels`] : [];
  };

  // Lists text that no scrolling brings into view: its box hides overflow, or the text leaves the window sideways.
  const cutOff = () => {
    const width = document.documentElement.clientWidth;
    const found = [];
    for (const element of seen()) {
      const { left, right } = element.getBoundingClientRect();
      const chain = [...ancestors(element)];
      const hider = chain.find((one) => /hidden|clip/.test(style(one).overflowX) && holdsMore(one));
      if (hider || ((left < -1 || right > width + 1) && !chain.some(scrolls))) found.push(named(element));
    }
    return found;
  };

  // Lists paragraphs, code, cells of tables and formulas that overlap.
  const overlapping = () => {
    const blocks = "p, pre, li, td, th, dt, dd, h1, h2, h3, h4, img, summary, div.math";
    const leaves = all(blocks, document.querySelector("article") ?? document).filter(
      (one) => shown(one) && !all(blocks, one).some(shown),
    );
    const boxes = leaves.map((one) => [one.getBoundingClientRect(), one]).sort((one, other) => one[0].top - other[0].top);
    const found = [];
    boxes.forEach(([box, element], index) => {
      for (const [other, another] of boxes.slice(index + 1)) {
        if (other.top > box.bottom - 3) break;
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        if (across > 3) found.push(`${named(element)} | ${named(another)}`);
      }
    });
    return found;
  };

  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
  const tabbable = (element) => element.matches(FOCUSABLE) && element.tabIndex >= 0 && !element.disabled;

  // Lists boxes that scroll sideways and that the keyboard cannot reach.
  const stuck = () =>
    elements()
      .filter((one) => scrolls(one) && holdsMore(one) && shown(one))
      .filter((one) => !(one.hasAttribute("tabindex") && tabbable(one)) && !all(FOCUSABLE, one).some(tabbable))
      .map(named);

  // Lists elements with TeX that is not shown as a formula.
  const rawTex = () =>
    all("article *:not(mjx-container *, pre *, code, code *, script)")
      .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && /\$.+\$|\\[a-zA-Z([]/.test(node.data)))
      .map(named);

  // Lists elements that the mouse can click and that Tab does not reach.
  const mouseOnly = () =>
    elements()
      .filter((one) => style(one).cursor === "pointer" || one.matches(FOCUSABLE.replace(", [tabindex]", "")))
      .filter((one) => shown(one) && one.getBoundingClientRect().width > 0)
      .filter((one) => ![...ancestors(one)].some((parent) => tabbable(parent) || parent.control))
      .map(named);

  // Lists formulas with a color of their own, because no check looks at the contrast inside a formula.
  const colouredFormulas = () =>
    all("mjx-container").filter((formula) => {
      const colour = style(formula.parentElement).color;
      return all("mjx-math *", formula).some((part) => style(part).color !== colour);
    }).map(named);

  // Reduces a page with thousands of similar elements. One token of code stays for each class, because a class has one
  // color, and the others become plain text. A formula, whose parts have one color, becomes a letter of that color.
  const thin = () => {
    for (const formula of all("mjx-container")) {
      formula.replaceChildren("x");
      formula.style.lineHeight = "normal"; // without a line height the letter would leave its box
    }
    const known = new Set();
    for (const token of all("div.highlight pre span")) {
      const kind = [...ancestors(token)].map((one) => one.className).join();
      if (known.has(kind)) token.replaceWith(...token.childNodes);
      known.add(kind);
    }
    all("pre").forEach((code) => code.normalize());
  };

  // Keeps one of all elements that agree with their parents in name, class and style, which is enough for contrast; of
  // the rows of a table two are kept, because rows may be striped, and of links one that is alone and one in a text.
  const sample = () => {
    const special = (one) => (one.matches("tr") && one.rowIndex % 2) || (one.matches("a") && hasText(one.parentElement));
    const kind = (one) => [one.localName, one.className, one.getAttribute("style"), special(one)];
    const known = new Set();
    const again = all("body *").filter((one) => known.size === known.add([...ancestors(one)].map(kind).join()).size);
    for (const one of again.reverse()) if (!one.childElementCount) one.remove();
  };

  // Lists the ids of elements in the file of this page, the text `html`, that the page has lost since scripts ran.
  const lostAnchors = (html) =>
    all("[id]", new DOMParser().parseFromString(html, "text/html"))
      .map((one) => one.id)
      .filter((id) => !document.getElementById(id));

  // Lists all that Tab should reach on this page at this width.
  const stops = () => all(FOCUSABLE).filter((one) => tabbable(one) && one.checkVisibility({ visibilityProperty: true }));

  // Says whether one can see the focus: the focused element or a part of it has a ring or a shadow.
  const ringed = () => {
    const parts = [document.activeElement, ...all("*", document.activeElement)];
    return parts.some((one) => {
      const { outlineStyle, outlineWidth, boxShadow } = style(one);
      return (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2) || boxShadow !== "none";
    });
  };

  const checks = { tooWide, cutOff, overlapping, stuck, mouseOnly };
  const wrong = () => {
    const lists = Object.entries(checks).map(([name, check]) => [name, check()]);
    return Object.fromEntries(lists.filter(([, list]) => list.length));
  };
  return { wrong, rawTex, colouredFormulas, lostAnchors, thin, sample, stops, ringed, named };
})();
