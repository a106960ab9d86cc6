"""Test that a release from files that are larger than the memory of the process needs little memory."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from egm import GaussianDataMechanism

LIMIT, FILES, ROWS, COLUMNS = 1 << 30, 100, 250_000, 10  # 2 GB of doubles
RUN = "import sys, egm.cli; sys.exit(egm.cli.main(sys.argv[1:]))"


@pytest.mark.slow
def test_a_folder_of_two_gigabytes_is_summed_within_one(tmp_path):
    """`egm sum` releases the sum of 2 GB of Parquet files in a folder, although its memory is limited to 1 GB.

    The estimate equals, bit for bit, that of a release of the same rows from memory. To save disk space, the 100
    files in the folder are hard links to one file.
    """
    sigma = 1 / np.arange(1.0, COLUMNS + 1)
    X = np.random.default_rng(1).normal(0, sigma, size=(ROWS, COLUMNS))
    (folder := tmp_path / "people").mkdir()
    names = [f"x{j}" for j in range(COLUMNS)]
    table, first = pa.table(list(X.T), names), folder / "0.parquet"
    pq.write_table(table, first, row_group_size=50_000, use_dictionary=False)
    for k in range(1, FILES):
        os.link(first, folder / f"{k}.parquet")
    assert sum(path.stat().st_size for path in folder.iterdir()) > 1.9e9
    lines = [f"{name},{s!r}\n" for name, s in zip(names, sigma.tolist(), strict=True)]
    (tmp_path / "sigma.csv").write_text("".join(lines))
    numbers = ["--epsilon", "1", "--delta", "1e-9", "--simulate", "7", "--rows", str(n := FILES * ROWS)]
    command = [sys.executable, "-c", RUN, "sum", "people", "--sigma", "sigma.csv", *numbers, "--output", "sums.json"]

    def limited():
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))

    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # each thread would reserve memory
    subprocess.run(command, cwd=tmp_path, env=env, preexec_fn=limited, check=True, timeout=600)
    mechanism = GaussianDataMechanism(sigma, n, epsilon=1, delta=1e-9)
    release = mechanism.release(iter([X] * FILES), rng=np.random.default_rng(7))
    assert json.loads((tmp_path / "sums.json").read_text())["estimate"] == release.estimate.tolist()
