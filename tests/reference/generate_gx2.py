"""Write gx2.json: tails, density and quantiles of sums Q = sum_j w_j chi2(k_j, nc_j), and means of the terms given Q.

The numbers have 20 to 30 digits.
"""

from math import log

from closed import closed_form
from contour import AGREE, isf, log_tail, log_values, make_form, rough_quantile, side
from forms import terms
from mpmath import mp, mpf
from store import write

UPPER = ("0.3", "1e-2", "1e-6", "1e-12", "1e-30", "1e-100", "1e-300", "exp(-1e5)", "exp(-1e6)")
FEW = ("0.3", "1e-6", "1e-30", "1e-300")
TOP = ("1e-2", "1e-12", "1e-100", "exp(-1e6)")
LOWER = ("0.5", "1e-3", "1e-12", "1e-100", "1e-300")
DEEP = ("0.5", "1e-12", "1e-300", "exp(-1e5)")

# family: [(form, upper tails, lower tails)]
FAMILIES = {
    "one term": [
        ({"weights": [1.0]}, UPPER, ("0.5", "1e-3", "1e-100")),
        ({"weights": [0.25], "dof": 2}, TOP, LOWER),
        ({"weights": [3.0], "dof": 3}, TOP, LOWER),
    ],
    "real dof": [
        ({"weights": [1.0], "dof": 0.3}, ("0.1", *UPPER[1:]), ("0.5", "1e-3")),
        ({"weights": [1.0], "dof": 17.25}, FEW, LOWER),
        ({"weights": [2.0, 1.0, 0.125], "dof": [0.3, 2.5, 17.25]}, FEW, LOWER),
        ({"weights": [1.0, 0.01], "dof": [2.5, 0.3]}, TOP, ("0.5", "1e-12")),
    ],
    "large dof": [
        ({"weights": [1.0], "dof": 1e4}, UPPER, DEEP),
        ({"weights": [1.0, 0.5], "dof": [1.0, 1e4]}, UPPER, DEEP),
    ],
    "equal weights": [
        ({"power": {"d": 2, "alpha": "0"}}, TOP, ("0.5", "1e-300")),
        ({"power": {"d": 3, "alpha": "0"}}, FEW, ("0.5", "1e-100")),
        ({"power": {"d": 10, "alpha": "0"}}, TOP, ("0.5", "1e-300")),
        ({"power": {"d": 100, "alpha": "0"}}, UPPER, LOWER),
    ],
    "one dominating weight": [
        ({"weights": [1.0] + [0.001] * 9}, UPPER, ("0.5", "1e-3", "1e-12", "1e-300")),
        ({"weights": [1.0, 1e-8]}, FEW, ("0.5", "1e-3", "1e-12")),
        ({"weights": [100.0, 1.0, 1.0, 1.0, 1.0]}, FEW, ("0.5", "1e-12")),
    ],
    "near-equal top weights": [
        ({"weights": [1.0, 0.999, 0.5]}, UPPER, ("0.5", "1e-12")),
        ({"weights": [1.0, 0.99999999, 0.5]}, TOP, ("0.5",)),
        ({"weights": [1.0, 0.999999999999, 0.5]}, UPPER, ("0.5",)),
        ({"weights": [1.0, 0.999999999999, 0.99999999, 0.999, 0.9]}, FEW, ("1e-3",)),
    ],
    "two dof-1 terms": [
        ({"weights": [3.0, 1.0]}, UPPER, LOWER),
        ({"weights": [1.0, 0.0001]}, TOP, ("0.5", "1e-3", "1e-100")),
    ],
    "geometric spread": [
        ({"weights": [float(f"1e-{j}") for j in range(31)]}, UPPER, LOWER),
        ({"halving": 100}, FEW, DEEP[:3]),
    ],
    "Zipf": [
        ({"power": {"d": d, "alpha": alpha}}, upper, lower)
        for d, upper, lower in ((10, UPPER, LOWER), (100, UPPER, LOWER), (1000, FEW, ("0.5", "1e-12", "exp(-1e5)")))
        for alpha in ("0.1", "1", "3")
    ]
    + [({"power": {"d": 10000, "alpha": "1"}}, ("1e-12",), ("1e-12",))],
    "sum of exponentials": [
        ({"power": {"d": 10, "alpha": "1"}, "dof": 2}, TOP, LOWER),
        ({"power": {"d": 100, "alpha": "1"}, "dof": 2}, TOP, LOWER),
    ],
    "noncentral": [
        ({"weights": [1.0], "dof": 1, "nc": 1.0}, TOP, ("0.5", "1e-3")),
        ({"weights": [2.0], "dof": 3, "nc": 100.0}, FEW, ("0.5", "1e-12", "1e-300")),
        ({"weights": [1.0], "dof": 1, "nc": 1e4}, UPPER[:-1], ("0.5", "1e-12", "1e-300")),
        ({"weights": [1.0, 0.5, 0.1], "nc": [0.0, 1e4, 1.0]}, UPPER, LOWER),
        ({"weights": [1.0, 0.5, 0.1], "nc": [1e4, 1e3, 1e4]}, UPPER, LOWER),
        ({"power": {"d": 10, "alpha": "1"}, "nc": [0.5 * j for j in range(10)]}, UPPER, LOWER),
        ({"power": {"d": 100, "alpha": "1"}, "nc": 2.0}, FEW, ("0.5", "1e-12", "1e-300")),
    ],
    "extreme scale": [
        ({"weights": [6e-150, 3e-150, 1e-150]}, FEW, ("0.5", "1e-12", "1e-100")),
        ({"weights": [6e150, 3e150, 1e150]}, FEW, ("0.5", "1e-12", "1e-100")),
        ({"weights": [1e150, 1.0, 1e-150]}, FEW, ("0.5", "1e-3")),
    ],
}

# source: (text, claimed accuracy). Davies' driver asks AS 155 for 1e-4; its six digits are those in the tests
# of Hail (GeneralizedChiSquaredDistributionSuite).
DAVIES = ("Davies (1980), AS 155 test driver, requested accuracy 1e-4", 1e-4)
IMHOF = ("Imhof (1961), Table 1, four digits", 0.501e-4)
LIU = ("Liu, Tang and Zhang (2009), exact values by Davies' method, six digits", 0.501e-6)
_631 = {"weights": [6.0, 3.0, 1.0]}
_NC2 = {"weights": [7.0, 3.0], "dof": [6, 2], "nc": [6.0, 2.0]}
_NC4 = {"weights": [7.0, 3.0, 7.0, 3.0], "dof": [6, 2, 1, 1], "nc": [6.0, 2.0, 6.0, 2.0]}
_HALF = {**_NC4, "weights": [0.35, 0.15, 0.35, 0.15]}
_NC3 = {"weights": [0.5, 0.4, 0.1], "dof": [1, 2, 1], "nc": [1.0, 0.6, 0.8]}
_SIX = {"weights": [6.0, 3.0, 1.0, 12.0, 6.0, 2.0], "dof": [6, 4, 2, 2, 4, 6]}
_LONG = {
    "weights": [6.0, 3.0, 1.0, 6.0, 3.0, 1.0, 7.0, 3.0, 7.0, 3.0],
    "dof": [6, 4, 2, 2, 4, 6, 6, 2, 1, 1],
    "nc": [0.0] * 6 + [6.0, 2.0, 6.0, 2.0],
}

# (source, tail, form, {x: published})
PUBLISHED = [
    (DAVIES, "cdf", _631, {1.0: "0.054213", 7.0: "0.493555", 20.0: "0.876027"}),
    (DAVIES, "cdf", {**_631, "dof": 2}, {2.0: "0.006435", 20.0: "0.600208", 60.0: "0.983897"}),
    (DAVIES, "cdf", {**_631, "dof": [6, 4, 2]}, {10.0: "0.002697", 50.0: "0.564753", 120.0: "0.991229"}),
    (DAVIES, "cdf", {**_631, "dof": [2, 4, 6]}, {10.0: "0.033357", 30.0: "0.580446", 80.0: "0.991283"}),
    (DAVIES, "cdf", _NC2, {20.0: "0.006125", 100.0: "0.591339", 200.0: "0.977914"}),
    (DAVIES, "cdf", {**_NC2, "dof": 1}, {10.0: "0.045126", 60.0: "0.592431", 150.0: "0.977648"}),
    (DAVIES, "cdf", _SIX, {45.0: "0.01095", 120.0: "0.654735", 210.0: "0.984606"}),
    (DAVIES, "cdf", _NC4, {70.0: "0.043679", 160.0: "0.584765", 260.0: "0.953774"}),
    (DAVIES, "cdf", _LONG, {120.0: "0.015844", 240.0: "0.573625", 400.0: "0.988332"}),
    (DAVIES, "cdf", {"weights": [30.0, 1.0], "dof": [1, 10]}, {5.0: "0.015392", 25.0: "0.510819", 100.0: "0.91634"}),
    (DAVIES, "cdf", {"weights": [30.0, 1.0], "dof": [1, 20]}, {10.0: "0.004925", 40.0: "0.573251", 100.0: "0.896501"}),
    (DAVIES, "cdf", {"weights": [30.0, 1.0], "dof": [1, 30]}, {20.0: "0.017101", 50.0: "0.566488", 100.0: "0.871323"}),
    (IMHOF, "sf", {"weights": [0.6, 0.3, 0.1]}, {0.1: "0.9458", 0.7: "0.5064", 2.0: "0.1240"}),
    (IMHOF, "sf", {"weights": [0.6, 0.3, 0.1], "dof": 2}, {0.2: "0.9936", 2.0: "0.3998", 6.0: "0.0161"}),
    (IMHOF, "sf", {"weights": [0.6, 0.3, 0.1], "dof": [6, 4, 2]}, {1.0: "0.9973", 5.0: "0.4353", 12.0: "0.0088"}),
    (IMHOF, "sf", {"weights": [0.6, 0.3, 0.1], "dof": [2, 4, 6]}, {1.0: "0.9666", 3.0: "0.4196", 8.0: "0.0087"}),
    (IMHOF, "sf", {**_NC2, "weights": [0.7, 0.3]}, {2.0: "0.9939", 10.0: "0.4087", 20.0: "0.0221"}),
    (IMHOF, "sf", {"weights": [0.7, 0.3], "nc": [6.0, 2.0]}, {1.0: "0.9549", 6.0: "0.4076", 15.0: "0.0223"}),
    (IMHOF, "sf", _HALF, {3.5: "0.9563", 8.0: "0.4152", 13.0: "0.0462"}),
    (LIU, "sf", _NC3, {2.0: "0.457461", 6.0: "0.031109", 8.0: "0.006885"}),
    (LIU, "sf", {"weights": [0.7, 0.3], "nc": [6.0, 2.0]}, {1.0: "0.954873", 6.0: "0.407565", 15.0: "0.022343"}),
    (LIU, "sf", {"weights": [0.995, 0.005], "dof": [1, 2], "nc": [1.0, 1.0]}, {2.0: "0.347939", 8.0: "0.033475"}),
    (LIU, "sf", {**_HALF, "dof": [1, 1, 6, 2]}, {3.5: "0.956318", 8.0: "0.415239", 13.0: "0.046231"}),
]

HUNDRED = {"power": {"d": 100, "alpha": "1"}}
QUANTILES = [
    (HUNDRED, (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-30, 1e-100, 1e-300)),
    (_631, (0.5, 1e-12)),
    ({"weights": [1.0, 0.5, 0.1], "nc": [0.0, 1e4, 1.0]}, (1e-6, 1e-30)),
]
CONDITIONAL = [
    ({"weights": [3.0, 1.0]}, (0.5, 4.0, 60.0)),
    (_631, (1.0, 10.0, 400.0)),
    ({"power": {"d": 10, "alpha": "1"}}, (1.0, 30.0)),
    ({"weights": [1.0] + [0.001] * 9}, (0.01, 20.0)),
    ({"weights": [2.0, 1.0, 0.125], "dof": [0.3, 2.5, 17.25]}, (5.0, 50.0)),
    ({"weights": [7.0, 3.0], "nc": [6.0, 2.0]}, (10.0, 150.0)),
]


def text(value, digits=30):
    """Return the number `value` as a decimal string with `digits` digits, which mpmath and float can read."""
    return mp.nstr(value, digits)


def log_of(target):
    """Return the natural logarithm of the number `target`, which is text such as "1e-12" or "exp(-1e5)"."""
    return float(target[4:-1]) if target.startswith("exp") else log(float(target))


def must_agree(name, one, two):
    """Raise an ArithmeticError if the numbers `one` and `two` differ by more than the constant AGREE.

    `name` says in the error's message what was compared.
    """
    if abs(one - two) > AGREE:
        raise ArithmeticError(f"{name}: {one} and {two}")


def value_case(form, x, **about):
    """Return a dictionary for gx2.json with the logarithms of both tails and of the density of a chi-square sum at x.

    `form` is the sum as gx2.json stores it, and further keyword arguments become entries of the dictionary. An
    ArithmeticError is raised if a formula in closed form or a second integral gives another value.
    """
    parts = terms(form)
    inner = make_form(*parts)
    values = dict(zip(("sf", "cdf", "pdf"), log_values(inner, x), strict=True))
    name, known = closed_form(*parts, x)
    for key, value in known.items():
        must_agree(f"{name} {form} {x} {key}", mp.log(value), values[key])
    if min(values["sf"], values["cdf"]) > log(0.25) and 2 <= sum(parts[1]) <= 100:
        upper = not side(inner, x)
        must_agree(f"other side {form} {x}", log_tail(inner, x, upper)[0], values["sf" if upper else "cdf"])
    logs = {f"log_{key}": text(value) for key, value in values.items()}
    return {**about, "form": form, "x": x, **logs, **({"check": name} if name else {})}


def family_cases():
    """Yield a dictionary (see `value_case`) with tails and density for each tail probability listed in FAMILIES.

    FAMILIES lists chi-square sums, each with several probabilities. The tails and the density are those at a point x
    that is approximately the quantile for the probability. An x below 1e-300 is left out, because doubles are sparse
    there.
    """
    for family, rows in FAMILIES.items():
        for row, (form, upper, lower) in enumerate(rows):
            inner = make_form(*terms(form))
            for tail, targets in (("sf", upper), ("cdf", lower)):
                for target in targets:
                    x = rough_quantile(inner, log_of(target), tail == "sf")
                    if x > 1e-300:
                        yield value_case(form, x, family=family, name=f"{family} {row}, {tail} = {target}")


def published_cases():
    """Yield a dictionary (see `value_case`) with tails and density for each published tail probability in PUBLISHED.

    If a published value differs from the computed one by more than the accuracy that its source claims, both are
    printed, and the dictionary is left out.
    """
    for row, ((source, accuracy), tail, form, table) in enumerate(PUBLISHED):
        for x, digits in table.items():
            about = {"family": "published", "name": f"published {row}, x = {x}", "source": source}
            case = value_case(form, x, **about, published={tail: digits, "accuracy": accuracy})
            value = mp.exp(mpf(case[f"log_{tail}"]))
            if abs(value - mpf(digits)) > accuracy:
                print(f"left out: {digits} at x = {x} of {form}, {source}: computed {text(value, 9)}")
            else:
                yield case


def quantile_cases():
    """Yield a dictionary with form, probability p and upper quantile, for each chi-square sum and each p in QUANTILES.

    The form is the description of the sum in gx2.json. p is a double, and the quantile is that for its exact value.
    """
    for form, ps in QUANTILES:
        for p in ps:
            yield {"form": form, "p": p, "isf": text(isf(make_form(*terms(form)), mp.log(mpf(p))), 20)}


def conditional_means(form, x):
    """Return E[chi2(k_j, nc_j) | Q = x] for each term j of Q = sum_j w_j chi2(k_j, nc_j), as ratios of densities.

    `form` is Q as gx2.json stores it. The density of Q is needed with k_j increased by 2 and by 4, because z f(z; k,
    nc) = k f(z; k + 2, nc) + nc f(z; k + 4, nc) for the density f of chi2(k, nc).
    """
    weights, dof, nc = terms(form)

    def density(j, extra):
        inner = make_form(weights, [mpf(k) + extra * (i == j) for i, k in enumerate(dof)], nc)
        return mp.exp(log_tail(inner, x, side(inner, x))[1])

    total = density(0, 0)
    pairs = enumerate(zip(dof, nc, strict=True))
    means = [(k * density(j, 2) + (a * density(j, 4) if a else 0)) / total for j, (k, a) in pairs]
    must_agree(f"means {form} {x}", mp.fsum(mpf(w) * g for w, g in zip(weights, means, strict=True)) / mpf(x), mpf(1))
    return means


def main():
    """Compute values, quantiles and conditional means for chi-square sums, and write them to gx2.json.

    The values are tails and densities. A conditional mean is that of a term of the sum, given the sum.
    """
    conditional = [
        {"form": form, "x": x, "means": [text(g, 25) for g in conditional_means(form, x)]}
        for form, xs in CONDITIONAL
        for x in xs
    ]
    values = [*published_cases(), *family_cases()]
    write("gx2.json", {"values": values, "quantiles": list(quantile_cases()), "conditional": conditional})


if __name__ == "__main__":
    main()
