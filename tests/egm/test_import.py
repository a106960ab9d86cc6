"""Test that `import egm` loads few modules, and that the package's own code imports few other packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import egm

PACKAGE = Path(__file__).parent.parent.parent / "egm"
LIGHT = {"egm", "numpy", "scipy"}
LATER = {"IPython", "dask", "dp_accounting", "flint", "llvmlite", "matplotlib", "narwhals", "numba"}
LATER |= {"pyarrow"}  # loaded by the first call that needs them
STRANGE = {"mpmath", "pandas", "polars", "sympy"}


def packages(names):
    """Return the set of the top-level packages of the modules `names`, such as "egm" for "egm.gx2"."""
    return {name.partition(".")[0] for name in names}


def loaded_by(code):
    """Return the names of the modules that the program `code`, a string, loads in a new Python process."""
    code = f"import sys; before = {{*sys.modules}}; {code}; print(*{{*sys.modules}} - before)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_is_light():
    """`import egm` loads no packages but those of the standard library.

    `from egm import *` loads NumPy and SciPy, but no larger package such as pandas, and neither `egm.study` nor SQLite.
    """
    assert packages(loaded_by("import egm")) - sys.stdlib_module_names == {"egm"}
    loaded = loaded_by("from egm import *")
    assert packages(loaded) >= LIGHT
    assert not packages(loaded) & (LATER | STRANGE | {"sqlite3"})
    assert not [name for name in loaded if name.startswith("egm.study")]


def test_names_are_there_before_they_are_imported():
    """`dir(egm)` lists all public modules, although each of them is imported only when it is first used.

    A name that `egm` does not have, such as `egm.nothing`, raises an AttributeError.
    """
    assert set(egm.__all__) <= set(dir(egm))
    assert {getattr(egm, name).__name__.removeprefix("egm.") for name in egm.__all__} == set(egm.__all__)
    with pytest.raises(AttributeError, match=r"module 'egm' has no attribute 'nothing'"):
        _ = egm.nothing


def test_nothing_else_is_imported():
    """The code of the package imports only NumPy, SciPy, the packages in LATER, and the standard library.

    LATER holds packages that are loaded only when needed, such as dask. No module is imported that Windows lacks.
    """
    imported = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    assert packages(imported) - sys.stdlib_module_names == LIGHT | LATER
    assert not packages(imported) & {"fcntl", "grp", "pwd", "resource", "termios"}  # Windows does not have them
