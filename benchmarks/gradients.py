"""Ask whether a scaling of the coordinates pays when a model is trained by stochastic gradient descent (DP-SGD).

In each step DP-SGD sums the gradients of a random sample of rows: it clips each gradient, adds normal noise to the sum,
and takes a step along the result. A transform before the clipping may center and scale the gradients. All transforms
have the same privacy, because they are public, or depend on earlier noisy sums only. The exceptions are named.

Run it by `python -m benchmarks.gradients`. It needs dp-accounting, which computes the noise for Poisson samples, and
scikit-learn for the data. The clip norm and the step size are tuned for each transform alike, and not privately.
"""

import argparse
import warnings
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, product

import numpy as np

from benchmarks.gx2 import heading, row, verdict
from egm import GaussianDataMechanism, scaling
from egm.study.timing import race

DELTA, EPSILONS = 1e-5, (1.0, 3.0)
SHARE, STEPS, PUBLIC = 0.2, 100, 100  # of the rows in a sample; steps; public rows, which no method trains with
CLIP_NORMS, RATES = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 0.3, 1.0, 3.0, 10.0)  # the grid on which each method is tuned
TUNING, SEEDS = range(100, 103), range(10)  # seeds for tuning, and other ones for the results
HIDDEN = {"logistic regression": (), "network": (32,)}  # widths of the hidden layers
FLOOR = 0.1  # least standard deviation of a coordinate, over the root mean square of all coordinates


@cache
def noise_multiplier(epsilon, share=SHARE, steps=STEPS):
    """Return the standard deviation of the noise, over the clip norm, that `steps` steps need for `epsilon` and DELTA.

    Each step sees every row with probability `share`, and data sets are neighbors if one row is added or removed.
    """
    import dp_accounting as dp

    def event(z):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(z)), steps)

    def accountant():
        return dp.pld.PLDAccountant(value_discretization_interval=1e-3)

    return dp.calibrate_dp_mechanism(accountant, event, epsilon, DELTA, dp.LowerEndpointAndGuess(0.3, 5.0), tol=1e-2)


def data(name, seed):
    """Return training, public and test rows of the data set `name` of scikit-learn, each as a pair (X, Y).

    `name` is "digits" or "breast_cancer". Y has a one in the column of the class. The columns are divided by the
    largest value (digits) or standardized (breast cancer) beforehand, which is not counted as a privacy loss.
    """
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    X = X / 16 if name == "digits" else (X - X.mean(axis=0)) / X.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(X))
    X, Y = X[order].astype(np.float32), np.eye(y.max() + 1, dtype=np.float32)[y[order]]
    test = len(X) // 5
    parts = slice(test + PUBLIC, None), slice(test, test + PUBLIC), slice(test)
    return [(X[part], Y[part]) for part in parts]


class Model:
    """Classifier with layers of `widths`, from columns to classes: a softmax, with tanh between the layers."""

    def __init__(self, *widths):
        self.shapes = [(before + 1, after) for before, after in pairwise(widths)]
        self.size = sum(rows * columns for rows, columns in self.shapes)

    def layers(self, theta):
        """Return the list of the matrices of the layers, as views of the vector `theta` of all parameters."""
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(theta, ends), self.shapes, strict=False)]

    def start(self, rng):
        """Return the vector of the parameters before training: small normal numbers drawn with the generator `rng`."""
        parts = [rng.normal(0, 0.5 / np.sqrt(shape[0]), shape).ravel() for shape in self.shapes]
        return np.concatenate(parts).astype(np.float32)

    def forward(self, theta, X):
        """Return the inputs of all layers, each with a last column of ones, and the probabilities of the classes."""
        inputs, one = [], np.ones((len(X), 1), np.float32)
        for W in self.layers(theta):
            inputs.append(np.hstack([X if not inputs else np.tanh(X), one]))
            X = inputs[-1] @ W
        X = np.exp(X - X.max(axis=1, keepdims=True))
        return inputs, X / X.sum(axis=1, keepdims=True)

    def gradients(self, theta, X, Y):
        """Return the gradients of the loss, one row for each row of `X` and `Y`, at the parameters `theta`."""
        inputs, shares = self.forward(theta, X)
        error, parts = shares - Y, []
        for entering, W in zip(reversed(inputs), reversed(self.layers(theta)), strict=True):
            parts.append((entering[:, :, None] * error[:, None, :]).reshape(len(X), -1))
            error = (error @ W[:-1].T) * (1 - entering[:, :-1] ** 2)
        return np.hstack(parts[::-1])

    def accuracy(self, theta, X, Y):
        """Return the share of the rows `X` whose most probable class is that in `Y`."""
        return np.mean(self.forward(theta, X)[1].argmax(axis=1) == Y.argmax(axis=1))


def lemma(spread):
    """Return multipliers proportional to those of Lemma 4.1 for coordinates with the standard deviations `spread`.

    They are such that the noise has the same total variance as without multipliers. So clip norms can be compared, and
    what remains is the shape: which coordinates have how much of the noise.
    """
    b = scaling.expected_norm(np.maximum(spread, FLOOR * np.sqrt(np.mean(spread**2))))
    return (b * np.sqrt(np.mean(b**-2.0))).astype(np.float32)


@dataclass
class Transform:
    """Center and multipliers of gradients before they are clipped; this base class is plain DP-SGD, without any."""

    size: int
    center: float | np.ndarray = 0.0
    b: float | np.ndarray = 1.0

    def prepare(self, gradients, private, public):
        """Before a step, see the function `gradients` of rows, and the rows `private` and `public` it may be asked."""

    def learn(self, mean, noise_std):
        """After a step, see the noisy `mean` of the gradients, and the standard deviation of its noise."""


@dataclass
class AdaCliP(Transform):
    """The transform of Pichapati et al. (2019), from running means of noisy gradients and of their squares.

    Given the spread, its multipliers are those of Lemma 4.1. Here the clip norm is tuned, which is 1 in the paper.
    """

    squares: float | np.ndarray = 10**-5.5

    def learn(self, mean, noise_std):
        """After a step, update center and multipliers by the noisy `mean` of the gradients and its `noise_std`."""
        seen = np.clip((mean - self.center) ** 2 - noise_std**2, 1e-12, 10.0)
        self.center = 0.99 * self.center + 0.01 * mean
        self.squares = 0.9 * self.squares + 0.1 * seen
        self.b = lemma(np.sqrt(self.squares))


@dataclass
class Noisy(Transform):
    """The scaling of Lemma 4.1 for the mean squares of all earlier noisy gradients, less those of their noise.

    Where a mean square is less than its standard error, it is replaced by the standard error.
    """

    steps: int = 0
    squares: float | np.ndarray = 0.0
    errors: float | np.ndarray = 0.0

    def learn(self, mean, noise_std):
        """After a step, update the multipliers by the noisy `mean` of the gradients and its `noise_std`."""
        self.steps += 1
        self.squares = self.squares + mean**2 - noise_std**2
        self.errors = self.errors + 2 * noise_std**4
        self.b = lemma(np.sqrt(np.maximum(self.squares, np.sqrt(self.errors)) / self.steps))


class Public(Transform):
    """The scaling of Lemma 4.1 for the mean squares of the gradients of public rows."""

    def prepare(self, gradients, private, public):
        """Before a step, compute the multipliers from the `gradients` of the rows `public`."""
        self.b = lemma(np.sqrt(np.mean(gradients(*public) ** 2, axis=0)))


class Exact(Transform):
    """The scaling of Lemma 4.1 for the mean squares of the gradients of training rows, which is not private."""

    def prepare(self, gradients, private, public):
        """Before a step, compute the multipliers from the `gradients` of 300 of the rows `private`."""
        X, Y = private
        self.b = lemma(np.sqrt(np.mean(gradients(X[:300], Y[:300]) ** 2, axis=0)))


METHODS = {
    "plain DP-SGD": Transform,
    "AdaCliP": AdaCliP,
    "scaling, noisy gradients": Noisy,
    "scaling, public rows": Public,
    "scaling, exact (not private)": Exact,
}


def train(name, model_name, method, z, clip_norm, rate, seed):
    """Return the accuracy on test rows of a model that was trained by DP-SGD.

    `name` is the data set, `model_name` a key of HIDDEN, and `method` a class of transforms. The noise has the standard
    deviation `z` times `clip_norm`. `rate` is the step size for clip norm 1; `seed` chooses the rows and the noise.
    """
    private, public, test = data(name, seed)
    rng, n = np.random.default_rng(seed), len(private[0])
    model = Model(private[0].shape[1], *HIDDEN[model_name], private[1].shape[1])
    theta, transform = model.start(rng), method(model.size)
    for _ in range(STEPS):
        transform.prepare(partial(model.gradients, theta), private, public)
        center, b = transform.center, transform.b
        chosen = rng.random(n) < SHARE
        rows = (model.gradients(theta, private[0][chosen], private[1][chosen]) - center) * b
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        total = np.minimum(1, clip_norm / np.maximum(norms, 1e-30)) @ rows
        total = total + z * clip_norm * rng.standard_normal(model.size, np.float32)
        mean = center + total / (b * SHARE * n)
        transform.learn(mean, z * clip_norm / (b * SHARE * n) * np.ones(model.size))
        theta = (theta - rate / clip_norm * mean).astype(np.float32)
    return model.accuracy(theta, *test)


def tuned(*case):
    """Return the clip norm and the rate of the grid with the best mean accuracy over the seeds TUNING.

    `case` has the first arguments of `train`: the data set, the model, the method and the noise multiplier.
    """

    def score(pair):
        return np.mean([train(*case, *pair, seed) for seed in TUNING])

    return max(product(CLIP_NORMS, RATES), key=score)


def accuracy(quick):
    """Train by each method with the same privacy, and yield lines of text with the accuracies on test rows.

    An accuracy is in percent, with its standard error over the seeds. The columns "gain" have the mean difference from
    plain DP-SGD with the same seeds. If `quick` is true, there are one data set and one model.
    """
    for name, model in list(product(("digits", "breast_cancer"), HIDDEN))[: 1 if quick else 4]:
        columns = [f"{text} eps {epsilon:g}" for text in ("", "gain,") for epsilon in EPSILONS]
        yield from heading(f"{name}, {model}: accuracy in percent", *columns)
        plain = {}
        for label, method in METHODS.items():
            cells, gains, choices = [], [], []
            for epsilon in EPSILONS:
                case = name, model, method, noise_multiplier(epsilon)
                choices.append(tuned(*case))
                shares = np.array([100 * train(*case, *choices[-1], seed) for seed in SEEDS])
                gains.append(spread(shares - plain.setdefault(epsilon, shares)))
                cells.append(spread(shares))
            chosen = "; ".join("clip norm {:g}, rate {:g}".format(*choice) for choice in choices)
            yield row(label, *cells, *gains, goal=chosen)
        shares = [[100 * train(name, model, Transform, 0.0, 10.0, rate, seed) for seed in SEEDS] for rate in RATES]
        yield row("without noise", spread(max(shares, key=np.mean)))
        yield row("noise variance, scaled over plain", f"{noise_ratio(name, model):.2f}")


def spread(values):
    """Return the mean of the list `values` and its standard error, as a text."""
    return f"{np.mean(values):.1f} +- {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


def noise_ratio(name, model_name):
    """Return by what factor Lemma 4.1 changes the variance of the noise for the gradients before the first step.

    The rows are clipped at the root of their mean squared norm. `name` is the data set, and `model_name` a key of
    HIDDEN.
    """
    private, _, _ = data(name, 0)
    model = Model(private[0].shape[1], *HIDDEN[model_name], private[1].shape[1])
    squares = np.mean(model.gradients(model.start(np.random.default_rng(0)), *private) ** 2, axis=0)
    return np.sum(np.sqrt(squares)) ** 2 / (squares.size * np.sum(squares))


def times():
    """Measure a simulated release of the sum of 256 gradients of 10 000 numbers; yield lines of text."""
    n, d = 256, 10_000
    sigma = np.arange(1.0, d + 1) ** -0.5
    rng, X = np.random.default_rng(1), np.random.default_rng(2).normal(0, sigma, (n, d))
    single = X.astype(np.float32)

    def mechanism(p=0.1):
        return GaussianDataMechanism(sigma, n, 1.0, 1e-5, clip_probability=p)

    def by_hand():
        rows = (X - it.center) * it.b
        factors = np.minimum(1, it.clip_norm / np.sqrt(np.einsum("ij,ij->i", rows, rows)))
        return ((factors @ rows + rng.normal(0, it.noise_std[0] * it.b[0], d)) / it.b)[0]

    it = mechanism()
    it.release(X, rng=rng), it.release(single, rng=rng)  # compile first
    calls = {
        "release of doubles": lambda: it.release(X, rng=rng).estimate[0],
        "release of float32": lambda: it.release(single, rng=rng).estimate[0],
        "the same by NumPy": by_hand,
        "construction": lambda: mechanism().clip_norm,
    }
    yield from heading(f"sum of ({n}, {d}), simulated noise, milliseconds", "median")
    for label, seconds in zip(calls, race(calls, repetitions=15, patience=10.0)["median"], strict=True):
        yield verdict(label, [1e3 * seconds], ".1f", most=30)


def main():
    """Print the times of a release and the accuracies; the option --quick takes one data set and one model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradients", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one data set and one model")
    warnings.simplefilter("ignore")  # simulated noise
    for part in (times(), accuracy(parser.parse_args().quick)):
        for line in part:
            print(line, flush=True)


if __name__ == "__main__":
    main()
