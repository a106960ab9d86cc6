// What the theme leaves to the eye and to the mouse alone.

// A box that scrolls sideways can be entered with Tab and scrolled with the arrow keys; one that does not is no stop, not
// even where its content is wider by a part of a pixel, which is enough for Chromium.
const BOXES = "pre, table.docutils, .pst-scrollable-table-container, div.cell_output .output, .math, div.math mjx-container";
const scrolls = (box) => {
  if (!box.matches("span.math")) return box.scrollWidth > box.clientWidth + 1;
  return box.classList.toggle("wide", box.firstElementChild?.offsetWidth > box.clientWidth + 1);
};
// What goes on to the right of a box fades out there.
const showMore = (box) => {
  const scrolled = box.clientWidth && box.tabIndex === 0; // no formula within a line of text
  box.classList.toggle("more", scrolled && box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
};
const enter = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.tabIndex = scrolls(target) ? 0 : -1;
    showMore(target);
  }
});
document.addEventListener("scroll", ({ target }) => target.matches?.(BOXES) && showMore(target), { capture: true, passive: true });

// On a phone the table of contents is a drawer: Tab goes on inside it, Escape closes it.
const drawer = (name) => {
  const box = document.querySelector(`.bd-sidebar-${name}`);
  const state = document.getElementById(`pst-${name}-sidebar-checkbox`);
  const buttons = document.querySelectorAll(`button.${name}-toggle`);
  const open = () => state.checked && getComputedStyle(box).position === "fixed";
  const first = () => box.querySelector("a, button")?.focus();
  buttons.forEach((button) => button.addEventListener("click", () => setTimeout(() => open() && first(), 300)));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !open()) return;
    state.checked = false;
    buttons[0].focus();
  });
};

// The switch that opens a list of pages in the sidebar is an arrow without a name.
const nameArrow = (arrow) => {
  const page = arrow.closest("li").querySelector("a").textContent.trim();
  arrow.setAttribute("aria-label", `Pages of: ${page}`);
};

// Formulas are taller than what they are made from, so the place that the address names moves away as they appear. A
// function that returns there, unless the reader has gone elsewhere since.
const toReturn = (place) => {
  const left = new AbortController();
  for (const event of ["wheel", "touchmove", "keydown", "mousedown"]) {
    addEventListener(event, () => left.abort(), { passive: true, signal: left.signal });
  }
  return () => {
    if (!left.signal.aborted) place?.scrollIntoView({ behavior: "instant" });
    left.abort();
  };
};

// One button opens or closes the code of all folded cells, here and on the pages that follow.
const switchCode = (folds) => {
  const button = document.createElement("button");
  button.className = "show-code btn btn-sm";
  const set = (open) => {
    folds.forEach((fold) => (fold.open = open));
    button.setAttribute("aria-pressed", open);
    button.textContent = open ? "Hide all code" : "Show all code";
  };
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-pressed") === "false";
    localStorage.setItem("show-code", open);
    set(open);
  });
  document.querySelectorAll(".figure-source a[href^='#']").forEach((link) => {
    link.addEventListener("click", () => link.closest("div.cell").querySelector("details.hide").setAttribute("open", ""));
  });
  set(localStorage.getItem("show-code") === "true");
  document.querySelector("article h1").after(button);
};

const pointedAt = (hash) => {
  try {
    return document.getElementById(decodeURIComponent(hash.slice(1)));
  } catch {
    return null; // the address is malformed
  }
};

// The entries of the ledger that contain some words: the others are hidden, and the boxes of these are open. A link to a
// hidden entry clears the words.
const filterEntries = (boxes) => {
  const input = document.createElement("input"), none = document.createElement("p");
  none.setAttribute("role", "status");
  Object.assign(input, { type: "search", className: "filter form-control", placeholder: "Only entries with these words" });
  input.setAttribute("aria-label", "Only entries with these words");
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    boxes.forEach((box) => {
      const rows = [...box.querySelectorAll("tbody tr")];
      rows.forEach((row) => (row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word))));
      box.hidden = rows.every((row) => row.hidden);
      box.open = words.length > 0 && !box.hidden;
    });
    none.textContent = [...boxes].every((box) => box.hidden) ? "No entry matches." : "";
  };
  const reveal = (hash) => {
    const place = pointedAt(hash), box = place?.closest("details.entries");
    if (!box || !place.closest("[hidden]")) return;
    input.value = "";
    filter();
    box.open = true;
    place.scrollIntoView();
  };
  input.addEventListener("input", filter);
  document.addEventListener("click", ({ target }) => reveal(target.closest("a[href^='#']")?.hash ?? ""));
  addEventListener("hashchange", () => reveal(location.hash));
  document.querySelector("article > section > section:has(details.entries)").before(input, none);
};

// A link to an equation or a statement shows it while the pointer or the keyboard is there. The script with all of them is
// loaded when a reader first looks at such a link.
const previews = () => {
  const base = new URL(document.documentElement.dataset.content_root, location.href);
  const box = Object.assign(document.createElement("div"), { className: "preview", id: "preview", hidden: true });
  box.setAttribute("role", "tooltip");
  document.querySelector("article").append(box);
  let wanted = null;
  const loaded = () =>
    (loaded.done ??= new Promise((done) => {
      const script = Object.assign(document.createElement("script"), { src: new URL("_static/previews.js", base), onload: done });
      document.head.append(script);
    }));
  const hide = () => {
    wanted?.removeAttribute("aria-describedby");
    wanted = null;
    box.hidden = true;
  };
  const show = async (link) => {
    wanted = link;
    await Promise.all([loaded(), new Promise((done) => setTimeout(done, 250))]);
    const content = window.previews[link.href.slice(base.href.length)];
    if (wanted !== link || !content) return;
    box.innerHTML = content;
    await window.MathJax?.typesetPromise?.([box]);
    if (wanted !== link) return;
    box.hidden = false;
    link.setAttribute("aria-describedby", "preview");
    const at = link.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = box;
    const below = at.bottom + height + 12 < innerHeight || at.top < height + 12;
    box.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
    box.style.top = `${below ? at.bottom + 6 : at.top - height - 6}px`;
  };
  const meant = (event) => event.target.closest?.("article a.internal[href*='#']");
  document.addEventListener("mouseover", (event) => meant(event) && meant(event) !== wanted && show(meant(event)));
  document.addEventListener("mouseout", (event) => meant(event) && hide());
  document.addEventListener("focusin", (event) => meant(event)?.matches(":focus-visible") && show(meant(event)));
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", () => box.hidden || hide(), { passive: true });
};

document.addEventListener("DOMContentLoaded", async () => {
  if (matchMedia("(hover: hover)").matches && document.querySelector("article a.internal")) previews();
  const folds = document.querySelectorAll("article div.cell details.hide");
  if (folds.length) switchCode(folds);
  const entries = document.querySelectorAll("article details.entries");
  if (entries.length) filterEntries(entries);
  document.querySelectorAll("nav summary:not([aria-label])").forEach(nameArrow);
  ["primary", "secondary"].forEach((name) => document.querySelector(`.bd-sidebar-${name}`) && drawer(name));
  const move = toReturn(pointedAt(location.hash));
  await window.MathJax?.startup.promise;
  move();
  document.querySelectorAll(BOXES).forEach((box) => enter.observe(box));
});

// The lines of text around a search's hits are fetched, which no browser allows a page from file://.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
