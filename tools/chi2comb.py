"""Install chi2comb, a C implementation of Davies's algorithm, from a wheel that pip would reject.

The report that the book checks used chi2comb. Its wheels are from 2020, and their names say CPython 3.6 to 3.9. But
they use CPython's stable interface, so that they run under every later version, too. Because of the names, pip would
reject them and compile the sources, for which it needs a C library that is not on the Python package index. Therefore
pip is told here that the Python version is 3.9.

    python -m tools.chi2comb

installs the wheel, with the version and the hash in `chi2comb.txt`, and checks an example of its documentation. There
are wheels for Linux on x86-64 processors only; elsewhere the command says so and does nothing. conda has chi2comb for
more machines, as chi2comb-py. Comparisons with chi2comb are left out where it is not installed.
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
    """Return a text that says why chi2comb has no wheel (binary package) for this machine, or None if it has one."""
    here = f"{sys.implementation.name} on {platform.system()}, {platform.machine()}"
    if (sys.platform, platform.machine(), platform.libc_ver()[0]) != ("linux", "x86_64", "glibc"):
        return f"chi2comb has wheels for Linux with glibc on x86-64 only, and this is {here}"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"the wheels of chi2comb are for CPython with its global lock, and this is {here} without it"
    return None


def main() -> None:
    """Install chi2comb and check it by an example, or print why there is no wheel (binary package) for this machine.

    If the installation or the example fails, end the program with an error.
    """
    if reason := unavailable():
        print(f"{reason}: what compares with it is left out.")
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    place = sysconfig.get_path("platlib")
    try:
        subprocess.run([*pip, *WHEEL, "--target", place, "--require-hashes", "--requirement", PIN], check=True)
        subprocess.run([sys.executable, "-c", EXAMPLE], check=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"chi2comb could not be installed: {error}")


if __name__ == "__main__":
    main()
