"""What importing the package loads, and what it needs; which module may import which is for import-linter to say."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import egm

PACKAGE = Path(__file__).parent.parent.parent / "egm"
LIGHT = {"egm", "numpy", "scipy"}
LATER = {"IPython", "dask", "matplotlib", "numba", "opendp", "pyarrow"}  # by the first call that needs them
STRANGE = {"mpmath", "pandas", "sympy"}


def packages(names):
    """The packages of modules."""
    return {name.partition(".")[0] for name in names}


def loaded_by(code):
    """The modules that a program loads."""
    code = f"import sys; before = {{*sys.modules}}; {code}; print(*{{*sys.modules}} - before)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_is_light():
    """`import egm` loads nothing else, and its names load NumPy and SciPy alone, and nothing of the study."""
    assert packages(loaded_by("import egm")) - sys.stdlib_module_names == {"egm"}
    loaded = loaded_by("from egm import *")
    assert packages(loaded) >= LIGHT
    assert not packages(loaded) & (LATER | STRANGE)
    assert not [name for name in loaded if name.startswith("egm.study")]


def test_names_are_there_before_they_are_imported():
    """And no others."""
    assert set(egm.__all__) <= set(dir(egm))
    assert {getattr(egm, name).__name__.removeprefix("egm.") for name in egm.__all__} == set(egm.__all__)
    with pytest.raises(AttributeError, match=r"module 'egm' has no attribute 'nothing'"):
        _ = egm.nothing


def test_nothing_else_is_imported():
    """Wherever in the package an import stands."""
    imported = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    assert packages(imported) - sys.stdlib_module_names == LIGHT | LATER


def test_only_the_journal_needs_unix():
    """Elsewhere there is no fcntl; the package and every other module can be imported all the same."""
    code = (
        "import importlib, sys; sys.modules['fcntl'] = None; [importlib.import_module(name) for name in sys.argv[1:]]"
    )
    files = [file.relative_to(PACKAGE.parent).with_suffix("") for file in PACKAGE.rglob("*.py")]
    modules = [".".join(file.parts) for file in files if file.stem not in ("__init__", "__main__", "budget")]
    assert subprocess.run([sys.executable, "-c", code, *modules], capture_output=True).returncode == 0
