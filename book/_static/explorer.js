/* The explorer's page: parameters and a choice of scaling in, numbers and figures out. All mathematics is in
   explorer-math.js and runs in a worker, so that the page answers while it computes; only two columns are computed at once.
   The setting is kept in the page's address, after the "#". */

"use strict";

(() => {
  const PARAMETERS = [
    { name: "alpha", text: "Skewness", symbol: "α", low: 0, high: 10, start: 1, step: 0.05 },
    { name: "d", text: "Coordinates", symbol: "d", low: 1, high: 1000, start: 100, whole: true },
    { name: "n", text: "Rows", symbol: "n", low: 10, high: 1e9, start: 1e6, whole: true },
    { name: "epsilon", text: "Privacy", symbol: "ε", low: 0.01, high: 50, start: 1 },
    { name: "delta", text: "Privacy", symbol: "δ", low: 1e-12, high: 0.1, start: 1e-6 },
    { name: "offset", text: "Center off by", symbol: "t σ", low: 0, high: 3, start: 0, step: 0.01 },
    { name: "p", text: "Clip probability", symbol: "p", low: 1e-12, high: 0.5, start: 0.001 },
  ];
  const PAIR = [
    { name: "ratio", text: "Ratio of the spreads", symbol: "σ₂/σ₁", low: 0.01, high: 1, start: 0.5 },
    { name: "r", text: "Correlation", symbol: "r", low: -0.99, high: 0.99, start: 0.8, step: 0.01 },
    { name: "angle", text: "Angle in degrees", symbol: "θ", low: -90, high: 90, start: -30, step: 1 },
  ];
  const BASES = { columns: "the columns", eigenvectors: "the eigenvectors", turned: "the columns, turned by an angle" };
  const SCALINGS = { none: "none", expected_norm: "Lemma 4.1, the report's", optimal: "optimal" };
  const NOISES = { gaussian: "Gaussian", l2: "l2" };
  const CLIPS = { default: "1/n, the report's", best: "best, with the least total error", given: "another" };
  const CURVES = { none: "no scaling", expected_norm: "Lemma 4.1", optimal: "optimal" };
  const OWN = { low: 1e-100, high: 1e100, most: 1000 }; // standard deviations of the reader's own
  const NAMES = ["basis", ...[...PAIR, ...PARAMETERS].map(({ name }) => name), "sigma", "scaling", "noise"];
  const STATE = new RegExp(`[#&](?:${NAMES.join("|")})=`); // in an address with a setting

  const page = document.getElementById("egm-explorer");
  const form = page.querySelector("form");
  const results = page.querySelector(".explorer-results");
  const pairPage = document.getElementById("egm-pair");
  const pairResults = pairPage.querySelector(".pair-results");
  const setting = { scaling: "expected_norm", clip: "default", own: [] };

  /** An element with attributes and children; strings become text. */
  function element(name, attributes = {}, ...children) {
    const svg = ["svg", "g", "line", "polyline", "text", "circle", "tspan"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  /* ---- the worker ---- */

  /** Returns a function that computes one of egm's functions elsewhere: a promise of its value. A page from a file may not
      load a script into a worker, but may give it one as text. */
  function engine() {
    const code = `const egm = (${mathematics})();
      onmessage = ({ data: [name, values] }) => {
        try { postMessage({ value: egm[name](...values) }); } catch (error) { postMessage({ error }); }
      };`;
    const asked = []; // answers come in the order of the questions
    try {
      const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
      worker.onmessage = ({ data }) => {
        const [resolve, reject] = asked.shift();
        if (data.error) reject(data.error);
        else resolve(data.value);
      };
      return (name, ...values) => {
        worker.postMessage([name, values]);
        return new Promise((...answers) => asked.push(answers));
      };
    } catch { // a browser without such workers
      return (name, ...values) => new Promise((resolve) => setTimeout(resolve)).then(() => egm[name](...values));
    }
  }

  const compute = engine();

  /* ---- numbers as text ---- */

  /** Six digits, with commas from 10,000 on, and with a power of ten where the number is far from one. */
  function shown(value) {
    if (value === 0 || (Number.isInteger(value) && Math.abs(value) <= 1e9)) return counted(value);
    const exponent = Math.floor(Math.log10(Math.abs(value)));
    if (exponent >= -3 && exponent < 6) return counted(Number(value.toPrecision(6)));
    const [mantissa, power] = value.toExponential(5).split("e");
    return `${Number(mantissa)} × 10${superscript(power)}`;
  }

  const [grouped, ungrouped] = [true, false].map(
    (useGrouping) => new Intl.NumberFormat("en-US", { useGrouping, maximumSignificantDigits: 10 }));
  const counted = (value) => (Math.abs(value) >= 1e4 ? grouped : ungrouped).format(value + 0); // 0 has no sign

  /** Three digits of a number beside which the exact one stands. */
  const rough = (value) => shown(Number(value.toPrecision(3)));

  const superscript = (power) => String(Number(power)).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(c)]);

  /** A number as Python and the input fields write it, without digits that say nothing. */
  function plain(value) {
    const decimal = String(Number(value.toPrecision(12))), short = value.toExponential().replace("e+", "e");
    return short.length < decimal.length && !Number.isSafeInteger(value) ? short : decimal;
  }

  /* ---- the controls ---- */

  /** The values at which a slider stops: equal steps, or 35 numbers of two digits in each power of ten. */
  function stops({ low, high, step, whole }) {
    const rounded = (value) => Number(value.toPrecision(12));
    if (step) return Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => rounded(low + i * step));
    const digits = Array.from({ length: 90 }, (_, i) => i + 10).filter((k) => k % (k < 20 ? 1 : k < 50 ? 2 : 5) === 0);
    const all = decades(low, high).flatMap((power) => digits.map((k) => rounded((k / 10) * power)));
    const inside = all.filter((value) => value >= low && value <= high);
    return [...new Set(whole ? inside.map(Math.round) : inside)];
  }

  /** The number that a decimal text says, such as "1.5e-3". */
  const decimal = (text) => (/^[\d.e+-]+$/i.test(text) ? Number(text) : NaN);

  /** The number that a text says; a whole one may have commas between groups of three digits, as numbers on this page do,
      and no point, which might stand between groups as well, unless a power of ten follows. */
  function typed({ whole }, text) {
    const words = text.trim(), digits = whole && /^\d{1,3}(,\d{3})+$/.test(words) ? words.replaceAll(",", "") : words;
    return whole && /^[^e]*\.[^e]*$/i.test(digits) ? NaN : decimal(digits);
  }

  /** Why a value, which was typed as a text, cannot be taken, or "". */
  function objection({ low, high, whole, symbol }, value, text = "") {
    if (Number.isFinite(value) && value >= low && value <= high && !(whole && !Number.isInteger(value))) return "";
    const end = (value) => (whole ? counted(value) : plain(value)), written = whole && /\d\.\d{3}/.test(text);
    const range = `${whole ? "a whole number" : "a number"} from ${end(low)} to ${end(high)}`;
    return `${symbol} must be ${range}${written ? ", written as 1000 or 1,000" : ""}`;
  }

  /** A place for complaints about an input, and the function that puts one there. */
  function complaints(input) {
    const place = element("p", { id: `${input.id}-complaint`, class: "explorer-complaint", role: "alert" });
    input.setAttribute("aria-describedby", place.id);
    const complain = (words) => {
      place.textContent = words;
      input.setAttribute("aria-invalid", words !== "");
    };
    return [place, complain];
  }

  /** A slider and a number for one parameter; either sets the other. The slider also stops at a number that was typed. */
  function control(parameter) {
    const { name, text, symbol } = parameter, grid = stops(parameter);
    const hint = element("small");
    const label = element("label", { for: `explorer-${name}` }, `${text} `, element("i", {}, symbol), hint);
    const number = element("input", { id: `explorer-${name}`, inputmode: "decimal", size: 9 });
    const described = { "aria-label": `${text} ${symbol}, slider`, type: "range", min: 0, step: 1 };
    const slider = element("input", { id: `explorer-${name}-slider`, ...described });
    const [complaint, complain] = complaints(number);
    let values = grid;
    const take = (value) => {
      setting[name] = value;
      if (!values.includes(value)) values = [...new Set([...grid, value])].sort((a, b) => a - b);
      slider.max = values.length - 1;
      slider.value = values.indexOf(value);
      slider.setAttribute("aria-valuetext", shown(value));
      hint.textContent = value >= 1e4 ? ` = ${shown(value)}` : "";
      complain("");
    };
    parameter.show = (value) => {
      take(value);
      number.value = plain(value);
    };
    slider.addEventListener("input", () => {
      parameter.show(values[slider.value]);
      changed(name);
    });
    number.addEventListener("input", () => {
      const value = typed(parameter, number.value), words = objection(parameter, value, number.value);
      if (words) return complain(words);
      take(value);
      changed(name);
    });
    parameter.inputs = [number, slider];
    parameter.control = element("div", { class: "explorer-control" }, label, number, slider, complaint);
    return parameter.control;
  }

  /** The choice of one of several options, which sets `setting[name]`. */
  function choice(name, legend, texts, ...others) {
    const options = Object.entries(texts).map(([value, text]) => {
      const radio = element("input", { type: "radio", name, value, id: `explorer-${name}-${value}` });
      radio.addEventListener("change", () => {
        setting[name] = value;
        changed(name);
      });
      return element("label", {}, radio, ` ${text}`);
    });
    return element("fieldset", {}, element("legend", {}, legend), ...options, ...others);
  }

  /** The numbers in a text, and what is wrong with it, or "". */
  function listed(text) {
    if (text.includes(";") && /\d,\d/.test(text)) // decimal commas, or commas between thousands
      return [[], "Separate the numbers by “,” or by “;”, not by both, and write them as 1.5 or 1200"];
    const [, twofold] = /(?:^|[\s;])([1-9]\d{0,2}(?:\.\d{3})+,\d+)(?=,?(?:[\s;]|$))/.exec(text) ?? [];
    const [, pair] = (/\S\s+\S/.test(text) && /(?:^|[\s,])(\d+,\d[\d.]*)/.exec(text)) || [];
    if (twofold || pair) // points or commas between thousands, a decimal comma, or between two numbers no space
      return [[], `“${(twofold || pair).slice(0, 20)}” may be one number or two. Write one as 1.5 or 1200, and two with a space between them`];
    const entries = text.split(/[\s,;]+/).filter(Boolean), numbers = entries.map(decimal);
    const fits = (value) => value >= OWN.low && value <= OWN.high;
    const wrong = entries.map((entry, i) => `entry ${i + 1}, “${entry.slice(0, 20)}”`).filter((_, i) => !fits(numbers[i]));
    const named = wrong.length > 3 ? [...wrong.slice(0, 3), `${counted(wrong.length - 3)} more`] : wrong;
    if (wrong.length) return [[], `Not numbers from ${plain(OWN.low)} to ${plain(OWN.high)}: ${named.join("; ")}`];
    return [numbers, entries.length > OWN.most ? `At most 1000 numbers, not ${counted(entries.length)}` : ""];
  }

  let showOwn; // puts numbers into the field for standard deviations of the reader's own

  function ownSigma() {
    const field = element("textarea", { id: "explorer-sigma", rows: 2, spellcheck: "false", placeholder: "18, 1200, 3" });
    const [complaint, complain] = complaints(field);
    field.addEventListener("input", () => {
      const [numbers, words] = listed(field.value);
      complain(words);
      if (words) return;
      setting.own = numbers;
      refresh();
    });
    showOwn = (numbers) => {
      setting.own = numbers;
      field.value = numbers.map(plain).join(", ");
      complain("");
    };
    const text = ["Standard deviations of your own, instead of ", element("i", {}, "α"), " and ", element("i", {}, "d")];
    const label = element("label", { for: field.id }, ...text);
    return element("div", { class: "explorer-own" }, label, field, complaint);
  }

  /** Controls that have no effect now are switched off or hidden. */
  function adapt() {
    for (const { name, inputs, control } of PARAMETERS) {
      if (name === "p") control.hidden = setting.clip !== "given";
      else if (name === "alpha" || name === "d") for (const input of inputs) input.disabled = setting.own.length > 0;
    }
  }

  /* ---- the setting in the address ---- */

  function readAddress(hash) {
    const text = hash.slice(1).replaceAll("+", "%2B"); // a plus sign is no space here
    const given = Object.fromEntries(new URLSearchParams(text));
    if (Object.hasOwn(SCALINGS, given.scaling ?? "")) setting.scaling = given.scaling;
    for (const parameter of [...PAIR, ...PARAMETERS]) {
      const value = typed(parameter, given[parameter.name] ?? "");
      parameter.show(objection(parameter, value) ? parameter.start : value);
    }
    const [numbers, words] = listed((given.sigma ?? "").replaceAll(",", ", ")); // commas separate numbers there
    showOwn(words ? [] : numbers);
    setting.noise = Object.hasOwn(NOISES, given.noise ?? "") ? given.noise : "gaussian";
    setting.basis = Object.hasOwn(BASES, given.basis ?? "") ? given.basis : "eigenvectors";
    setting.clip = given.p === "best" ? "best" : setting.p === Number(given.p) ? "given" : "default";
    for (const name of ["scaling", "noise", "clip", "basis"])
      document.getElementById(`explorer-${name}-${setting[name]}`).checked = true;
  }

  function writeAddress() {
    const value = (name) => (name === "p" && setting.clip !== "given" ? clip() : plain(setting[name]));
    const parts = [`basis=${setting.basis}`, ...[...PAIR, ...PARAMETERS].map(({ name }) => `${name}=${value(name)}`)];
    if (setting.own.length) parts.push(`sigma=${setting.own.map(plain).join(",")}`);
    history.replaceState(null, "", `#${parts.join("&")}&scaling=${setting.scaling}&noise=${setting.noise}`);
  }

  /** Writes the address soon: browsers refuse one that changes with every step of a slider. */
  function keepAddress() {
    clearTimeout(writing);
    writing = setTimeout(writeAddress, 300);
  }

  const clip = () => ({ default: "1/n", best: "best", given: setting.p })[setting.clip];

  /** The setting as explorer-math.js takes it. */
  function question() {
    const { own, alpha, d, n, epsilon, delta, offset, scaling, noise } = setting;
    return { ...(own.length ? { sigma: own } : { alpha, d }), n, epsilon, delta, offset, scaling, noise, p: clip() };
  }

  /* ---- figures ---- */

  const SIZE = { height: 260, left: 56, right: 22, top: 14, bottom: 42 };
  const ruler = document.createElement("canvas").getContext("2d"); // measures text

  /** Text in which "_" begins a subscript of letters, as nodes: "E_n / E_t". */
  function typeset(text, inside = "sub", attributes = {}) {
    return text.split(/_([a-z]+)/).map((part, i) => (i % 2 ? element(inside, attributes, part) : part));
  }

  const svgText = (attributes, text) =>
    element("text", attributes, ...typeset(text, "tspan", { "baseline-shift": "-25%", "font-size": "75%" }));

  /** The powers of ten from the one below `low` to the one above `high`. */
  function decades(low, high) {
    const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high) - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => Number(`1e${first + i}`));
  }

  /** The ends of a log axis for these values: at least one decade, a little air. */
  function extent(values) {
    const least = Math.min(...values), most = Math.max(...values), middle = Math.sqrt(least) * Math.sqrt(most);
    return [Math.min(least / 1.5, middle / 4), Math.max(most * 1.5, middle * 4)];
  }

  /** Ticks of a log axis of so many pixels: named powers of ten, at most about six, and unnamed ones between them, as many
      as are two pixels apart. */
  function ticks(low, high, pixels) {
    const powers = decades(low, high), inside = (v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9);
    const every = Math.ceil(powers.filter(inside).length / 6), power = pixels / Math.log10(high / low);
    const apart = (digits) => Math.min(...digits.map((k, i) => Math.log10((digits[i + 1] ?? 10) / k))) * power >= 2;
    const digits = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1]].find(apart) ?? [];
    const between = powers.flatMap((v) => digits.map((k) => k * v));
    const most = powers.filter((v, i) => inside(v) && i % every === 0), steps = powers.flatMap((v) => [v, 2 * v, 5 * v]);
    const named = most.length > 1 ? most : steps.filter(inside), near = named.every((v) => v >= 1e-3 && v < 1e4);
    const name = (v) => {
      const [digit, power] = v.toExponential(0).split("e");
      return near ? shown(v) : `${digit === "1" ? "" : `${digit}·`}10${superscript(power)}`;
    };
    return { named: named.map((v) => [v, name(v)]), between: between.filter(inside) };
  }

  /** Lines on logarithmic axes, each with its label; `mark`, a point of the plane, gets a ring. */
  function chart(width, xs, lines, { title, xlabel, mark }) {
    const { height, left, right, top, bottom } = SIZE, [x0, x1] = [xs[0], Math.max(xs[xs.length - 1], 2 * xs[0])];
    const [y0, y1] = extent([...lines.flatMap((line) => line.values), ...(mark ? [mark[1]] : [])]);
    const x = (v) => left + ((width - left - right) * Math.log(v / x0)) / Math.log(x1 / x0);
    const [low, high] = [Math.log(y0), Math.log(y1)];
    const y = (v) => height - bottom - ((height - top - bottom) * (Math.log(v) - low)) / (high - low);
    const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    const [across, up] = [ticks(x0, xs[xs.length - 1], width - left - right), ticks(y0, y1, height - top - bottom)];
    for (const [v, name] of up.named) {
      svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
      svg.append(svgText({ x: left - 7, y: y(v) + 4, "text-anchor": "end" }, name));
    }
    for (const v of up.between) svg.append(tick(left, y(v), 4, 0));
    for (const [v, name] of across.named) {
      svg.append(tick(x(v), height - bottom, 0, -8));
      svg.append(svgText({ x: x(v), y: height - bottom + 18, "text-anchor": "middle" }, name));
    }
    for (const v of across.between) svg.append(tick(x(v), height - bottom, 0, -4));
    svg.append(svgText({ x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xlabel));
    const paths = lines.map((line) => line.values.map((v, j) => [x(xs[j]), y(v)]));
    lines.forEach((line, i) => svg.append(...drawn(line.kind, paths[i])));
    svg.append(...labels(lines, paths, { left, right: width - right, top, bottom: height - bottom }));
    if (mark) svg.append(element("circle", { class: "mark", cx: x(mark[0]), cy: y(mark[1]), r: 6 }));
    return svg;
  }

  const tick = (x, y, dx, dy) => element("line", { class: "tick", x1: x, y1: y, x2: x + dx, y2: y + dy });

  /** One line, with dots where there are few points. */
  function drawn(kind, path) {
    const line = element("polyline", { class: `line-${kind}`, points: path.map((point) => point.join(",")).join(" ") });
    const dots = path.length > 20 ? [] : path.map(([cx, cy]) => element("circle", { class: `line-${kind}`, cx, cy, r: 3 }));
    return [line, ...dots];
  }

  /** The labels of the lines: each close to its line, inside the frame, where it hides the least of lines and labels.
      The flattest line comes first, because it leaves the fewest places. `names` are other texts, and `strokes` other lines. */
  function labels(lines, paths, frame, { names = [], strokes = [] } = {}) {
    ruler.font = `13px ${getComputedStyle(page).fontFamily}`;
    const dense = paths.map((path, i) =>
      lines[i].closed ? path : Array.from({ length: 201 }, (_, i) => between(path, i / 200)));
    const placed = [...names], points = [...dense, ...strokes].flat();
    const rise = (path, ys = path.map(([, y]) => y)) => Math.max(...ys) - Math.min(...ys);
    const flattest = lines.map((line, i) => ({ ...line, path: dense[i] }));
    return flattest.sort((a, b) => rise(a.path) - rise(b.path)).map(({ kind, text, closed, path }) => {
      const width = ruler.measureText(text.replace("_", "")).width + 4;
      let best = { cost: Infinity };
      for (const [px, py] of path.filter((_, k) => k % (closed ? 2 : 10) === 0)) {
        [-9, 17, -26, 34].forEach((dy, far) => {
          const x = Math.max(frame.left + 6, Math.min(px - width / 2, frame.right - width)), y = py + dy;
          const beside = (other) => x > other.x + other.width + 6 || other.x > x + width + 6;
          const over = placed.filter((other) => Math.abs(other.y - y) < 17 && !beside(other));
          const least = far + 1e3 * over.length + (y < 13 || y > frame.bottom - 8 ? 1e4 : 0);
          if (least >= best.cost) return; // the points need not be counted
          const inside = ([qx, qy]) => qx > x - 3 && qx < x + width + 3 && qy > y - 14 && qy < y + 7;
          const cost = least + points.filter(inside).length;
          if (cost < best.cost) best = { x, y, width, cost };
        });
      }
      placed.push(best);
      return svgText({ class: `line-${kind}`, x: best.x, y: best.y }, text);
    });
  }

  /** The point at a share of the width of a path. */
  function between(path, share) {
    const x = path[0][0] + share * (path[path.length - 1][0] - path[0][0]);
    const k = Math.max(1, path.findIndex(([px]) => px >= x)), [a, b] = [path[k - 1], path[k] ?? path[k - 1]];
    return [x, b[0] > a[0] ? a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]) : a[1]];
  }

  /* ---- results ---- */

  function card(name, text, value, unit, ...notes) {
    const output = element("output", { id: `explorer-${name}` }, shown(value));
    output.dataset.value = value; // all digits, for whoever checks
    const number = element("div", {}, output, unit && element("span", {}, ` ${unit}`));
    const small = notes.map((note) => element("small", {}, ...typeset(note)));
    return element("div", { class: "explorer-card" }, element("p", {}, ...typeset(text)), number, ...small);
  }

  const GAINS = { none: "Gain, no scaling", expected_norm: "Gain E_n / E_t", optimal: "Gain of the optimal scaling" };

  function cards({ asked, found }) {
    const [length, square] = asked.sigma ? ["units", "units²"] : ["Σσ", "(Σσ)²"], unscaled = asked.scaling === "none";
    const part = (value) => `${rough((100 * value) / found.total)} % of the expected error`;
    const off = asked.offset ? part(found.center) : "none, as the center is the mean";
    const times = `${rough(found.total / found.sampling)} times the sampling error`;
    const at = asked.p === "best" ? ", at p = 1/n" : "", d = counted(found.sigma.length);
    const gained = unscaled ? "the error from the noise" : `less error from the noise${at}; at most d = ${d}`;
    const laws = `l2 over Gaussian: ${rough(found.l2OverGaussian)}`;
    const symbol = asked.noise === "l2" ? "" : " σ_opt";
    const rows = `${rough(found.clipProbability * asked.n)} of ${counted(asked.n)} rows, if the center is right`;
    return element(
      "div",
      { class: "explorer-cards", "aria-live": "polite" },
      card("total", "Expected squared error", found.total, square, times),
      card("sampling", "Sampling error", found.sampling, square, "without any privacy: n times the sum of all σ_j²"),
      card("improvement", GAINS[asked.scaling], found.improvement, "times", gained),
      card("noise", "Error from the noise", found.noise, square, part(found.noise), laws),
      card("clipping", "Error from clipping", found.clipping, square, part(found.clipping)),
      card("center", "Error from the center", found.center, square, off),
      card("clipNorm", "Clip norm C", found.clipNorm, unscaled ? length : "", unscaled ? "of a row" : "of a scaled row"),
      card("clipProbability", "Clip probability p", found.clipProbability, "", rows),
      card("noiseMultiplier", `Noise multiplier${symbol}`, found.noiseMultiplier, "", "for a query of sensitivity 1"),
    );
  }

  function figure(svg, words, attributes = {}) {
    return element("figure", attributes, svg, element("figcaption", {}, ...typeset(words)));
  }

  function figures({ asked, found }, width) {
    const wide = width >= 700 ? Math.floor((width - 24) / 2) : width, js = found.sigma.map((_, j) => j + 1);
    const noises = [
      { kind: "row", values: found.sigma, text: "σ_j of a row" },
      { kind: asked.scaling, values: found.noiseStd, text: "noise in the sum" },
    ];
    const unscaled = { kind: "none", values: js.map(() => found.plainStd), text: "noise without scaling" };
    if (asked.scaling !== "none") noises.push(unscaled);
    const spread = { title: "Standard deviations of a row and of the noise, for each coordinate", xlabel: "coordinate j" };
    const scaled = { title: "The scaling of each coordinate", xlabel: "coordinate j" };
    const scalings = [{ kind: asked.scaling, values: found.scaling, text: "b_j" }];
    const [ofNoise, ofScaling] =
      asked.scaling === "none"
        ? ["Without scaling, all coordinates get the same noise.", "Nothing is scaled: b_j = 1."]
        : ["Where the spread is small, so is the noise.", "Narrow coordinates are stretched before clipping, by b_j."];
    return element(
      "div",
      { class: "explorer-figures" },
      figure(chart(wide, js, noises, spread), `${ofNoise} Standard deviations, exact values.`),
      figure(chart(wide, js, scalings, scaled), `${ofScaling} Exact values.`),
      ...(asked.sigma ? [] : [gainFigure(last, wide)]),
      python(asked),
    );
  }

  /* ---- the gain over the skewness, whose points are computed one by one and kept ---- */

  const SKEWNESSES = Array.from({ length: 25 }, (_, i) => 10 ** (-1 + i / 12));
  const known = new Map();
  let drawnGains = []; // the last complete curves: they stay, in gray, until those of a new setting are complete

  /** The curves of a setting: that of Lemma 4.1, and that of the chosen scaling. */
  function curvesOf({ asked, found }) {
    const p = asked.p === "best" || asked.p === "1/n" ? 1 / asked.n : asked.p;
    return [...new Set(["expected_norm", asked.scaling])].map((kind) => {
      const key = `${kind} ${found.sigma.length} ${p}`;
      if (!known.has(key)) known.set(key, []);
      return { kind, p, d: found.sigma.length, text: CURVES[kind], values: known.get(key) };
    });
  }

  const complete = (curves) => curves.every(({ values }) => values.length === SKEWNESSES.length);

  function gainFigure(setting, width) {
    const curves = curvesOf(setting), { asked, found } = setting, fresh = complete(curves);
    if (fresh) drawnGains = curves;
    const title = "Gain of the scalings over the skewness; a ring marks the setting";
    const mark = [Math.max(0.1, asked.alpha), found.improvement];
    const caption = "The gain E_n / E_t, from 1 to d. The ring is the setting, at the left end for α below 0.1. Exact values.";
    const svg = chart(width, SKEWNESSES, drawnGains, { title, xlabel: "skewness α", mark });
    return figure(svg, caption, { id: "explorer-gains", "aria-busy": !fresh });
  }

  /** Computes the curves that are not known yet, unless the setting changes before. */
  async function completeGains() {
    const curves = last.asked.sigma ? [] : curvesOf(last);
    if (complete(curves)) return;
    for (const { kind, d, p, values } of curves) {
      while (values.length < SKEWNESSES.length) {
        const sigma = egm.zipfSigma(d, SKEWNESSES[values.length]), value = await compute("gain", sigma, p, kind);
        values.push(value);
        if (asking) return;
      }
    }
    const place = results.querySelector("#explorer-gains");
    place.replaceWith(gainFigure(last, Number(place.firstChild.getAttribute("width"))));
  }

  /** Every coordinate, up to a thousand, in a table that is filled when it is opened. */
  function table({ found }, open) {
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

  /** The same in Python, for the setting. */
  function python({ alpha, d, sigma, n, epsilon, delta, scaling, noise, p, offset }) {
    const off = offset ? `${plain(offset)} * sigma` : "0";
    const rows = sigma ? `${sigma.map(plain).join(", ")},`.match(/\S.{0,50},(?= |$)/g) : [];
    const lines = [
      ...(sigma ? ["import numpy as np", ""] : []),
      "from egm import GaussianDataMechanism",
      ...(sigma ? [] : ["from egm.study.tables import zipf_sigma"]),
      "",
      ...(sigma ? ["sigma = np.array([", ...rows.map((row) => `    ${row}`), "])"] : [`sigma = zipf_sigma(d=${d}, alpha=${plain(alpha)})`]),
      "mechanism = GaussianDataMechanism(",
      "    sigma,",
      `    n=${counted(n).replaceAll(",", "_")},`,
      `    epsilon=${plain(epsilon)},`,
      `    delta=${plain(delta)},`,
      `    scaling="${scaling}",`,
      ...(noise === "l2" ? ['    noise="l2",'] : []),
      ...(p === "1/n" ? [] : [`    clip_probability=${p === "best" ? '"optimal"' : plain(p)},`]),
      ...(p === "best" ? [`    center_std=${off},`, "    sigma_factor=1,"] : []),
      ")",
      "mechanism.clip_norm",
      "mechanism.noise_std",
      `mechanism.error(mean=${off})`,
    ];
    return element("pre", { tabindex: 0, role: "region", "aria-label": "The same in Python" }, lines.join("\n"));
  }

  let last = null; // the setting whose results are shown, and these results
  let asking = false, again = false, writing = 0;

  function show() {
    if (!last) return;
    const open = results.querySelector("details")?.open ?? false;
    results.replaceChildren(status, cards(last), figures(last, results.clientWidth), table(last, open));
  }

  /** Draws the figures for another width. The other results stay, with their focus and their scroll positions. */
  function redraw() {
    if (!last) return;
    const drawings = figures(last, results.clientWidth).querySelectorAll("figure");
    results.querySelectorAll("figure").forEach((one, i) => one.replaceWith(drawings[i]));
  }

  const status = element("p", { class: "explorer-status", role: "status" });

  /** Compute and show; what changes in the meantime is computed next. The old results stay until then, marked. */
  async function refresh() {
    adapt();
    keepAddress();
    showPair();
    results.setAttribute("aria-busy", true);
    again = true;
    if (asking) return;
    asking = true;
    while (again) {
      again = false;
      const asked = question(), found = await compute("forecast", asked).catch(() => null);
      status.textContent = found ? "" : "This setting cannot be computed here. The results are those of the one before.";
      if (found) last = { asked, found };
      show();
    }
    asking = false;
    results.setAttribute("aria-busy", false);
    if (last) await completeGains();
  }

  /* ---- two correlated columns, which are computed at once ---- */

  /** Ellipses around a center, { kind, text, angle, axes }, each with its label; the vectors of the last one are drawn. */
  function plane(width, reach, ellipses, title) {
    const height = 300, [cx, cy] = [width / 2, height / 2], unit = (cy - 4) / reach;
    const point = (angle, along, across) => {
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      return [cx + unit * (c * along - s * across), cy - unit * (s * along + c * across)];
    };
    const turns = Array.from({ length: 201 }, (_, i) => (i * Math.PI) / 100);
    const arc = ({ angle, axes: [a, b] }) => turns.map((t) => point(angle, a * Math.cos(t), b * Math.sin(t)));
    const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    svg.append(element("line", { class: "grid", x1: 0, x2: width, y1: cy, y2: cy }));
    svg.append(element("line", { class: "grid", x1: cx, x2: cx, y1: 0, y2: height }));
    const names = [{ x: 4, y: 14, width: 72 }, { x: width - 76, y: height - 6, width: 72 }];
    names.forEach(({ x, y }, i) => svg.append(svgText({ x, y }, ["column 2 ↑", "column 1 →"][i])));
    const { kind, angle, axes } = ellipses[ellipses.length - 1], shares = turns.map((t) => t / turns[200]);
    const vectors = [[axes[0], 0], [0, axes[1]]].map(([a, b]) => shares.map((share) => point(angle, share * a, share * b)));
    for (const vector of vectors) svg.append(...drawn(kind, vector));
    const lines = ellipses.map((ellipse) => ({ ...ellipse, closed: true })), paths = lines.map(arc);
    lines.forEach((line, i) => svg.append(...drawn(line.kind, paths[i])));
    const cross = shares.flatMap((share) => [[share * width, cy], [cx, share * height]]);
    svg.append(...labels(lines, paths, { left: 0, right: width, bottom: height }, { names, strokes: [cross, ...vectors] }));
    return svg;
  }

  let shownPair = ""; // the setting and the width with which the two columns are shown

  /** Shows the clip region and the noise of two columns, at the privacy and the clip probability that are set above. */
  function showPair() {
    PAIR[2].control.hidden = setting.basis !== "turned";
    const { ratio, r, basis, angle: turn, n, epsilon, delta, noise } = setting, width = pairResults.clientWidth;
    const asked = { ratio, r, basis, angle: turn, n, epsilon, delta, noise, p: clip() };
    const now = JSON.stringify([asked, width]);
    if (now === shownPair) return; // also so that nothing is read out again
    shownPair = now;
    const { columns, chosen, law, p, multiplier } = egm.pair(asked);
    const wide = width >= 700 ? Math.floor((width - 24) / 2) : width;
    const angle = counted(Number(((chosen.angle * 180) / Math.PI).toFixed(1))), degrees = `${angle.replace("-", "−")}°`;
    const ellipses = (part) => [
      { kind: "columns", text: "columns", angle: 0, axes: columns[part] },
      { kind: "expected_norm", text: `at ${degrees}`, angle: chosen.angle, axes: chosen[part] },
    ];
    const reach = Math.sqrt(-2.3 * Math.log(p)) * Math.hypot(...columns.sigma), times = 2 * multiplier;
    const regions = [{ kind: "row", text: "rows", ...law }, ...ellipses("clipAxes")], noises = ellipses("noiseStd");
    const titles = ["Rows and clip regions", "Noise"].map((title) => `${title}: in the columns, and at ${degrees}`);
    const norm = ({ clipNorm }) => `clip norm C = ${rough(clipNorm)}`;
    const product = `${rough(chosen.product / columns.product)} at the mean square radius`;
    const share = `p = ${rough(p)}`.replaceAll(" ", "\u00a0");
    pairResults.replaceChildren(
      element(
        "div",
        { class: "explorer-cards", "aria-live": "polite" },
        card("pair-ratio", "Noise over that of the columns", chosen.noise / columns.noise, "", product),
        card("pair-columns", "Noise variance, columns", columns.noise, "(Σσ)²", norm(columns)),
        card("pair-chosen", `Noise variance at ${degrees}`, chosen.noise, "(Σσ)²", norm(chosen)),
      ),
      element(
        "div",
        { class: "explorer-figures" },
        figure(plane(wide, reach, regions, titles[0]), `Each ellipse holds all rows but the share ${share}.`),
        figure(
          plane(wide, times * reach, noises, titles[1]),
          `One standard deviation of the noise in the sum: the clip region, ${rough(times)} times as large.`,
        ),
      ),
    );
  }

  /** Shows what depends on a parameter or a choice. */
  function changed(name) {
    if (name !== "basis" && !PAIR.some((parameter) => parameter.name === name)) return refresh();
    keepAddress();
    showPair();
  }

  const controls = PARAMETERS.map(control), ownP = controls.pop();
  const choices = [choice("scaling", "Scaling", SCALINGS), choice("noise", "Noise", NOISES)];
  form.append(...controls, ownSigma(), ...choices, choice("clip", "Clip probability", CLIPS, ownP));
  const [ratio, correlation, angle] = PAIR.map(control), pairForm = pairPage.querySelector("form");
  pairForm.append(ratio, correlation, choice("basis", "Basis", BASES, angle));
  for (const one of [form, pairForm]) one.addEventListener("submit", (event) => event.preventDefault());
  page.hidden = pairPage.hidden = false;
  readAddress(location.hash);
  addEventListener("hashchange", ({ newURL }) => {
    const { hash } = new URL(newURL); // `location` may hold an older setting again, if its address was written meanwhile
    if (!STATE.test(hash)) return keepAddress(); // a link to a section; an address without the setting would lose it
    readAddress(hash);
    refresh();
  });
  let width = results.clientWidth;
  new ResizeObserver(() => {
    if (results.clientWidth === width) return;
    width = results.clientWidth;
    redraw();
    showPair();
  }).observe(results);
  refresh();
})();
