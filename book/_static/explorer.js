/* The explorer's page: five parameters and a choice of scaling in, numbers and two figures out. All mathematics is in
   explorer-math.js. The setting is kept in the page's address, after the "#". */

"use strict";

(() => {
  const PARAMETERS = [
    { name: "alpha", text: "Skewness", symbol: "α", low: 0, high: 10, start: 1, step: 0.05, scale: "linear" },
    { name: "d", text: "Coordinates", symbol: "d", low: 1, high: 1000, start: 100, scale: "log", whole: true },
    { name: "n", text: "Rows", symbol: "n", low: 10, high: 1e9, start: 1e6, scale: "log", whole: true },
    { name: "epsilon", text: "Privacy", symbol: "ε", low: 0.01, high: 50, start: 1, scale: "log" },
    { name: "delta", text: "Privacy", symbol: "δ", low: 1e-12, high: 0.1, start: 1e-6, scale: "log" },
  ];
  const SCALINGS = { none: "none", expected_norm: "Lemma 4.1, the report's", optimal: "optimal" };
  const POSITIONS = 1000; // of a slider
  const STATE = /(?:^#|&)([a-z]+)=([^&]*)/g;

  const page = document.getElementById("egm-explorer");
  const form = page.querySelector("form");
  const results = page.querySelector(".explorer-results");
  const setting = { scaling: "expected_norm" };

  /** An element with attributes and children; strings become text. */
  function element(name, attributes = {}, ...children) {
    const svg = ["svg", "g", "line", "polyline", "text", "circle", "tspan"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  /* ---- numbers as text ---- */

  /** Six digits, with a power of ten where the number is far from one. */
  function shown(value) {
    if (value === 0) return "0";
    const exponent = Math.floor(Math.log10(Math.abs(value)));
    if (exponent >= -3 && exponent < 6) return String(Number(value.toPrecision(6)));
    const [mantissa, power] = value.toExponential(5).split("e");
    return `${Number(mantissa)} × 10${superscript(power)}`;
  }

  const superscript = (power) => String(Number(power)).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(c)]);

  /** A number as Python and the input fields write it, without digits that say nothing. */
  function plain(value) {
    const decimal = String(Number(value.toPrecision(12))), short = value.toExponential().replace("e+", "e");
    return short.length < decimal.length && !Number.isInteger(value) ? short : decimal;
  }

  /* ---- the controls ---- */

  const onLog = (parameter, position) => parameter.low * (parameter.high / parameter.low) ** (position / POSITIONS);
  const onLine = (parameter, position) => parameter.low + ((parameter.high - parameter.low) * position) / POSITIONS;

  /** The value at a position of the slider, rounded to what a reader would type. */
  function valueAt(parameter, position) {
    if (parameter.scale === "linear") {
      return Number((Math.round(onLine(parameter, position) / parameter.step) * parameter.step).toFixed(6));
    }
    const value = Number(onLog(parameter, position).toPrecision(2));
    return parameter.whole ? Math.round(value) : value;
  }

  function positionOf(parameter, value) {
    const share =
      parameter.scale === "log"
        ? Math.log(value / parameter.low) / Math.log(parameter.high / parameter.low)
        : (value - parameter.low) / (parameter.high - parameter.low);
    return Math.round(share * POSITIONS);
  }

  /** Why a value cannot be taken, or "". */
  function objection({ low, high, whole, symbol }, value) {
    if (Number.isFinite(value) && value >= low && value <= high && !(whole && !Number.isInteger(value))) return "";
    return `${symbol} must be ${whole ? "a whole number" : "a number"} from ${plain(low)} to ${plain(high)}`;
  }

  /** A slider and a number for one parameter; either sets the other. */
  function control(parameter) {
    const { name, text, symbol } = parameter;
    const label = element("label", { for: `explorer-${name}` }, `${text} `, element("i", {}, symbol));
    const number = element("input", { id: `explorer-${name}`, inputmode: "decimal", size: 9 });
    const described = { "aria-label": `${text} ${symbol}, slider`, type: "range", min: 0, max: POSITIONS };
    const slider = element("input", { id: `explorer-${name}-slider`, ...described });
    const complaint = element("p", { id: `explorer-${name}-complaint`, class: "explorer-complaint", role: "alert" });
    number.setAttribute("aria-describedby", complaint.id);
    parameter.show = (value) => {
      setting[name] = value;
      number.value = plain(value);
      slider.value = positionOf(parameter, value);
      slider.setAttribute("aria-valuetext", plain(value));
      complain("");
    };
    const complain = (words) => {
      complaint.textContent = words;
      number.setAttribute("aria-invalid", words !== "");
    };
    slider.addEventListener("input", () => {
      parameter.show(valueAt(parameter, Number(slider.value)));
      refresh();
    });
    number.addEventListener("input", () => {
      const value = number.value.trim() === "" ? NaN : Number(number.value), words = objection(parameter, value);
      complain(words);
      if (words) return;
      setting[name] = value;
      slider.value = positionOf(parameter, value);
      refresh();
    });
    return element("div", { class: "explorer-control" }, label, number, slider, complaint);
  }

  /** The choice of the scaling. */
  function choice() {
    const options = Object.entries(SCALINGS).map(([name, text]) => {
      const radio = element("input", { type: "radio", name: "scaling", value: name, id: `explorer-scaling-${name}` });
      radio.addEventListener("change", () => {
        setting.scaling = name;
        refresh();
      });
      return element("label", {}, radio, ` ${text}`);
    });
    return element("fieldset", {}, element("legend", {}, "Scaling"), ...options);
  }

  /* ---- the setting in the address ---- */

  function readAddress() {
    const given = Object.fromEntries([...location.hash.matchAll(STATE)].map(([, key, value]) => [key, value]));
    if (given.scaling in SCALINGS) setting.scaling = given.scaling;
    for (const parameter of PARAMETERS) {
      const value = Number(given[parameter.name]);
      parameter.show(parameter.name in given && !objection(parameter, value) ? value : parameter.start);
    }
    form.querySelector(`#explorer-scaling-${setting.scaling}`).checked = true;
  }

  function writeAddress() {
    const parts = PARAMETERS.map(({ name }) => `${name}=${plain(setting[name])}`);
    history.replaceState(null, "", `#${parts.join("&")}&scaling=${setting.scaling}`);
  }

  /* ---- figures ---- */

  const SIZE = { height: 260, left: 56, right: 12, top: 14, bottom: 42 };

  /** Text in which "_" begins a subscript of letters, as nodes: "E_n / E_t". */
  function typeset(text, inside = "sub", attributes = {}) {
    return text.split(/_([a-z]+)/).map((part, i) => (i % 2 ? element(inside, attributes, part) : part));
  }

  const svgText = (attributes, text) =>
    element("text", attributes, ...typeset(text, "tspan", { "baseline-shift": "-25%", "font-size": "75%" }));

  /** The powers of ten from the one below `low` to the one above `high`. */
  function decades(low, high) {
    const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high) - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
  }

  /** The ends of a log axis for these values: at least one decade, a little air. */
  function extent(values) {
    const least = Math.min(...values), most = Math.max(...values), middle = Math.sqrt(least * most);
    return [Math.min(least / 1.5, middle / 4), Math.max(most * 1.5, middle * 4)];
  }

  /** Ticks of a log axis: named powers of ten, at most about six, and unnamed ones between them. */
  function ticks(low, high) {
    const powers = decades(low, high), inside = (v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9);
    const every = Math.ceil(powers.filter(inside).length / 6), few = powers.length <= 12;
    const between = few ? powers.flatMap((v) => [2, 3, 4, 5, 6, 7, 8, 9].map((k) => k * v)) : powers;
    return { named: powers.filter((v, i) => inside(v) && i % every === 0), between: between.filter(inside) };
  }

  /** Lines on logarithmic axes, each with its label; `mark`, a point of the plane, gets a ring. */
  function chart(width, xs, lines, { title, xlabel, mark }) {
    const { height, left, right, top, bottom } = SIZE, [x0, x1] = [xs[0], Math.max(xs[xs.length - 1], 2 * xs[0])];
    const [y0, y1] = extent([...lines.flatMap((line) => line.values), ...(mark ? [mark[1]] : [])]);
    const x = (v) => left + ((width - left - right) * Math.log(v / x0)) / Math.log(x1 / x0);
    const y = (v) => height - bottom - ((height - top - bottom) * Math.log(v / y0)) / Math.log(y1 / y0);
    const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    const [across, up] = [ticks(x0, x1), ticks(y0, y1)];
    for (const v of up.named) {
      svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
      svg.append(svgText({ x: left - 7, y: y(v) + 4, "text-anchor": "end" }, power(v)));
    }
    for (const v of up.between) svg.append(tick(left, y(v), 4, 0));
    for (const v of across.named) {
      svg.append(tick(x(v), height - bottom, 0, -8));
      svg.append(svgText({ x: x(v), y: height - bottom + 18, "text-anchor": "middle" }, power(v)));
    }
    for (const v of across.between) svg.append(tick(x(v), height - bottom, 0, -4));
    svg.append(svgText({ x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xlabel));
    lines.forEach((line, i) => svg.append(...drawn(line, i, xs.map(x), line.values.map(y))));
    if (mark) svg.append(element("circle", { class: "mark", cx: x(mark[0]), cy: y(mark[1]), r: 6 }));
    return svg;
  }

  const power = (v) => (v >= 0.1 && v < 1000 ? String(Number(v.toPrecision(1))) : `10${superscript(Math.round(Math.log10(v)))}`);
  const tick = (x, y, dx, dy) => element("line", { class: "tick", x1: x, y1: y, x2: x + dx, y2: y + dy });

  /** One line, dots where there are few points, and its label where the line leaves room: above, on the open side. */
  function drawn({ values, text, at }, i, xs, ys) {
    const points = xs.map((x, j) => `${x},${ys[j]}`).join(" "), k = Math.round((xs.length - 1) ** at);
    const falling = values[0] > values[values.length - 1], anchor = at === 1 || !falling ? "end" : "start";
    const parts = [element("polyline", { class: `line-${i}`, points })];
    if (xs.length <= 20) parts.push(...xs.map((cx, j) => element("circle", { class: `line-${i}`, cx, cy: ys[j], r: 3 })));
    return [...parts, svgText({ class: `line-${i}`, x: xs[k], y: ys[k] - 8, "text-anchor": anchor }, text)];
  }

  /* ---- results ---- */

  function card(name, text, value, note = "") {
    const output = element("output", { id: `explorer-${name}` }, shown(value));
    output.dataset.value = value; // all digits, for whoever checks
    return element("div", { class: "explorer-card" }, element("p", {}, ...typeset(text)), output, element("small", {}, note));
  }

  function cards(found) {
    const share = Number((found.total / found.sampling).toPrecision(3));
    return element(
      "div",
      { class: "explorer-cards", "aria-live": "polite" },
      card("improvement", "Gain E_n / E_t", found.improvement, `no scaling gains more than d = ${setting.d}`),
      card("total", "Expected error", found.total, `${shown(share)} times the sampling error`),
      card("noise", "of it, noise", found.noise),
      card("clipping", "of it, clipping", found.clipping),
      card("clipNorm", "Clip norm C", found.clipNorm),
      card("noiseMultiplier", "Noise multiplier σ_opt", found.noiseMultiplier),
    );
  }

  function figure(svg, words) {
    return element("figure", {}, svg, element("figcaption", {}, ...typeset(words)));
  }

  function figures(found, width) {
    const wide = width > 700 ? Math.floor((width - 24) / 2) : width, js = found.sigma.map((_, j) => j + 1);
    const noises = [
      { values: found.sigma, text: "σ_j of a row", at: 0.5 },
      { values: found.noiseStd, text: "noise in the sum", at: 0.5 },
    ];
    if (setting.scaling !== "none") noises.push({ values: js.map(() => found.plainStd), text: "noise without scaling", at: 1 });
    const spread = { title: "Standard deviations of a row and of the noise, for each coordinate", xlabel: "coordinate j" };
    const scaled = { title: "The scaling of each coordinate", xlabel: "coordinate j" };
    return element(
      "div",
      { class: "explorer-figures" },
      figure(chart(wide, js, noises, spread), "Where the spread is small, so is the noise. Standard deviations, exact values."),
      figure(chart(wide, js, [{ values: found.scaling, text: "b_j", at: 0.5 }], scaled), "Narrow coordinates are stretched before clipping, by b_j. Exact values."),
      gainFigure(found, wide),
      python(),
    );
  }

  /* The gain over the skewness takes as long as all the rest, so its points come one by one and are kept. */
  const SKEWNESSES = Array.from({ length: 25 }, (_, i) => 10 ** (-1 + i / 12));
  let gains = { of: "", values: [] };

  function gainFigure(found, width) {
    const of = `${setting.d} ${setting.n}`;
    if (gains.of !== of) gains = { of, values: [] };
    const title = "Gain of Lemma 4.1 over the skewness; a ring marks the setting", mark = [Math.max(0.1, setting.alpha), found.improvement];
    const complete = () => gains.values.length === SKEWNESSES.length;
    const draw = () => {
      const lines = complete() ? [{ values: gains.values, text: "E_n / E_t of Lemma 4.1", at: 1 }] : [];
      return chart(width, SKEWNESSES, lines, { title, xlabel: "skewness α", mark });
    };
    const shownFigure = figure(draw(), "The gain begins at 1 and ends at d. The ring is the setting. Exact values.");
    const next = () => {
      if (gains.of !== of || !shownFigure.isConnected || complete()) return;
      gains.values.push(egm.improvement(setting.d, setting.n, SKEWNESSES[gains.values.length]));
      if (complete()) shownFigure.firstChild.replaceWith(draw());
      setTimeout(next);
    };
    setTimeout(next, 50);
    return shownFigure;
  }

  /** Every coordinate, up to a thousand, in a table that is filled when it is opened. */
  function table(found, open) {
    const head = ["j", "σ_j", "b_j", "noise"].map((text) => element("th", { scope: "col" }, ...typeset(text)));
    const row = (sigma, j) => {
      const values = [sigma, found.scaling[j], found.noiseStd[j]].map((value) => element("td", {}, shown(value)));
      return element("tr", {}, element("th", { scope: "row" }, String(j + 1)), ...values);
    };
    const body = element("tbody"), inside = element("table", {}, element("thead", {}, element("tr", {}, ...head)), body);
    const fill = () => body.childElementCount || body.append(...found.sigma.map(row));
    const scrolling = { class: "explorer-scroll", tabindex: 0, role: "region", "aria-label": "Every coordinate" };
    const details = element("details", {}, element("summary", {}, "Every coordinate"), element("div", scrolling, inside));
    details.addEventListener("toggle", fill);
    details.open = open;
    if (open) fill();
    return details;
  }

  function python() {
    const [alpha, d, n, epsilon, delta] = PARAMETERS.map(({ name }) => plain(setting[name]));
    const lines = [
      "from egm import GaussianDataMechanism",
      "from egm.study.tables import zipf_sigma",
      "",
      "mechanism = GaussianDataMechanism(",
      `    sigma=zipf_sigma(d=${d}, alpha=${alpha}),`,
      `    n=${n},`,
      `    epsilon=${epsilon},`,
      `    delta=${delta},`,
      `    scaling="${setting.scaling}",`,
      ")",
      "mechanism.clip_norm",
      "mechanism.noise_std",
      "mechanism.error(mean=0)",
    ];
    return element("pre", { tabindex: 0, role: "region", "aria-label": "The same in Python" }, lines.join("\n"));
  }

  let waiting = 0, writing = 0;

  function show() {
    const found = egm.forecast(setting), open = results.querySelector("details")?.open ?? false;
    results.replaceChildren(cards(found), figures(found, results.clientWidth), table(found, open));
    clearTimeout(writing);
    writing = setTimeout(writeAddress, 300); // browsers refuse an address that changes with every step of a slider
  }

  /** Compute once for all changes since the last picture. */
  function refresh() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(show);
  }

  form.append(...PARAMETERS.map(control), choice());
  form.addEventListener("submit", (event) => event.preventDefault());
  page.hidden = false;
  readAddress();
  addEventListener("hashchange", () => {
    if (!location.hash.includes("alpha=")) return;
    readAddress();
    refresh();
  });
  let width = results.clientWidth;
  new ResizeObserver(() => {
    if (results.clientWidth === width) return;
    width = results.clientWidth;
    refresh();
  }).observe(results);
  show();
})();
