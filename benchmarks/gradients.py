"""Measure whether scaling the coordinates of gradients improves training by private gradient descent (DP-SGD).

In each step DP-SGD takes the gradients of a random sample of rows, clips each gradient, adds them up, adds normal noise
to the sum, and takes a step against the direction of the result. Before the clipping, a transform may center and scale
the gradients. The privacy is the same with every transform that depends only on public rows or on the noisy sums of
earlier steps. One transform uses the training rows themselves, and is called "not private".

Run it by `python -m benchmarks.gradients`. It needs dp-accounting, which computes the noise for Poisson samples, and
scikit-learn for the data. For each transform, the clip norm and the step size are tuned on the same grid, and not
privately.
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
SHARE, STEPS, PUBLIC = 0.2, 100, 100  # share of the rows in a sample; numbers of steps and of public rows
CLIP_NORMS, RATES = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 0.3, 1.0, 3.0, 10.0)  # the grid on which each method is tuned
TUNING, SEEDS = range(100, 103), range(10)  # seeds for tuning, and other seeds for the results
HIDDEN = {"logistic regression": (), "network": (32,)}  # widths of the hidden layers
FLOOR = 0.1  # least standard deviation of a coordinate, divided by the root mean square of all of them


@cache
def noise_multiplier(epsilon, share=SHARE, steps=STEPS):
    """Return the standard deviation of the noise, divided by the clip norm, for private training.

    With this noise, `steps` steps are together (`epsilon`, DELTA)-differentially private. In each step a row is in the
    sample with probability `share`. Of two neighboring data sets, one has one row more than the other.
    """
    import dp_accounting as dp

    def event(z):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(z)), steps)

    def accountant():
        return dp.pld.PLDAccountant(value_discretization_interval=1e-3)

    return dp.calibrate_dp_mechanism(accountant, event, epsilon, DELTA, dp.LowerEndpointAndGuess(0.3, 5.0), tol=1e-2)


def data(name, seed):
    """Return training, public and test rows of the data set `name` of scikit-learn, as a list of three pairs (X, Y).

    `name` is "digits" or "breast_cancer", and `seed` chooses the rows of each pair. Each row of Y has a one in the
    column of its class, and zeros elsewhere. The columns of X are divided by 16 ("digits") or standardized, which is
    not counted as a privacy loss.
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
    """Classify rows by a neural network with tanh between its layers and a softmax at its end.

    `widths` are the number of columns of the data, the widths of the hidden layers, and the number of classes.
    """

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
        """Return a list of the inputs of all layers, and the probabilities of the classes, for the rows `X`.

        `theta` is the vector of all parameters. An input has a row for each row of `X`, and a last column of ones. The
        probabilities have a column for each class.
        """
        inputs, one = [], np.ones((len(X), 1), np.float32)
        for W in self.layers(theta):
            inputs.append(np.hstack([X if not inputs else np.tanh(X), one]))
            X = inputs[-1] @ W
        X = np.exp(X - X.max(axis=1, keepdims=True))
        return inputs, X / X.sum(axis=1, keepdims=True)

    def gradients(self, theta, X, Y):
        """Return the gradients of the cross-entropy at the parameters `theta`, one row for each row of `X` and `Y`."""
        inputs, shares = self.forward(theta, X)
        error, parts = shares - Y, []
        for entering, W in zip(reversed(inputs), reversed(self.layers(theta)), strict=True):
            parts.append((entering[:, :, None] * error[:, None, :]).reshape(len(X), -1))
            error = (error @ W[:-1].T) * (1 - entering[:, :-1] ** 2)
        return np.hstack(parts[::-1])

    def accuracy(self, theta, X, Y):
        """Return the fraction of the rows `X` whose most probable class, for the parameters `theta`, is that in `Y`."""
        return np.mean(self.forward(theta, X)[1].argmax(axis=1) == Y.argmax(axis=1))


def lemma(spread):
    """Return factors b_j proportional to 1 / sqrt(spread_j), the scaling of Lemma 4.1 of Poulsen's report.

    `spread` has the standard deviations of the coordinates. The common factor is chosen so that the scaling does not
    change the total variance of the noise for a given clip norm; then clip norms can be compared. Standard deviations
    below `FLOOR` times the root mean square of all of them are replaced by this product.
    """
    b = scaling.expected_norm(np.maximum(spread, FLOOR * np.sqrt(np.mean(spread**2))))
    return (b * np.sqrt(np.mean(b**-2.0))).astype(np.float32)


@dataclass
class Transform:
    """Transform gradients before they are clipped; this base class changes nothing, and stands for plain DP-SGD.

    `center` is subtracted from each gradient, and the difference is multiplied by `b`. Subclasses compute both in
    `prepare` or in `learn`. `size` is the number of parameters of the model.
    """

    size: int
    center: float | np.ndarray = 0.0
    b: float | np.ndarray = 1.0

    def prepare(self, gradients, private, public):
        """Compute the transform before a step; this base class does nothing.

        `private` are the training rows and `public` the public rows, each a pair (X, Y). `gradients` is a function of X
        and Y that returns the gradient of each row.
        """

    def learn(self, mean, noise_std):
        """Update the transform after a step; this base class does nothing.

        `mean` is the noisy mean of the gradients of the sample, and `noise_std` has the standard deviation of the noise
        in each entry of `mean`.
        """


@dataclass
class AdaCliP(Transform):
    """Transform gradients as AdaCliP does (Pichapati et al. 2019), by running means of noisy gradients.

    A coordinate is multiplied by a factor proportional to 1 / sqrt(s), where s is its estimated standard deviation.
    `squares` has the estimates of s**2 for all coordinates: running means of the squared difference of the noisy mean
    gradient and `center`, minus the variance of the noise. The clip norm is 1 in the paper, but is tuned here.
    """

    squares: float | np.ndarray = 10**-5.5

    def learn(self, mean, noise_std):
        """Update `center`, which is subtracted from gradients, and the factors `b` from the noisy `mean` of a step."""
        seen = np.clip((mean - self.center) ** 2 - noise_std**2, 1e-12, 10.0)
        self.center = 0.99 * self.center + 0.01 * mean
        self.squares = 0.9 * self.squares + 0.1 * seen
        self.b = lemma(np.sqrt(self.squares))


@dataclass
class Noisy(Transform):
    """Transform gradients by standard deviations that are estimated from the noisy gradients of earlier steps.

    A coordinate is multiplied by a factor proportional to 1 / sqrt(s), where s is its standard deviation. A step gives
    a term for each coordinate: the square of the noisy mean gradient, minus the variance of its noise. The estimate of
    s**2 is the mean of the terms over the steps, or the standard error of this mean if that is larger. `steps` counts
    the steps, `squares` is the sum of the terms, and `errors` the variance of the sum due to the noise.
    """

    steps: int = 0
    squares: float | np.ndarray = 0.0
    errors: float | np.ndarray = 0.0

    def learn(self, mean, noise_std):
        """Update the factors `b`, by which gradients are multiplied, from the noisy `mean` gradient of a step."""
        self.steps += 1
        self.squares = self.squares + mean**2 - noise_std**2
        self.errors = self.errors + 2 * noise_std**4
        self.b = lemma(np.sqrt(np.maximum(self.squares, np.sqrt(self.errors)) / self.steps))


class Public(Transform):
    """Transform gradients by factors that are computed from the gradients of public rows.

    A coordinate is multiplied by a factor proportional to 1 / sqrt(s), where s is the root mean square of this
    coordinate of the gradients of the public rows.
    """

    def prepare(self, gradients, private, public):
        """Compute the factors `b` before a step of the training, from the gradients of the rows `public`."""
        self.b = lemma(np.sqrt(np.mean(gradients(*public) ** 2, axis=0)))


class Exact(Transform):
    """Transform gradients by factors that are computed from the gradients of some training rows, without privacy.

    A coordinate is multiplied by a factor proportional to 1 / sqrt(s), where s is the root mean square of this
    coordinate of the gradients of these rows. The factors have no noise, and so the training is not private.
    """

    def prepare(self, gradients, private, public):
        """Compute the factors `b` before a step of the training, from the gradients of 300 of the rows `private`."""
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
    """Train a model by DP-SGD, and return its accuracy on test rows.

    `name` is the data set, `model_name` a key of HIDDEN, and `method` is `Transform` or a subclass. The noise has the
    standard deviation `z` times `clip_norm`, and the step size is `rate` divided by `clip_norm`. `seed` chooses all
    that is random.
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
    """Return the pair (clip norm, rate) with which training is most accurate on average, for one method and data set.

    All pairs of an entry of CLIP_NORMS and an entry of RATES are tried; the step size is the rate divided by the clip
    norm. `case` has the first four arguments of `train`. The average is over the seeds TUNING.
    """

    def score(pair):
        return np.mean([train(*case, *pair, seed) for seed in TUNING])

    return max(product(CLIP_NORMS, RATES), key=score)


def accuracy(quick):
    """Train models by each method, all with the same privacy; yield lines of text with the accuracies on test rows.

    An accuracy is in percent, with its standard error over the seeds SEEDS. The columns "gain" have the mean difference
    from the accuracy of plain DP-SGD with the same seeds. If `quick` is true, only one data set and one model are used.
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
    """Return the mean of the list `values` and its standard error as a text, such as "93.1 +- 0.4"."""
    return f"{np.mean(values):.1f} +- {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


def noise_ratio(name, model_name):
    """Return the total variance of the noise in the first step of DP-SGD with a scaling over that without scaling.

    The total is the sum over all coordinates, after the scaling has been undone. The scaling is by 1 / sqrt(s), where s
    are the root mean squares of the coordinates of the gradients. `name` is the data set, and `model_name` a key of
    HIDDEN. In both cases the clip norm is the root mean square norm of the gradients, after scaling if there is one.
    """
    private, _, _ = data(name, 0)
    model = Model(private[0].shape[1], *HIDDEN[model_name], private[1].shape[1])
    squares = np.mean(model.gradients(model.start(np.random.default_rng(0)), *private) ** 2, axis=0)
    return np.sum(np.sqrt(squares)) ** 2 / (squares.size * np.sum(squares))


def times():
    """Measure the time to release the sum of 256 gradients of 10 000 numbers with simulated noise; yield lines of text.

    The times are those of the release, of the same clipping, sum and noise by NumPy alone, and of the construction of
    the mechanism.
    """
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
    """Print the times of a release and the accuracies of training; with --quick, for one data set and one model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradients", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one data set and one model")
    warnings.simplefilter("ignore")  # simulated noise
    for part in (times(), accuracy(parser.parse_args().quick)):
        for line in part:
            print(line, flush=True)


if __name__ == "__main__":
    main()
