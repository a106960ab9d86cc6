/* The mathematics of the explorer, for n >= 10 rows: what egm.calibration, egm.gx2, egm.scaling and egm.forecast compute,
   in doubles and by the same formulas. The tests compare the two: the relative error is below 1e-12 for a center that is
   the mean, and below 1e-9 of the total for one that is not (1e-7 for the scaling of least noise). Only l2 noise is smaller
   by up to 2e-11, because the package rounds it up. The least total error over all clip norms, or all pairs of scaling and
   clip norm, is found to 1e-7, or to 2e-3 where nearly every row is clipped; each part of it, at a flat minimum, to 1e-4
   of the total, or to 0.2 where nearly every row is clipped.

   Q = sum_j w_j Z_j^2 is scaled by twice its largest weight, so that with r_j = w_j / max w its cumulant function is
   K(s) = -1/2 sum_j log(1 - r_j s). Tails are integrals of exp(K(s) - s x) along a curve through the saddle point
   c of exp(K(s) - s x) / s; the module egm.gx2 explains how and why. Its parabola ends here in two straight lines, so
   that the curve keeps away from the cut, and the nodes are wider apart the further out they are. */

"use strict";

const mathematics = () => {
  const BENDS = [1, 0.25, 0]; // of the contour: less where the strongest fails
  const STEP = 0.1, NEGLIGIBLE = 1e-17, MOST_NODES = 8192, AIM = 1e-17, GROWTH = 1e3;

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const dot = (a, b) => sum(a.map((value, j) => value * b[j]));
  const norm = (values) => Math.sqrt(dot(values, values));
  const minus = (a, b) => a.map((value, j) => value - b[j]);

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

  /* ---- calibration: the noise multipliers of (epsilon, delta) ---- */

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
  function gaussianMultiplier(epsilon, delta) {
    const target = Math.log(delta);
    return Math.exp(root((u) => logDelta(epsilon, Math.exp(u)) - target, Math.log(1e-4), Math.log(1e8)));
  }

  /** log int exp(f) g over (low, high), where f rises to its peak and then falls; what is below exp(-45) is left out. */
  function logIntegral(f, g, low, peak, high) {
    const most = f(peak), end = (far) => (f(far) > most - 45 ? far : root((x) => f(x) - most + 45, peak, far));
    const left = end(low), half = (end(high) - left) / 2;
    const terms = RULE.nodes.map((node, i) => {
      const x = left + half * (1 + node);
      return RULE.weights[i] * Math.exp(f(x) - most) * g(x);
    });
    return most + Math.log(half * sum(terms));
  }

  const logPower = (base, exponent) => exponent * Math.log(Math.max(base, 1e-300));

  /** log of delta of l2 noise in d > 1 dimensions whose largest loss 1/s is epsilon + excess: the exact privacy curve, by
      an integral over the angle of egm._l2. Its R is the mean of sinh(w)^2 for exp(-z cosh(w)) sinh(w)^(d - 2). */
  function logDeltaOfL2(epsilon, excess, d) {
    const z = (epsilon + excess) / 2, power = d - 2, cosh = (power + Math.hypot(power, 2 * z)) / (2 * z);
    const peak = Math.acosh(cosh), mode = Math.acos(1 / cosh), cut = 2 * Math.asin(Math.sqrt(excess / z) / 2);
    const density = (w) => logPower(Math.sinh(w), power) - z * Math.cosh(w);
    const mean = (g) => logIntegral(density, g, 0, peak, peak + 20);
    const ratio = Math.exp(mean((w) => Math.sinh(w) ** 2) - mean(() => 1));
    const f = (angle) => z * Math.cos(angle) + logPower(Math.sin(angle), power);
    const g = (angle) => ratio + Math.sin(angle) ** 2;
    const above = (t) => 2 * Math.sin(t / 2) * Math.sin(cut - t / 2); // cos(cut - t) - cos(cut)
    const counted = (t) => -g(cut - t) * Math.expm1(-2 * z * above(t));
    const part = logIntegral((t) => f(cut - t), counted, 0, Math.max(cut - mode, 0), cut);
    return part - logIntegral(f, g, 0, mode, Math.PI);
  }

  /** The least standard deviation s sqrt(d + 1) of a coordinate of l2 noise, for sensitivity 1. */
  function l2Multiplier(epsilon, delta, d) {
    const target = Math.log(delta), missing = (u) => logDeltaOfL2(epsilon, Math.exp(u), d) - target;
    const excess = d === 1 ? -2 * Math.log1p(-delta) : Math.exp(root(missing, -60, 12));
    return Math.sqrt(d + 1) / (epsilon + excess);
  }

  /* ---- the generalized chi-square distribution ---- */

  /** The form of Q, for weights and one noncentrality that all terms share. */
  function formOf(weights, nc = 0) {
    const largest = Math.max(...weights), shown = Float64Array.from(weights).filter((w) => w > 0);
    return { unit: 2 * largest, nc, r: shown.map((w) => w / largest), gap: shown.map((w) => (largest - w) / largest) };
  }

  /** A point of the real axis, c = 1 / (1 + exp(-theta)), with the derivatives of K there; 1 - r c keeps its digits. */
  function crossing({ r, gap, nc }, theta) {
    const c = 1 / (1 + Math.exp(-theta)), rest = 1 / (1 + Math.exp(theta));
    const slack = gap.map((value) => rest + c * value), q = r.map((value, j) => value / slack[j]);
    let [first, second, third] = [0, 0, 0];
    for (let j = 0; j < q.length; j++) {
      const value = q[j], inflated = nc / slack[j];
      first += value * (1 + inflated);
      second += value * value * (1 + 2 * inflated);
      third += value * value * value * (1 + 3 * inflated);
    }
    return { c, nc, slack, q, x: first / 2 - 1 / c, second: second / 2 + 1 / (c * c), third };
  }

  const cumulant = ({ c, nc, slack, q }) => sum(slack.map((value, j) => (nc * c * q[j] - Math.log(value)) / 2));

  const FAR = 60; // theta at either end

  const saddle = (form, x) => crossing(form, root((theta) => crossing(form, theta).x - x, -FAR, FAR));

  /** Nodes s - c and masses m with 1/(2 pi i) int exp(K(s) - s x) F(s) ds = exp(K(c) - c x)/pi Im sum m F(s), for
      F = 1/s and, unless `density` is false, for F = 1: far below the mean the density is too small for this contour. */
  function contour(at, x, density = true, aim = AIM) {
    for (const bend of BENDS) {
      const rule = trapezoid(at, x, bend, density, aim);
      if (rule) return rule;
    }
    throw new Error(`no contour reaches its accuracy at x = ${x}`);
  }

  /** exp(K(c + s) - K(c) - s x) ds/dv at s = i h u + gamma u^2 / sqrt(1 + (gamma u/h)^2) with u = sinh v, and s itself:
      [re s, im s, re m, im m]. The product of all 1 - q s is formed instead of the sum of their logarithms; its argument
      falls with every factor, by less than pi, so the turns can be counted. */
  function integrand(at, x, h, gamma, v) {
    const u = Math.sinh(v), flat = 1 + ((gamma * u) / h) ** 2, re = (gamma * u * u) / Math.sqrt(flat), im = h * u;
    let log = 0, turns = 0, a = 1, b = 0, shiftRe = 0, shiftIm = 0;
    for (let j = 0; j < at.q.length; j++) {
      const factorRe = 1 - at.q[j] * re, factorIm = -at.q[j] * im, before = b;
      [a, b] = [a * factorRe - b * factorIm, a * factorIm + b * factorRe];
      if (before < 0 && b >= 0) turns++;
      if (j % 8 === 7) {
        const size = Math.sqrt(a * a + b * b);
        log += Math.log(size);
        [a, b] = [a / size, b / size];
      }
      if (at.nc) {
        const share = at.q[j] / at.slack[j] / (factorRe * factorRe + factorIm * factorIm);
        shiftRe += share * factorRe;
        shiftIm -= share * factorIm;
      }
    }
    log = -0.5 * (log + Math.log(a * a + b * b) / 2) + 0.5 * at.nc * (shiftRe * re - shiftIm * im) - re * x;
    const angle = Math.PI * turns - 0.5 * Math.atan2(b, a) + 0.5 * at.nc * (shiftRe * im + shiftIm * re) - im * x;
    const size = Math.exp(log) * Math.cosh(v), bent = (gamma * u * (1 + flat)) / flat ** 1.5;
    const x1 = size * Math.cos(angle), y1 = size * Math.sin(angle);
    return [re, im, x1 * bent - y1 * h, x1 * h + y1 * bent];
  }

  /** The trapezoid rule in v, its step halved until two rules agree; null where the integrand does not die away. */
  function trapezoid(at, x, bend, density, aim) {
    const h = 1 / Math.sqrt(at.second), gamma = (bend * at.third) / (6 * at.second ** 2);
    const sizeOf = ([re, im, a, b]) => Math.hypot(a, b) / (density ? 1 : Math.hypot(1 + re / at.c, im / at.c));
    const nodes = [];
    let smallest = 1;
    for (let i = 0, size = 1; size >= NEGLIGIBLE; i++) {
      nodes.push(integrand(at, x, h, gamma, i * STEP));
      size = sizeOf(nodes[i]) / sizeOf(nodes[0]);
      if (!(size <= GROWTH * smallest) || i > MOST_NODES) return null;
      smallest = Math.min(smallest, size);
    }
    nodes[0][2] /= 2;
    nodes[0][3] /= 2;
    const { length } = nodes, over = (node) => overPole(at.c, node), last = (node) => node[3];
    const totals = (list, width) => (density ? [over, last] : [over]).map((part) => width * sum(list.map(part)));
    let step = STEP, fine = totals(nodes, step), coarse = totals(nodes.filter((_, i) => i % 2 === 0), 2 * step);
    for (let round = 0; round < 6; round++) {
      const error = Math.max(...fine.map((value, i) => Math.abs(value / coarse[i] - 1)));
      if (10 * error * error < aim) return nodes.map(([re, im, a, b]) => [re, im, a * step, b * step]);
      const between = Array.from({ length: length << round }, (_, i) => integrand(at, x, h, gamma, (i + 0.5) * step));
      const added = totals(between, step);
      nodes.push(...between);
      step /= 2;
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
    return { log: cumulant(at) - at.c * x + Math.log(over / at.c / Math.PI), hazard: (density / over) * at.c };
  }

  /** P[Q > x]. */
  function sf(x, weights) {
    const form = formOf(weights), at = saddle(form, x / form.unit), nodes = contour(at, x / form.unit, false);
    return Math.exp(cumulant(at) - at.c * (x / form.unit)) * sum(nodes.map((node) => overPole(at.c, node))) / at.c / Math.PI;
  }

  /** The x with P[Q > x] = p <= 1/2: the saddlepoint formula for a start, then Newton's rule with the tail itself. */
  function isf(p, weights) {
    const form = formOf(weights), target = Math.log(p);
    const formula = (theta) => {
      const at = crossing(form, theta);
      return cumulant(at) - at.c * at.x - 0.5 * Math.log(2 * Math.PI * at.c * at.c * at.second) - target;
    };
    let x = Math.max(crossing(form, root(formula, -FAR, FAR)).x, 0.2 * sum(form.r)); // the median is above 0.45 of the mean
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
    return Array.from(form.r, (r, j) => {
      let total = 0; // Im sum m / (1 - r_j s)
      for (const node of nodes) {
        const x = at.slack[j] - r * node[0], y = r * node[1];
        total += (node[3] * x + node[2] * y) / (x * x + y * y);
      }
      return total / mass;
    });
  }

  /* ---- scaling ---- */

  /** Lemma 4.1 as weights: w_j = (b_j sigma_j)^2 = sigma_j / sum sigma. */
  function expectedNormWeights(sigma) {
    const total = sum(sigma);
    return sigma.map((s) => s / total);
  }

  /** The weights at which F = q_p(w) sum sigma^2/w is least: w_j proportional to sigma_j / sqrt(g_j), g the conditional
      means at the quantile, by a model of g_j that depends on w_j alone and Anderson's mixing of three iterates. */
  function optimalWeights(sigma, p, settled = 1e-9) {
    const share = expectedNormWeights(sigma);
    let logs = share.map(Math.log), best = { factor: Infinity, weights: share }, past = [];
    for (let round = 0; round < 100; round++) {
      const raw = logs.map(Math.exp), total = sum(raw), weights = raw.map((w) => w / total);
      const quantile = isf(p, weights), factor = quantile * sum(share.map((s, j) => (s * s) / weights[j]));
      if (factor < best.factor) best = { factor, weights };
      const next = stationary(share, weights, conditionalMeans(quantile, weights));
      const residual = next.map((w, j) => Math.log(w / weights[j]));
      if (Math.max(...residual.map(Math.abs)) < settled) return weights;
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

  /** int_1^inf (1 - t^(-1/2))^k exp(-z (t - 1)) dt for k = 1, 2 and complex z, by the double exponential rule along
      t = 1 + rho/z: the real and the imaginary part of either. */
  function lostShares(re, im) {
    const size = re * re + im * im;
    let [a, b, c, d] = [0, 0, 0, 0];
    for (const { rho, weight } of RAY) {
      const x = 1 + (rho * re) / size, y = (-rho * im) / size;
      const root = Math.sqrt((Math.sqrt(x * x + y * y) + x) / 2), across = x + root, up = y + y / (2 * root);
      const whole = weight / (across * across + up * up);
      const shareRe = ((x - 1) * across + y * up) * whole, shareIm = (y * across - (x - 1) * up) * whole;
      a += shareRe;
      b += shareIm;
      c += (shareRe * shareRe - shareIm * shareIm) / weight;
      d += (2 * shareRe * shareIm) / weight;
    }
    return [(a * re + b * im) / size, (b * re - a * im) / size, (c * re + d * im) / size, (d * re - c * im) / size];
  }

  const RAY = Array.from({ length: 191 }, (_, i) => {
    const t = -4.5 + 0.045 * i, rho = Math.exp(t - Math.exp(-t));
    return { rho, weight: 0.045 * rho * (1 + Math.exp(-t)) * Math.exp(-rho) };
  });

  /** What clipping to the squared norm x costs in n rows, whose means are off by `offset` standard deviations: n times
      the variance of the part that is lost, and n^2 times its squared mean. With L = max(0, 1 - C/||y||) the sums run
      over E[L^2 Z_j^2] and E[L Z_j] = offset E[L'], where L' has two more degrees of freedom at j. The slopes are the
      derivatives of the sum of both by log b_j at a fixed x, or none unless `sloped` is true. */
  function lossOf(n, sigma, weights, x, offset, aim, sloped = false) {
    const form = formOf(weights, offset * offset), seen = sigma.filter((_, j) => weights[j] > 0);
    const reduced = x / form.unit, at = saddle(form, reduced);
    const height = (reduced * Math.exp(cumulant(at) - at.c * reduced)) / Math.PI;
    const nodes = contour(at, reduced, false, aim).map(([re, im, a, b]) => {
      const [c, d, e, f] = lostShares((at.c + re) * reduced, im * reduced);
      return [re, im, a * c - b * d, a * d + b * c, a * e - b * f, a * f + b * e];
    });
    let square = 0, squaredMean = 0;
    const means = form.r.map((r, j) => {
      let mean = 0, lost = 0;
      for (const node of nodes) {
        const x = at.slack[j] - r * node[0], y = r * node[1], size = x * x + y * y; // the inverse is (x + iy)/size
        const first = (node[5] * x + node[4] * y) / size;
        lost += first;
        if (!offset) continue;
        mean += (node[3] * x + node[2] * y) / size;
        lost += (form.nc * (first * x + ((node[4] * x - node[5] * y) / size) * y)) / size;
      }
      square += seen[j] ** 2 * height * lost;
      squaredMean += (seen[j] * offset * height * mean) ** 2;
      return height * mean;
    });
    const parts = { clipping: n * Math.max(0, square - squaredMean), center: n * n * squaredMean };
    if (!sloped) return parts;
    const squares = seen.map((s) => n * s * s), pulls = seen.map((s, j) => 2 * (n * n - n) * (s * offset) ** 2 * means[j]);
    const slopes = slopesOf(at, form, nodes, squares, pulls);
    let k = 0;
    return { ...parts, slopes: weights.map((w) => (w > 0 ? height * slopes[k++] : 0)) };
  }

  /** The derivatives of Im sum m2 squares_k (I_k + nc I_k^2) + m1 pulls_k I_k over all k and nodes by log b_j: m1 and m2
      are the masses of L and L^2, I_k = 1 / (1 - r_k s), and the integrand's exp(K) has dK/dr_j = s (I_j + nc I_j^2)/2. */
  function slopesOf({ c, slack }, { r, nc }, nodes, squares, pulls) {
    const slopes = r.map(() => 0), x = r.map(() => 0), y = r.map(() => 0); // x + iy is the inverse
    for (const [re, im, a, b, e, f] of nodes) {
      const onceX = (c + re) * a - im * b, onceY = (c + re) * b + im * a; // s m1
      const twiceX = (c + re) * e - im * f, twiceY = (c + re) * f + im * e; // s m2
      let [sumX, sumY, pullX, pullY] = [0, 0, 0, 0];
      for (let j = 0; j < r.length; j++) {
        const u = slack[j] - r[j] * re, v = r[j] * im, size = u * u + v * v;
        x[j] = u / size;
        y[j] = v / size;
        sumX += squares[j] * (x[j] + nc * (x[j] * x[j] - y[j] * y[j]));
        sumY += squares[j] * (y[j] + nc * 2 * x[j] * y[j]);
        pullX += pulls[j] * x[j];
        pullY += pulls[j] * y[j];
      }
      const allX = twiceX * sumX - twiceY * sumY + onceX * pullX - onceY * pullY;
      const allY = twiceX * sumY + twiceY * sumX + onceX * pullY + onceY * pullX;
      for (let j = 0; j < r.length; j++) {
        const twiceAtX = squares[j] * (1 + 2 * nc * x[j]), twiceAtY = squares[j] * 2 * nc * y[j];
        const u = nc * allX + 2 * (twiceAtX * twiceX - twiceAtY * twiceY + pulls[j] * onceX);
        const v = nc * allY + 2 * (twiceAtX * twiceY + twiceAtY * twiceX + pulls[j] * onceY);
        slopes[j] += r[j] * ((allX + u * x[j] - v * y[j]) * y[j] + (allY + u * y[j] + v * x[j]) * x[j]);
      }
    }
    return slopes;
  }

  /* ---- the whole mechanism ---- */

  /* Of the search for the best pair of scaling and clip norm: the tolerance of the log of the clip norm where it begins,
     the largest change of the log of a semi-axis C / b, and the largest slope at the end, as in the package. */
  const ROUGHLY = 0.03, REACH = 3, FLAT = 1e-5;

  /** sigma_j proportional to j^-alpha, of sum 1. */
  function zipfSigma(d, alpha) {
    const power = Array.from({ length: d }, (_, j) => (j + 1) ** -alpha), total = sum(power);
    return power.map((value) => value / total);
  }

  /** b for a choice of "none", "expected_norm" (Lemma 4.1) or "optimal". */
  function scalingOf(choice, sigma, p, settled) {
    if (choice === "none") return sigma.map(() => 1);
    const weights = choice === "optimal" ? optimalWeights(sigma, p, settled) : expectedNormWeights(sigma);
    return weights.map((w, j) => Math.sqrt(w) / sigma[j]);
  }

  /** The weights of ||b x||^2, divided by the largest, whose root is `widest`. */
  function spreadOf(b, sigma) {
    const spread = b.map((value, j) => value * sigma[j]), widest = Math.max(...spread);
    return { widest, weights: spread.map((value) => (value / widest) ** 2) };
  }

  function clipNormOf(b, sigma, p) {
    const { widest, weights } = spreadOf(b, sigma);
    return widest * Math.sqrt(isf(p, weights));
  }

  /** F, to which the error of the noise is proportional. */
  const factor = (b, clipNorm) => clipNorm ** 2 * sum(b.map((value) => value ** -2));

  /** E_n / E_t: the error of the noise without scaling over that with it, at the clip probability p. For a curve it is
      enough to know the optimal weights to 1e-4: the gain is then known to 1e-7. */
  function gain(sigma, p, choice) {
    const factorOf = (b) => factor(b, clipNormOf(b, sigma, p));
    return choice === "none" ? 1 : factorOf(scalingOf("none", sigma)) / factorOf(scalingOf(choice, sigma, p, 1e-4));
  }

  /** The least value of a convex function, by the golden section: where it is. */
  function leastOf(f, low, high, tolerance) {
    const golden = (Math.sqrt(5) - 1) / 2;
    let [a, b] = [high - golden * (high - low), low + golden * (high - low)];
    let [fa, fb] = [f(a), f(b)];
    while (high - low > tolerance) {
      if (fa < fb) {
        [high, b, fb] = [b, a, fa];
        a = high - golden * (high - low);
        fa = f(a);
      } else {
        [low, a, fa] = [a, b, fb];
        b = low + golden * (high - low);
        fb = f(b);
      }
    }
    return (low + high) / 2;
  }

  /** The least value of a smooth function within bounds on both sides of 0, by a quasi-Newton method (L-BFGS) that begins
      at 0: where it is. f returns its value and its slopes; no step increases the value. */
  function descent(f, low, high) {
    const zero = low.map(() => 0);
    let now = { place: zero, ...f(zero) }, past = [];
    for (let round = 0; round < 200; round++) {
      const { place, value, slopes } = now, inward = place.map((v, j) => (slopes[j] > 0 ? v > low[j] : v < high[j]));
      const free = (list) => list.map((v, j) => (inward[j] ? v : 0)), slope = free(slopes);
      if (Math.max(...slope.map(Math.abs)) < FLAT) break;
      const pairs = past.map((pair) => pair.map(free)).filter(([move, change]) => dot(move, change) > 0);
      const direction = newton(slope, pairs);
      for (let step = 1; now.place === place; step /= 4) {
        if (step < 1e-6) return place;
        const next = place.map((v, j) => Math.min(high[j], Math.max(low[j], v - step * direction[j]))), there = f(next);
        if (there.value < value) now = { place: next, ...there };
      }
      past = [...past.slice(-9), [minus(now.place, place), minus(now.slopes, slopes)]];
    }
    return now.place;
  }

  /** The slopes times the inverse of the matrix of second derivatives, as the changes of slopes by past moves show it. */
  function newton(slopes, pairs, scale) {
    if (!pairs.length) return slopes.map((v) => (scale ?? 0.25) * v);
    const [move, change] = pairs[pairs.length - 1], along = dot(move, change), part = dot(move, slopes) / along;
    const rest = minus(slopes, change.map((v) => part * v));
    const found = newton(rest, pairs.slice(0, -1), scale ?? along / dot(change, change));
    const missing = part - dot(change, found) / along;
    return found.map((v, j) => v + missing * move[j]);
  }

  /** The semi-axes C / b of least total error, whose search begins at `start`: a quasi-Newton method for their logarithms,
      each times its share in the root of the noise, so that the noise is as curved in every direction. No axis shrinks
      below `least` of what it is at the start. */
  function bestAxes(errors, start, least) {
    const size = norm(start), share = start.map((a) => a / size), unit = errors(start).total;
    const axesAt = (moves) => start.map((a, j) => a * Math.exp(moves[j] / share[j]));
    const relative = (moves) => {
      const { total, slopes } = errors(axesAt(moves));
      return { value: total / unit, slopes: slopes.map((slope, j) => slope / share[j] / unit) };
    };
    const down = Math.max(-REACH, Math.min(0, Math.log(least)));
    return axesAt(descent(relative, share.map((part) => down * part), share.map((part) => REACH * part)));
  }

  /** The scaling, the clip norm and the errors of a mechanism; p = "best" takes the clip norm of least total error, or for
      the scaling "optimal" the pair of both, as the package does with clip_probability="optimal",
      center_std=offset*sigma and sigma_factor=1. */
  function mechanism(sigma, { n, p, offset, scaling }, multiplier) {
    const errors = (b, clipNorm, aim, sloped) => {
      const { widest, weights } = spreadOf(b, sigma), noises = b.map((value) => (2 * multiplier * (clipNorm / value)) ** 2);
      const { slopes, ...loss } = lossOf(n, sigma, weights, (clipNorm / widest) ** 2, offset, aim, sloped);
      const noise = sum(noises), found = { noise, ...loss, total: noise + loss.clipping + loss.center };
      return sloped ? { ...found, slopes: noises.map((value, j) => 2 * value - slopes[j]) } : found;
    };
    let b = scalingOf(scaling, sigma, p === "best" ? 1 / n : p);
    if (p !== "best") {
      const clipNorm = clipNormOf(b, sigma, p);
      return { clipProbability: p, scaling: b, clipNorm, ...errors(b, clipNorm) };
    }
    const pair = scaling === "optimal", typical = norm(b.map((value, j) => value * sigma[j]));
    const least = 1e-3 * typical, most = clipNormOf(b, sigma, 1e-3 / n) + offset * typical;
    const total = (log) => errors(b, Math.exp(log), 1e-12).total;
    let clipNorm = Math.exp(leastOf(total, Math.log(least), Math.log(most), pair ? ROUGHLY : 1e-7));
    if (pair) {
      const start = b.map((value) => clipNorm / value), inverses = (list) => list.map((value) => 1 / value);
      const axes = bestAxes((axes) => errors(inverses(axes), 1, 1e-12, true), start, least / clipNorm);
      clipNorm = 1 / norm(sigma.map((s, j) => s / axes[j])); // such that E||b x||^2 = 1
      b = axes.map((a) => clipNorm / a);
    }
    const { widest, weights } = spreadOf(b, sigma);
    return { clipProbability: sf((clipNorm / widest) ** 2, weights), scaling: b, clipNorm, ...errors(b, clipNorm) };
  }

  /** Everything that the page shows of a mechanism, known before any data. The standard deviations are `sigma` or follow
      from alpha and d; p is a number, "1/n" or "best"; the center is off by `offset` standard deviations; the noise is
      "gaussian" or "l2". */
  function forecast({ alpha, d, sigma = zipfSigma(d, alpha), n, epsilon, delta, noise, scaling, p = "1/n", offset = 0 }) {
    const gaussian = gaussianMultiplier(epsilon, delta), l2 = l2Multiplier(epsilon, delta, sigma.length);
    const multiplier = noise === "l2" ? l2 : gaussian, setting = { n, p: p === "1/n" ? 1 / n : p, offset, scaling };
    const found = mechanism(sigma, setting, multiplier), noiseOf = (clipNorm) => 2 * clipNorm * multiplier;
    const plain = scaling === "none" ? found : mechanism(sigma, { ...setting, scaling: "none" }, multiplier);
    return {
      sigma,
      ...found,
      noiseMultiplier: multiplier,
      l2OverGaussian: (l2 / gaussian) ** 2,
      noiseStd: found.scaling.map((value) => noiseOf(found.clipNorm) / value),
      plainStd: noiseOf(plain.clipNorm),
      sampling: n * sum(sigma.map((s) => s * s)),
      improvement: p === "best" ? gain(sigma, 1 / n, scaling) : plain.noise / found.noise,
    };
  }

  /* ---- two correlated columns ---- */

  /** The scaling of Lemma 4.1 for two columns in the basis that is turned by `angle`, in radians: the standard deviations
      along its vectors, the clip norm with which correlated rows are clipped with probability p, and the noise. The
      weights of a scaled row are the eigenvalues of its covariance matrix, whose trace is 1. */
  function turned([a, b], r, angle, p, multiplier) {
    const c = Math.cos(angle), s = Math.sin(angle), both = 2 * c * s * r * a * b;
    const variances = [(c * a) ** 2 + both + (s * b) ** 2, (s * a) ** 2 - both + (c * b) ** 2];
    const sigma = variances.map(Math.sqrt), axes = sigma.map((value) => Math.sqrt(value * sum(sigma))); // 1 / b_j
    const determinant = (1 - r * r) * ((a * b) / (axes[0] * axes[1])) ** 2;
    const largest = (1 + Math.sqrt(Math.max(0, 1 - 4 * determinant))) / 2;
    const clipNorm = Math.sqrt(isf(p, [largest, determinant / largest]));
    const noiseStd = axes.map((value) => 2 * clipNorm * value * multiplier);
    const [noise, product] = [dot(noiseStd, noiseStd), sum(sigma) ** 2];
    return { angle, sigma, clipNorm, clipAxes: axes.map((value) => clipNorm * value), noiseStd, noise, product };
  }

  /** What the page shows of two columns whose standard deviations add up to 1: the clip region and the noise in the columns
      and in a basis ("columns", "eigenvectors", or "turned" by an angle in degrees), and the law's own ellipse, in which a
      row lies with probability 1 - p. The first eigenvector has the larger variance. */
  function pair({ ratio, r, basis, angle, n, epsilon, delta, noise, p }) {
    const sigma = [1 / (1 + ratio), ratio / (1 + ratio)], clipped = typeof p === "number" ? p : 1 / n;
    const multiplier = noise === "l2" ? l2Multiplier(epsilon, delta, 2) : gaussianMultiplier(epsilon, delta);
    const eigen = Math.atan2(2 * r * ratio, 1 - ratio * ratio) / 2;
    const at = (radians) => turned(sigma, r, radians, clipped, multiplier), eigenvectors = at(eigen), columns = at(0);
    const chosen = { columns, eigenvectors }[basis] ?? at((angle * Math.PI) / 180);
    const law = { angle: eigen, axes: eigenvectors.sigma.map((value) => value * Math.sqrt(-2 * Math.log(clipped))) };
    return { columns, chosen, law, p: clipped, multiplier };
  }

  return { forecast, gain, isf, pair, zipfSigma };
};

const egm = mathematics();
