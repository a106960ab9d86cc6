"""Provide stand-ins for data and random generators, files with data, and simple mechanisms for several test modules."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from egm import AdaptiveDataMechanism, LaplaceMechanism
from egm.budget import BudgetExceeded


class Silent(np.random.Generator):
    """Random generator whose Laplace and normal numbers are all zero, so that a simulated release has no noise."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def normal(self, loc, scale):
        return np.zeros_like(scale)

    laplace = normal


class ReadError(BaseException):
    """Exception that `Unread` raises if its values are read.

    It is no subclass of Exception, so that code with ``except Exception`` does not hide it from a test.
    """


class Unread:
    """Stand-in for an array of data: it has a shape and a type, and raises ReadError if its values are read."""

    def __init__(self, *shape, dtype=float):
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __array__(self, *_, **__):
        raise ReadError("the data were read")


def csv_text(X, names):
    header = [",".join(f'"{name}"' for name in names)] if names else []
    return "\n".join([*header, *(",".join(map(repr, row)) for row in X.tolist())]) + "\n"


def written(path, X, names):
    """Write the array `X` to a CSV, NPY or Parquet file, according to the suffix of `path`, and return `path`.

    `names` are the names of the columns. An NPY file has no names, and a CSV file has no header if `names` is empty.
    """
    if path.suffix == ".csv":
        path.write_text(csv_text(X, names))
    elif path.suffix == ".npy":
        np.save(path, X)
    else:
        pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), path, row_group_size=777)
    return path


def laplace(epsilon):
    return LaplaceMechanism(1.0, epsilon)


def adaptive(rho, **options):
    return AdaptiveDataMechanism(20_000, rho, radius=1.0, sigma_range=(1.0, 2.0), **options)


def fill(budget, mechanism, most=1000):
    """Record the cost of `mechanism` in `budget` again and again, and return how many times the budget accepts it.

    The function stops if the budget refuses the cost, or if it has accepted the cost `most` times.
    """
    for number in range(most):
        try:
            budget.charge(mechanism)
        except BudgetExceeded:
            return number
    return most
