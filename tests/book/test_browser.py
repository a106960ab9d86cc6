"""The built book in a browser without a network: at three widths, light and dark, by mouse and by keyboard, and by the
rules of WCAG 2.1 AA, which axe-core checks."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from bs4 import BeautifulSoup

LOOKING = (Path(__file__).parent / "looking.js").read_text()
LOCAL = ("file:", "data:", "blob:")
WIDTHS = {"phone": 390, "laptop": 1280, "wide": 1920}
THEMES = ("light", "dark")
# MathJax shows an unknown command in red, and any other error in a box of its own.
TEX_ERRORS = 'mjx-merror, [data-mjx-error], mjx-mtext[style*="red"], mjx-mstyle[style*="red"]'
# Preloading would read the style sheets again, which a browser forbids for pages from file://.
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"], "preload": False}
# Waits for scripts and sizes. A window that the system thinks hidden draws no frames: a second is enough there.
SETTLED = """async () => {
  await window.MathJax?.startup.promise;
  const frame = () => Promise.race([new Promise(requestAnimationFrame), new Promise((done) => setTimeout(done, 1000))]);
  await frame();
  await frame();
}"""
# Colors and places are those at the end of a transition.
AT_ONCE = "*, ::before, ::after { animation: none !important; transition: none !important; }"


@contextmanager
def opened(browser, path, width="laptop", anchor=""):
    """Open a page of the book with nothing stored in the browser, and wait for the end of its scripts."""
    context = browser.new_context(offline=True, viewport={"width": WIDTHS[width], "height": 900})
    page = context.new_page()
    page.complaints = complaints_of(page)
    go(page, path, anchor)
    yield page
    context.close()


def go(page, path, anchor=""):
    """Open another page, and wait for its scripts."""
    page.goto(path.as_uri() + anchor)
    page.add_style_tag(content=AT_ONCE)
    page.evaluate(LOOKING)
    page.evaluate(SETTLED)


def complaints_of(page):
    """Return a list that collects the page's errors and its requests to the network."""
    found = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda request: request.url.startswith(LOCAL) or found.append(request.url))
    page.on("console", lambda line: line.type == "error" and found.append(line.text))
    return found


def resize(page, width):
    """Change the width of the window, and wait until the page has followed."""
    page.set_viewport_size({"width": WIDTHS[width], "height": 900})
    page.evaluate(SETTLED)


def switch_theme(page, theme):
    """Click the theme's switch until it shows this theme; the switch cycles through light, dark and automatic."""
    for _ in range(3):
        if page.evaluate("document.documentElement.dataset.mode") != theme:
            page.locator(".theme-switch-button").first.dispatch_event("click")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.evaluate(SETTLED)


def violations(page, **options):
    """Return what axe-core finds with these options and the usual ones, a line for each element."""
    found = page.evaluate("options => axe.run(options).then(result => result.violations)", WCAG | options)
    return [f"{rule['id']}: {node['html'][:150]} {node['failureSummary']}" for rule in found for node in rule["nodes"]]


def look_at(page, path):
    """Return {fact: list of faults} of a page, at every width and in both themes."""
    facts = {
        "tex": page.locator(f"mjx-container:has({TEX_ERRORS})").all_text_contents(),
        "raw": page.locator(".math:not(:has(mjx-container))").all_inner_texts() + page.evaluate("looking.rawTex()"),
        "coloured": page.evaluate("looking.colouredFormulas()"),
        "anchors": sorted(anchors(path) - set(page.evaluate("[...document.querySelectorAll('[id]')].map(x => x.id)"))),
    }
    switch_theme(page, "light")
    for width in WIDTHS:
        resize(page, width)
        facts["light", width] = page.evaluate("looking.wrong()")
    switch_theme(page, "dark")  # at one width only: a theme changes colors and images, and no widths
    facts["dark", width] = page.evaluate("looking.wrong()")
    page.evaluate(AXE_SCRIPT)
    page.evaluate("looking.thin()")
    for width in ("phone", "laptop"):  # on a phone some boxes scroll
        resize(page, width)
        facts["axe", width] = violations(page, rules={"color-contrast": {"enabled": False}})
    page.evaluate("looking.sample()")
    for theme in THEMES:
        switch_theme(page, theme)
        facts["contrast", theme] = violations(page, runOnly=["color-contrast"])
    return {**facts, "complaints": page.complaints}


def anchors(path):
    """Return the anchors that a page has before its scripts run."""
    return {tag["id"] for tag in BeautifulSoup(path.read_text(), "html.parser").select("[id]")}


def test_no_page_is_forgotten(book, toc, made_by_sphinx):
    """The tests below open every page of the book."""
    made = {"index", *made_by_sphinx}
    found = {path.relative_to(book).with_suffix("").as_posix() for path in book.rglob("*.html")}
    assert {name for name in found if not name.startswith("_static/")} == made | set(toc)


def test_page(book, browser, page_name):
    """A page needs no network, has no error, and shows every formula in the color of its text. At no width is anything
    too wide, cut off, on top of something else, or out of the keyboard's reach. No rule of WCAG 2.1, A and AA, is
    violated."""
    path = book / f"{page_name}.html"
    with opened(browser, path) as page:
        wrong = {fact: found for fact, found in look_at(page, path).items() if found}
    assert not wrong


PLANTED = {
    "tooWide": "<p style='width: 3000px'>A wide line</p>",
    "cutOff": "<p style='overflow: hidden; white-space: nowrap; width: 3em'>A line that is cut off</p>",
    "overlapping": "<p>A line</p><p style='margin-top: -3em'>Another line upon it</p>",
    "stuck": "<div style='overflow-x: auto; width: 9em'><div style='width: 99em'>A line that scrolls</div></div>",
    "mouseOnly": "<div style='cursor: pointer'>Something to click</div>",
}
SOUND = "<p>A line</p><label>n <input type='range'></label><svg width='99'><text y='20'>Label</text></svg>"


@pytest.mark.parametrize("fault", PLANTED)
def test_faults_are_seen(browser, fault):
    """The checks find each planted fault, and no fault in a sound page."""
    page = browser.new_page()
    page.set_content(f"<article>{SOUND}</article>")
    page.evaluate(LOOKING)
    assert not page.evaluate("looking.wrong()")
    page.set_content(f"<article>{SOUND}{PLANTED[fault]}</article>")
    page.evaluate(LOOKING)
    assert fault in page.evaluate("looking.wrong()")
    page.close()


FAINT = {
    "one of many lines": "<p>A line</p>" * 9 + "<p style='color: #bbb'>A line</p>",
    "every second row": "<table>" + "<tr><td>A cell</td></tr>" * 9 + "</table>",
}


@pytest.mark.parametrize("fault", FAINT)
def test_low_contrast_is_seen(browser, fault):
    """Low contrast is found although only one of several similar elements is checked."""
    page = browser.new_page()
    page.set_content(f"<style>tr:nth-child(2n) {{ color: #bbb }}</style><main>{FAINT[fault]}</main>")
    page.evaluate(LOOKING + AXE_SCRIPT)
    page.evaluate("looking.sample()")
    assert page.locator("p, tr").count() == 2
    assert len(violations(page, runOnly=["color-contrast"])) == 1
    page.close()


def focused(page):
    """Return the name of the focused element, and whether one can see the focus."""
    return page.evaluate("[looking.named(document.activeElement), looking.ringed()]")


@pytest.mark.parametrize("width", ["phone", "laptop"])
@pytest.mark.parametrize("name", ["book/index", "book/notation", "notebooks/02-gaussian-mechanism", "search"])
def test_tab_reaches_everything(book, browser, name, width):
    """Tab visits every link, button, fold and scrolling box in order and visibly, and then leaves the page."""
    with opened(browser, book / f"{name}.html", width) as page:
        expected = page.evaluate("looking.stops().map(looking.named)")
        page.evaluate("document.activeElement.blur()")
        visited = []
        for _ in expected:
            page.keyboard.press("Tab")
            visited.append(focused(page))
        assert [one for one, _ in visited] == expected
        assert not [one for one, ringed in visited if not ringed]


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_folds_open_by_keyboard(book, browser, key):
    """A fold opens and closes with Enter and with Space, and its title says what it holds."""
    with opened(browser, book / "notebooks" / "02-gaussian-mechanism.html") as page:
        fold = page.locator("article details").first
        fold.locator("summary").focus()
        for expected in (True, False):
            page.keyboard.press(key)
            assert fold.evaluate("fold => fold.open") == expected
            assert fold.locator("pre").first.is_visible() == expected
        assert fold.locator("summary").inner_text().strip() == "Imports"


def test_one_button_shows_all_code(book, browser):
    """The button opens every folded cell, and the next chapter opens with its code shown; a second press closes it."""
    shown = "[...document.querySelectorAll('article div.cell details.hide')].map((fold) => fold.open)"
    with opened(browser, book / "notebooks" / "02-gaussian-mechanism.html") as page:
        assert not any(page.evaluate(shown))
        for name, expected in (("Show all code", True), ("Hide all code", False), ("Show all code", True)):
            page.get_by_role("button", name=name).click()
            assert set(page.evaluate(shown)) == {expected}
        go(page, book / "notebooks" / "01-preliminaries.html")
        assert all(page.evaluate(shown))


def test_link_to_an_entry_opens_its_box(book, browser):
    """An address that names an entry of the ledger opens the box of the entry, which is closed otherwise."""
    with opened(browser, book / "book" / "errata.html") as page:
        entry = page.locator("#ledger-slip-lemma-4-1-clip-norm")
        assert not entry.is_visible()
        page.locator("a[href='#ledger-slip-lemma-4-1-clip-norm']").first.click()
        entry.wait_for()


def test_entries_are_filtered(book, browser):
    """Of the entries only those that contain the words are shown, in open boxes; without words the boxes are closed."""
    with opened(browser, book / "book" / "claims.html") as page:
        rows = page.locator("details.entries tbody tr")
        words = page.get_by_role("searchbox", name="Only entries with these words")
        words.fill("bordered HESSIAN")
        texts = rows.locator("visible=true").all_inner_texts()
        assert 0 < len(texts) < rows.count()
        assert all("bordered" in text.lower() and "hessian" in text.lower() for text in texts)
        words.fill("")
        assert not rows.locator("visible=true").count()


def test_theme_changes_by_keyboard(book, browser):
    """The next page has the theme that was chosen on the page before."""
    with opened(browser, book / "book" / "notation.html") as page:
        before = page.evaluate("document.documentElement.dataset.mode")
        page.locator(".bd-header-article .theme-switch-button").focus()
        page.keyboard.press("Enter")
        after = page.evaluate("document.documentElement.dataset.mode")
        go(page, book / "genindex.html")
        assert page.evaluate("document.documentElement.dataset.mode") == after != before


def test_buttons_work_by_keyboard(book, browser):
    """By keyboard the search opens and closes, code is copied, and the menu of downloads opens."""
    with opened(browser, book / "notebooks" / "02-gaussian-mechanism.html") as page:
        page.locator(".search-button__button:visible").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'search-input'")
        page.keyboard.press("Escape")
        page.locator("#search-input").wait_for(state="hidden")

        page.locator("div.cell > .cell_input button.copybtn").first.focus()
        page.wait_for_function("getComputedStyle(document.activeElement).opacity === '1'")
        page.keyboard.press("Enter")
        page.locator("button.copybtn.success").wait_for()

        page.locator(".dropdown-download-buttons > button").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        page.wait_for_function("document.activeElement.closest('.dropdown-menu') !== null")


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_drawers_work_by_keyboard(book, browser, side):
    """On a phone a table of contents opens with Enter and takes the focus; Escape closes it and returns the focus."""
    with opened(browser, book / "notebooks" / "02-gaussian-mechanism.html", "phone") as page:
        drawer, button = page.locator(f".bd-sidebar-{side}"), page.locator(f"button.{side}-toggle").first
        assert not drawer.is_visible()
        button.focus()
        page.keyboard.press("Enter")
        page.wait_for_function(f"document.activeElement.closest('.bd-sidebar-{side}') !== null")
        assert drawer.is_visible()
        page.keyboard.press("Escape")
        drawer.wait_for(state="hidden")
        assert button.evaluate("button => button === document.activeElement")


@pytest.mark.parametrize("width", ["phone", "laptop"])
def test_search_finds_the_chapter(book, browser, width):
    """Without a network, a search for Bernstein leads to the chapter on tail bounds."""
    with opened(browser, book / "book" / "index.html", width) as page:
        page.locator(".search-button__button:visible").first.click()
        page.keyboard.type("Bernstein")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=Bernstein")
        result = page.locator("#search-results a[href*='06-bernstein-bound']").first
        result.wait_for()
        result.click()
        page.wait_for_url("**/06-bernstein-bound.html*")
        assert page.locator("article h1").inner_text().startswith("7. Tail bounds")
        assert not page.complaints


# A place of each kind below many formulas: a cell, an equation, a statement, a section.
PLACES = [
    ("notebooks/06-bernstein-bound", "[id^=cell-06-]"),
    ("notebooks/06-bernstein-bound", "div.math[id]"),
    ("notebooks/05-lagrangian", "div.proof[id]"),
    ("notebooks/A-lecture-notes", "section[id]"),
]


@pytest.mark.parametrize("width", ["phone", "laptop"])
@pytest.mark.parametrize(("name", "kind"), PLACES)
def test_anchor_is_where_the_reader_is(book, browser, name, kind, width):
    """A link to a place shows the place on the screen, not behind the header and not in a closed fold."""
    path = book / f"{name}.html"
    place = BeautifulSoup(path.read_text(), "html.parser").select(kind)[-1]["id"]
    with opened(browser, path, width, f"#{place}") as page:
        header = page.locator(".bd-header-article").bounding_box()
        target = page.locator(f"#{place}")
        assert target.is_visible()
        top = target.bounding_box()["y"]
        at_the_end = page.evaluate("innerHeight + scrollY >= document.documentElement.scrollHeight - 1")
        assert header["y"] + header["height"] <= top < (900 if at_the_end else 300)


def test_landing_page_is_found(book, browser, toc):
    """The path that `make book` prints leads to the first page."""
    page = browser.new_page()
    page.goto((book / "index.html").as_uri())
    page.wait_for_url(f"**/{toc[0]}.html")
    page.close()


@pytest.mark.parametrize("theme", THEMES)
def test_prints_the_text_alone(book, browser, theme):
    """A printed page has black text in any theme, fits the width of the sheet, and has no buttons."""
    with opened(browser, book / "notebooks" / "02-gaussian-mechanism.html") as page:
        switch_theme(page, theme)
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 without margins of 1 cm
        page.evaluate(SETTLED)
        assert page.evaluate("looking.wrong().tooWide ?? []") == []
        for hidden in (".bd-sidebar-primary", ".bd-sidebar-secondary", ".bd-header-article", "button.copybtn"):
            assert not page.locator(hidden).first.is_visible(), hidden
        assert page.evaluate("getComputedStyle(document.querySelector('article p')).color") == "rgb(0, 0, 0)"
