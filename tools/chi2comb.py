"""Install chi2comb, Davies's algorithm in C, which the report used: pip by itself finds no file of it that fits.

Its wheels are from 2020, named for CPython 3.6 to 3.9. But the module in them has the stable interface of CPython, so
that it also runs under every later version. pip goes by the names, and would compile the sources, for which they need
a library of C that no registry of Python packages has. Told that the Python is a 3.9, pip takes the wheel of that name.

    python -m tools.chi2comb

does this, for the environment that runs it, with the version and the hash of `chi2comb.txt`, and checks the example of
its documentation. There are such wheels for Linux on x86-64 processors; elsewhere the command says so, and does
nothing. conda has chi2comb for more machines, as chi2comb-py. What needs it does without where it is not there.
"""

import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

PIN = Path(__file__).with_suffix(".txt")
WHEEL = ["--only-binary", ":all:", "--python-version", "3.9", "--platform", "manylinux2010_x86_64"]
# Of 6 X1 + 3 X2 + X3 + 2 X0 at 1: X0 is normal, the others have 1, 1 and 2 degrees of freedom, X1 is not central.
EXAMPLE = """
from chi2comb import ChiSquared, chi2comb_cdf
value, fault, _ = chi2comb_cdf(1, [ChiSquared(6, 0.5, 1), ChiSquared(3, 0, 1), ChiSquared(1, 0, 2)], 2)
assert not fault and abs(value - 0.050870657088644244) < 1e-12, (value, fault)
"""


def unavailable() -> str | None:
    """Say why there is no wheel for this machine and Python, and return None where there is one."""
    here = f"{sys.implementation.name} on {platform.system()}, {platform.machine()}"
    if (sys.platform, platform.machine(), platform.libc_ver()[0]) != ("linux", "x86_64", "glibc"):
        return f"chi2comb has wheels for Linux with glibc on x86-64 only, and this is {here}"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"the wheels of chi2comb are for CPython with its global lock, and this is {here} without it"
    return None


def install() -> None:
    """Put the wheel into the environment, and see that it runs."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    place = sysconfig.get_path("platlib")
    subprocess.run([*pip, *WHEEL, "--target", place, "--require-hashes", "--requirement", PIN], check=True)
    subprocess.run([sys.executable, "-c", EXAMPLE], check=True)


def main() -> None:
    """Install it, or say why not."""
    if reason := unavailable():
        print(f"{reason}: what compares with it is left out.")
        return
    try:
        install()
    except subprocess.CalledProcessError as error:
        sys.exit(f"chi2comb could not be installed: {error}")


if __name__ == "__main__":
    main()
