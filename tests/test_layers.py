"""Each module of the package imports only what its place allows: the arrows of the design, checked on the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "egm"

# module: (modules of egm, other packages) that it may import, besides the standard library and egm._types.
COMPUTE = {"_rows", "_validate", "calibration", "gx2", "bounds", "scaling", "samplers"}
LAYERS = {
    "_types": (set(), {"numpy"}),
    "_distribution": (set(), set()),
    "_tables": (set(), {"numpy"}),
    "_validate": ({"_tables"}, {"numpy"}),
    "norms": (set(), {"numpy"}),
    "calibration": ({"_validate"}, {"numpy", "scipy"}),
    "gx2": ({"_validate"}, {"numpy", "scipy"}),
    "bounds": ({"_validate"}, {"numpy"}),
    "scaling": ({"_validate", "gx2"}, {"numpy", "scipy"}),
    "samplers": ({"_validate"}, {"numpy", "opendp"}),
    "kernel": (set(), {"numba", "numpy"}),
    "dask": (set(), {"dask", "numpy", "pyarrow"}),
    "lattice": ({"_rows", "_validate", "calibration"}, {"numpy"}),
    "budget": (
        {"_validate", "adaptive", "calibration", "_rows", "mechanisms", "samplers", "quantiles"},
        {"numpy", "scipy"},
    ),
    "cli": ({"adaptive", "calibration", "forecast", "files", "mechanisms", "samplers"}, {"numpy"}),
    "__main__": ({"cli"}, set()),
    "files": ({"_rows", "_distribution"}, {"numpy", "pyarrow"}),
    "audit": ({"samplers"}, {"numpy", "scipy"}),
    "planted": (
        {"_private_rows", "_rows", "audit", "calibration", "mechanisms", "samplers", "quantiles"},
        {"numpy"},
    ),
    "parameters": (set(), set()),
    "timing": ({"_validate"}, {"numpy"}),
    "sums": ({"_rows", "_validate"}, {"numpy"}),
    "quantiles": ({"_validate", "samplers"}, {"numpy"}),
    "rivals": ({"_rows", "_validate", "calibration", "samplers", "quantiles"}, {"numpy", "scipy"}),
    "forecast": ({"gx2"}, {"numpy", "scipy"}),
    "mechanisms": (
        {"_rows", "_validate", "calibration", "scaling", "gx2", "samplers", "forecast", "_tables"},
        {"numpy", "scipy"},
    ),
    "_private_rows": ({"_rows", "samplers", "quantiles"}, {"numpy"}),
    "_radial": (set(), {"numpy", "scipy"}),
    "_tail": (set(), {"numpy"}),
    "_search": ({"_private_rows", "_radial", "gx2", "scaling"}, {"numpy", "scipy"}),
    "_expected_rows": ({"_private_rows", "_radial", "_search"}, {"numpy"}),
    "_last_round": ({"_radial", "_search", "_tail", "forecast", "gx2"}, {"numpy"}),
    "adaptive": (
        {
            "_expected_rows",
            "_last_round",
            "_private_rows",
            "_search",
            "_tables",
            "_validate",
            "calibration",
            "forecast",
        },
        {"numpy", "scipy"},
    ),
    "tables": (COMPUTE | {"forecast", "mechanisms"}, {"numpy", "scipy"}),
    "plots": (set(), {"matplotlib", "numpy", "scipy"}),
    "claims": (set(), {"IPython"}),
    "__init__": (COMPUTE | {"adaptive", "forecast", "mechanisms"}, set()),
}
SLOW = {"opendp", "numba", "matplotlib", "sympy", "mpmath", "dask", "pandas"}


def imports(source):
    """(modules of egm, other packages) that a source imports, wherever in it the import stands."""
    own, others = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            own |= {node.module} if node.module else {alias.name for alias in node.names}
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"egm.{alias.name}" for alias in node.names] if node.module == "egm" else [node.module]
        own |= {name.split(".")[1] for name in names if name.startswith("egm.")}
        others |= {name.split(".")[0] for name in names} - {"egm"}
    return own, others - sys.stdlib_module_names


def test_imports_are_recognised():
    """The reader of imports sees every spelling."""
    lines = ["import egm.gx2 as g, os", "from egm import samplers", "from egm._validate import x", "from . import a"]
    assert imports("\n".join([*lines, "import scipy.stats"])) == ({"gx2", "samplers", "_validate", "a"}, {"scipy"})


def test_every_module_has_a_place():
    """A new module is put into the table above before it is written."""
    assert {file.stem for file in PACKAGE.rglob("*.py")} <= LAYERS.keys()


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: file.stem)
def test_module_imports_only_what_its_place_allows(file):
    """An arrow points up only."""
    own, others = imports(file.read_text())
    may_own, may_others = LAYERS[file.stem]
    assert own <= may_own | {"_types"}
    assert others <= may_others


def test_import_is_light():
    """`import egm` loads nothing that only a chapter or a plot needs."""
    code = "import egm, sys; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not SLOW & set(loaded)


def test_only_the_journal_needs_unix():
    """Elsewhere there is no fcntl; the package and every other module can be imported all the same."""
    code = (
        "import importlib, sys; sys.modules['fcntl'] = None; [importlib.import_module(name) for name in sys.argv[1:]]"
    )
    files = [file.relative_to(PACKAGE.parent).with_suffix("") for file in PACKAGE.rglob("*.py")]
    modules = [".".join(file.parts) for file in files if file.stem not in ("__init__", "__main__", "budget")]
    assert subprocess.run([sys.executable, "-c", code, *modules], capture_output=True).returncode == 0
