/* The mathematics of the explorer, for Zipf-distributed spreads and n >= 10 rows: what egm.calibration, egm.gx2,
   egm.scaling and egm.forecast compute, in doubles and by the same formulas. The tests compare the two.

   Q = sum_j w_j Z_j^2 is scaled by twice its largest weight, so that with r_j = w_j / max w its cumulant function is
   K(s) = -1/2 sum_j log(1 - r_j s). Tails are integrals of exp(K(s) - s x) along a parabola through the saddle point
   c of exp(K(s) - s x) / s; the module egm.gx2 explains how and why. */

"use strict";

const egm = (() => {
  const BENDS = [1, 0.25, 0]; // of the contour: less where the strongest fails
  const STEP = 0.2, NEGLIGIBLE = 1e-17, MOST_NODES = 8192, AIM = 1e-13;

  const sum = (values) => values.reduce((total, value) => total + value, 0);

  /** The root of a monotone function between low and high, where its signs differ: Chandrupatla's method. */
  function root(f, low, high) {
    let [a, b, c] = [high, low, low];
    let [fa, fb, fc] = [f(high), f(low), f(low)];
    if (fa * fb > 0) throw new RangeError(`no root between ${low} and ${high}`);
    let t = 0.5;
    for (let round = 0; round < 200; round++) {
      const x = a + t * (b - a), fx = f(x);
      if (fx * fa > 0) [c, fc] = [a, fa];
      else [c, fc, b, fb] = [b, fb, a, fa];
      [a, fa] = [x, fx];
      const [best, value] = Math.abs(fa) < Math.abs(fb) ? [a, fa] : [b, fb];
      const width = (2e-16 * Math.abs(best) + 1e-300) / Math.abs(b - a);
      if (value === 0 || width > 0.5) return best;
      const xi = (a - b) / (c - b), phi = (fa - fb) / (fc - fb);
      const curved = phi * phi < xi && (1 - phi) ** 2 < 1 - xi;
      t = curved ? (fa / (fb - fa)) * (fc / (fb - fc)) + ((c - a) / (b - a)) * (fa / (fc - fa)) * (fb / (fc - fb)) : 0.5;
      t = Math.min(1 - width, Math.max(width, t));
    }
    return a;
  }

  /* ---- calibration: the noise multiplier of (epsilon, delta) ---- */

  /** Nodes and weights of the Gauss-Legendre rule on (-1, 1). */
  function legendre(size) {
    const nodes = [], weights = [];
    for (let i = 0; i < size; i++) {
      let x = Math.cos((Math.PI * (i + 0.75)) / (size + 0.5)), slope = 1;
      for (let round = 0; round < 6; round++) {
        let before = 1, value = x;
        for (let k = 2; k <= size; k++) [before, value] = [value, ((2 * k - 1) * x * value - (k - 1) * before) / k];
        slope = (size * (x * value - before)) / (x * x - 1);
        x -= value / slope;
      }
      nodes.push(x);
      weights.push(2 / ((1 - x * x) * slope * slope));
    }
    return { nodes, weights };
  }

  const RULE = legendre(96);

  /** log of delta = int_0^inf phi(r - a) (1 - exp(-r/z)) dr with a = 1/(2z) - epsilon z: the exact privacy curve. */
  function logDelta(epsilon, z) {
    const a = 0.5 / z - epsilon * z, beyond = Math.min(a, 0), within = Math.max(a, 0), reach = Math.sqrt(80);
    const near = -Math.min(within, reach), far = 80 / (Math.hypot(reach, beyond) - beyond);
    const terms = RULE.nodes.map((node, i) => {
      const t = near + ((far - near) * (1 + node)) / 2;
      return -RULE.weights[i] * Math.exp(-t * (t / 2 - beyond)) * Math.expm1(-(within + t) / z);
    });
    return Math.log((sum(terms) * (far - near)) / 2) - 0.5 * Math.log(2 * Math.PI) - (beyond * beyond) / 2;
  }

  /** sigma_opt: the least standard deviation of Gaussian noise for sensitivity 1. */
  function noiseMultiplier(epsilon, delta) {
    const target = Math.log(delta);
    return Math.exp(root((u) => logDelta(epsilon, Math.exp(u)) - target, Math.log(1e-4), Math.log(1e8)));
  }

  /* ---- the generalized chi-square distribution ---- */

  function formOf(weights) {
    const largest = Math.max(...weights), shown = weights.filter((w) => w > 0);
    return { unit: 2 * largest, r: shown.map((w) => w / largest), gap: shown.map((w) => (largest - w) / largest) };
  }

  /** A point of the real axis, c = 1 / (1 + exp(-theta)), with the derivatives of K there; 1 - r c keeps its digits. */
  function crossing(form, theta) {
    const c = 1 / (1 + Math.exp(-theta)), rest = 1 / (1 + Math.exp(theta));
    const slack = form.gap.map((gap) => rest + c * gap), q = form.r.map((r, j) => r / slack[j]);
    const power = (k) => sum(q.map((value) => value ** k));
    const first = power(1) / 2, second = power(2) / 2 + 1 / (c * c), third = power(3);
    return { c, slack, q, x: first - 1 / c, second, third, K: -0.5 * sum(slack.map(Math.log)) };
  }

  const FAR = 60; // theta at either end

  const saddle = (form, x) => crossing(form, root((theta) => crossing(form, theta).x - x, -FAR, FAR));

  /** Nodes s - c and masses m with 1/(2 pi i) int exp(K(s) - s x) F(s) ds = exp(K(c) - c x)/pi Im sum m F(s). */
  function contour(at, x) {
    for (const bend of BENDS) {
      const rule = trapezoid(at, x, bend);
      if (rule) return rule;
    }
    throw new Error(`no contour reaches its accuracy at x = ${x}`);
  }

  /** exp(K(c + s) - K(c) - s x) ds/du at s = i h u + gamma u^2, and s itself: [re s, im s, re m, im m]. */
  function integrand(at, x, h, gamma, u) {
    const re = gamma * u * u, im = h * u;
    let log = -re * x, angle = -im * x;
    for (const q of at.q) {
      const a = re * q, b = im * q;
      log -= 0.25 * Math.log1p(a * (a - 2) + b * b);
      angle += 0.5 * Math.atan2(b, 1 - a);
    }
    const size = Math.exp(log), x1 = size * Math.cos(angle), y1 = size * Math.sin(angle), bent = 2 * gamma * u;
    return [re, im, x1 * bent - y1 * h, x1 * h + y1 * bent];
  }

  /** The trapezoid rule in u, its step halved until two rules agree; null where the integrand does not die away. */
  function trapezoid(at, x, bend) {
    const h = 1 / Math.sqrt(at.second), gamma = (bend * at.third) / (6 * at.second ** 2);
    const nodes = [];
    let smallest = 1;
    for (let i = 0, size = 1; size >= NEGLIGIBLE; i++) {
      nodes.push(integrand(at, x, h, gamma, i * STEP));
      size = Math.hypot(nodes[i][2], nodes[i][3]) / Math.hypot(nodes[0][2], nodes[0][3]);
      if (!(size <= 10 * smallest) || i > MOST_NODES) return null;
      smallest = Math.min(smallest, size);
    }
    nodes[0][2] /= 2;
    nodes[0][3] /= 2;
    const length = nodes.length;
    const totals = (list) => [sum(list.map((node) => overPole(at.c, node))), sum(list.map((node) => node[3]))];
    let coarse = totals(nodes.filter((_, i) => i % 2 === 0)).map((v) => 2 * v), fine = totals(nodes), step = STEP;
    for (let round = 0; round < 6; round++) {
      const error = Math.max(...fine.map((value, i) => Math.abs(value / coarse[i] - 1)));
      if (10 * error * error < AIM) {
        return nodes.map(([re, im, a, b]) => [re, im, a * step, b * step]);
      }
      const between = Array.from({ length: length << round }, (_, i) => integrand(at, x, h, gamma, (i + 0.5) * step));
      nodes.push(...between);
      step /= 2;
      const added = totals(between);
      [coarse, fine] = [fine, fine.map((value, i) => (value + added[i]) / 2)];
    }
    return null;
  }

  /** Im m / (1 + (s - c)/c), a node's part of the tail. */
  function overPole(c, [re, im, a, b]) {
    const x = 1 + re / c, y = im / c;
    return (b * x - a * y) / (x * x + y * y);
  }

  /** log P[Q > x] and the density over that tail, for x in units of the form. */
  function tail(form, x) {
    const at = saddle(form, x), nodes = contour(at, x);
    const over = sum(nodes.map((node) => overPole(at.c, node))), density = sum(nodes.map((node) => node[3]));
    return { log: at.K - at.c * x + Math.log(over / at.c / Math.PI), hazard: (density / over) * at.c };
  }

  /** The x with P[Q > x] = p <= 1/10: the saddlepoint formula for a start, then Newton's rule with the tail itself. */
  function isf(p, weights) {
    const form = formOf(weights), target = Math.log(p);
    const formula = (theta) => {
      const at = crossing(form, theta);
      return at.K - at.c * at.x - 0.5 * Math.log(2 * Math.PI * at.c * at.c * at.second) - target;
    };
    const nearest = root((theta) => crossing(form, theta).x, -FAR, FAR); // x = 0
    let x = crossing(form, root(formula, nearest, FAR)).x;
    for (let round = 0; round < 20; round++) {
      const { log, hazard } = tail(form, x), step = (log - target) / hazard;
      x = Math.max(x + step, x / 4);
      if (Math.abs(step) < 1e-14 * x) break;
    }
    return x * form.unit;
  }

  /** E[Z_j^2 | Q = x] for every j. */
  function conditionalMeans(x, weights) {
    const form = formOf(weights), at = saddle(form, x / form.unit), nodes = contour(at, x / form.unit);
    const mass = sum(nodes.map((node) => node[3]));
    return inverses(at, form, nodes).map((value) => value / mass);
  }

  /** Im sum m / (1 - r_j s) for every j. */
  const inverses = (at, form, nodes) =>
    form.r.map((r, j) => {
      let total = 0;
      for (const [re, im, a, b] of nodes) {
        const x = at.slack[j] - r * re, y = -r * im;
        total += (b * x - a * y) / (x * x + y * y);
      }
      return total;
    });

  /* ---- scaling ---- */

  /** Lemma 4.1 as weights: w_j = (b_j sigma_j)^2 = sigma_j / sum sigma. */
  function expectedNormWeights(sigma) {
    const total = sum(sigma);
    return sigma.map((s) => s / total);
  }

  /** The weights at which F = q_p(w) sum sigma^2/w is least: w_j proportional to sigma_j / sqrt(g_j), g the conditional
      means at the quantile, by a model of g_j that depends on w_j alone and Anderson's mixing of three iterates. */
  function optimalWeights(sigma, p) {
    const share = expectedNormWeights(sigma);
    let logs = share.map(Math.log), best = { factor: Infinity, weights: share }, past = [];
    for (let round = 0; round < 100; round++) {
      const raw = logs.map(Math.exp), total = sum(raw), weights = raw.map((w) => w / total);
      const quantile = isf(p, weights), factor = quantile * sum(share.map((s, j) => (s * s) / weights[j]));
      if (factor < best.factor) best = { factor, weights };
      const next = stationary(share, weights, conditionalMeans(quantile, weights));
      const residual = next.map((w, j) => Math.log(w / weights[j]));
      if (Math.max(...residual.map(Math.abs)) < 1e-9) return weights;
      past = [...past.slice(-2), { logs: weights.map(Math.log), residual }];
      logs = mixed(past);
    }
    return best.weights;
  }

  /** The w of sum 1 with w_j^2 = a_j (1 - 2 w_j s_j), a_j proportional to share_j^2; s_j reproduces g_j at w. */
  function stationary(share, weights, pull) {
    const s = pull.map((g, j) => (1 - 1 / g) / (2 * weights[j]));
    const solve = (logScale) =>
      share.map((part, j) => {
        const wide = Math.exp(logScale) * part, pulled = wide * s[j], height = Math.hypot(pulled, 1);
        return wide * (s[j] > 0 ? 1 / (height + pulled) : height - pulled);
      });
    const found = solve(root((u) => sum(solve(u)) - 1, -50, 50)), total = sum(found);
    return found.map((w) => w / total);
  }

  /** The combination of the last iterates whose residuals nearly cancel, plus what is left of them. */
  function mixed(past) {
    const last = past[past.length - 1], plain = last.logs.map((value, j) => value + last.residual[j]);
    const minus = (a, b) => a.map((value, j) => value - b[j]);
    const dot = (a, b) => sum(a.map((value, j) => value * b[j]));
    const changes = past.slice(1).map((now, i) => minus(now.residual, past[i].residual));
    const moves = past.slice(1).map((now, i) => minus(now.logs, past[i].logs));
    let correction = plain.map(() => 0), rest = last.residual;
    const basis = [];
    changes.forEach((change, i) => {
      // Gram and Schmidt; a change that adds no direction is left out.
      let direction = change, move = moves[i].map((value, j) => value + change[j]);
      for (const [e, m] of basis) {
        const part = dot(e, direction);
        [direction, move] = [minus(direction, e.map((v) => v * part)), minus(move, m.map((v) => v * part))];
      }
      const size = Math.sqrt(dot(direction, direction));
      if (size <= 1e-8 * Math.sqrt(dot(change, change))) return;
      basis.push([direction.map((v) => v / size), move.map((v) => v / size)]);
      const [e, m] = basis[basis.length - 1], part = dot(e, rest);
      correction = correction.map((value, j) => value + part * m[j]);
      rest = minus(rest, e.map((v) => v * part));
    });
    return Math.max(...correction.map(Math.abs)) < 1 ? minus(plain, correction) : plain;
  }

  /* ---- what clipping costs ---- */

  /** int_1^inf (1 - t^(-1/2))^2 exp(-z (t - 1)) dt for complex z, by the double exponential rule along t = 1 + rho/z. */
  function lostShare(re, im) {
    const size = re * re + im * im, inverse = [re / size, -im / size];
    const total = [0, 0];
    for (const [rho, weight] of RAY) {
      const tau = [rho * inverse[0], rho * inverse[1]];
      const length = Math.hypot(1 + tau[0], tau[1]);
      const rootRe = Math.sqrt((length + 1 + tau[0]) / 2), rootIm = tau[1] / (2 * rootRe);
      const share = divide(tau, [1 + tau[0] + rootRe, tau[1] + rootIm]);
      total[0] += weight * (share[0] ** 2 - share[1] ** 2);
      total[1] += weight * 2 * share[0] * share[1];
    }
    return multiply(total, inverse);
  }

  const multiply = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
  const divide = ([a, b], [c, d]) => multiply([a, b], [c / (c * c + d * d), -d / (c * c + d * d)]);

  const RAY = Array.from({ length: 191 }, (_, i) => {
    const t = -4.5 + 0.045 * i, rho = Math.exp(t - Math.exp(-t));
    return [rho, 0.045 * rho * (1 + Math.exp(-t)) * Math.exp(-rho)];
  });

  /** sum_j sigma_j^2 E[L^2 Z_j^2], where L = max(0, 1 - C/||b x||): what clipping one row costs. */
  function lossOfARow(sigma, weights, quantile) {
    const form = formOf(weights), seen = sigma.filter((_, j) => weights[j] > 0);
    const x = quantile / form.unit, at = saddle(form, x);
    const lossy = contour(at, x).map(([re, im, a, b]) => {
      const [c, d] = multiply([a, b], lostShare((at.c + re) * x, im * x));
      return [re, im, c, d];
    });
    const height = (x * Math.exp(at.K - at.c * x)) / Math.PI;
    return height * sum(inverses(at, form, lossy).map((value, j) => value * seen[j] ** 2));
  }

  /* ---- the whole mechanism ---- */

  /** sigma_j proportional to j^-alpha, of sum 1. */
  function zipfSigma(d, alpha) {
    const power = Array.from({ length: d }, (_, j) => (j + 1) ** -alpha), total = sum(power);
    return power.map((value) => value / total);
  }

  /** b for a choice of "none", "expected_norm" (Lemma 4.1) or "optimal". */
  function scalingOf(choice, sigma, p) {
    if (choice === "none") return sigma.map(() => 1);
    const weights = choice === "optimal" ? optimalWeights(sigma, p) : expectedNormWeights(sigma);
    return weights.map((w, j) => Math.sqrt(w) / sigma[j]);
  }

  /** The upper quantile of ||b x||^2; sum b^-2 times it is F, to which the error of the noise is proportional. */
  function quantileOf(b, sigma, p) {
    const spread = b.map((value, j) => value * sigma[j]), widest = Math.max(...spread);
    const weights = spread.map((value) => (value / widest) ** 2);
    return { weights, widest, reduced: isf(p, weights) };
  }

  const factor = (b, found) => found.widest ** 2 * found.reduced * sum(b.map((value) => value ** -2));

  /** E_n / E_t: the error of the noise without scaling over that with it. */
  function improvement(d, n, alpha, choice = "expected_norm") {
    const sigma = zipfSigma(d, alpha), one = sigma.map(() => 1), b = scalingOf(choice, sigma, 1 / n);
    return factor(one, quantileOf(one, sigma, 1 / n)) / factor(b, quantileOf(b, sigma, 1 / n));
  }

  /** Everything that the page shows of a mechanism, known before any data. */
  function forecast({ alpha, d, n, epsilon, delta, scaling }) {
    const sigma = zipfSigma(d, alpha), b = scalingOf(scaling, sigma, 1 / n), one = sigma.map(() => 1);
    const found = quantileOf(b, sigma, 1 / n), plain = quantileOf(one, sigma, 1 / n);
    const multiplier = noiseMultiplier(epsilon, delta), clipNorm = found.widest * Math.sqrt(found.reduced);
    const noise = (2 * multiplier) ** 2 * factor(b, found);
    const clipping = n * lossOfARow(sigma, found.weights, found.reduced);
    return {
      sigma,
      noiseMultiplier: multiplier,
      scaling: b,
      clipNorm,
      noiseStd: b.map((value) => (2 * clipNorm * multiplier) / value),
      plainStd: 2 * multiplier * plain.widest * Math.sqrt(plain.reduced),
      noise,
      clipping,
      total: noise + clipping,
      sampling: n * sum(sigma.map((s) => s * s)),
      improvement: factor(one, plain) / factor(b, found),
    };
  }

  return { forecast, improvement, isf, noiseMultiplier, zipfSigma };
})();
