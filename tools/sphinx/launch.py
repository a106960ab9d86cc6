"""Add buttons that open a chapter in Binder or Colab, and make the notebooks for Colab.

The project's address is found by `repository`, and the commit by `tools.provenance`. If either is missing, a page has
no such button. Every link holds a commit, so a page that was printed, archived or copied continues to open the sources
that it was made of.

**Binder** makes its machine from `environment.yml` and the script `postBuild` beside it, which installs `egm`. Both are
in the repository's root: a folder `.binder` would hide them.

**Colab** opens one notebook on a machine of its own, which has no `egm`: a chapter as it is committed would fail at its
first import. So the workflow that publishes the book also puts copies of the chapters on the branch `colab`, in a
folder with the name of the commit. Each copy has an additional first cell (`self_installing`), which installs the
package at that commit from the project's address, and the other packages that the chapter imports. The cell leaves out
the optional dependencies `book`, which would replace the kernel that Colab runs on. A committed chapter cannot have
that cell, because no file can hold the hash of the commit that it is in. Folders of earlier commits are kept.

This module is also the Sphinx extension that puts the links on the pages, and

    python -m tools.sphinx.launch FOLDER

writes the notebooks for Colab into a folder, as the workflow does.
"""

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from urllib.parse import quote, urlencode

import nbformat
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import provenance
from tools.execute import ROOT, chapters
from tools.provenance import Commit

BINDER = "https://mybinder.org"
COLAB = "https://colab.research.google.com"
BRANCH = "colab"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FILES = {"paper.pdf": "The paper (PDF)", "egm.pdf": "The book (PDF)"}
FILES |= {f"egm-supplement-{VERSION}.zip": "The supplement (ZIP)"}
GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)")
PRESENT = {"IPython", "egm"}  # what a machine that opens notebooks has, and what the cell installs in any case
LEFT_OUT = {"chi2comb"}  # pip finds no file of it there (tools.chi2comb), and chapters do without
installed = cache(packages_distributions)  # which takes a third of a second


class LaunchError(Exception):
    """Report that no notebooks for Colab can be made from the project.

    The project has no public address or no commit, or it has uncommitted changes.
    """


def repository(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the project's public address on GitHub, or None if the project has no such address.

    The address is read from pyproject.toml in `root`, the main folder of the project. If it is not there, it is read
    from the environment variables `environ`, in which a GitHub workflow has the address of its repository. If the
    address is not on GitHub, return None, because the links for Colab need a repository on GitHub.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text()).get("project", {})
    running = [environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")]
    address = project.get("urls", {}).get("Repository") or "/".join(running)
    address = address.rstrip("/").removesuffix(".git")
    return address if GITHUB.fullmatch(address) else None


def configure(config: Path, address: str | None, made: Commit | None) -> None:
    """Write the project's public address and the commit `made` into `config`, the path of the book's `_config.yml`.

    If `address` or `made` is None, leave the file unchanged. Jupyter Book makes buttons from these settings.
    """
    if not (address and made):
        return
    settings = yaml.safe_load(config.read_text())
    settings.setdefault("html", {}).update(use_repository_button=True, use_issues_button=True)
    settings["repository"] = {"url": address, "branch": made.hash}
    settings["launch_buttons"] = {"binderhub_url": BINDER, "notebook_interface": "jupyterlab", "thebe": False}
    config.write_text(yaml.safe_dump(settings, sort_keys=False))


def requirements(notebook: nbformat.NotebookNode, root: Path = ROOT) -> list[str]:
    """Return the list of packages that the chapter `notebook` imports, as requirements for pip such as "numpy>=2".

    The bounds of the versions are those in the file pyproject.toml in `root`, the main folder of the project. Left out
    are `egm`, which is installed separately, IPython, which Colab has, and chi2comb, which is optional.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {}).values()
    lines = [*project.get("dependencies", []), *(line for extra in extras for line in extra)]
    bounded = {canonicalize_name(Requirement(line).name): line for line in lines}
    distributions = installed()
    names = {canonicalize_name(distributions[name][0]) for name in provenance.imported(notebook) - PRESENT - LEFT_OUT}
    return [bounded.get(name, name) for name in sorted(names)]


def self_installing(chapter: Path, address: str, made: Commit) -> nbformat.NotebookNode:
    """Return a chapter with an additional first cell, which installs `egm` and the packages that the chapter imports.

    `chapter` is the path of the notebook, which is not changed. `egm` is installed as it was at the commit `made`, from
    `address`, the project's public address. On a machine that has `egm` already, the cell does nothing.
    """
    notebook = nbformat.read(chapter, as_version=4)
    root = chapter.parent.parent
    name = tomllib.loads((root / "pyproject.toml").read_text())["project"]["name"]
    wanted = [f"{name}[study] @ git+{address}@{made.hash}", *requirements(notebook, root)]
    install = "import importlib.util\n\nif not importlib.util.find_spec('egm'):\n    %pip install --quiet "
    install += " ".join(f'"{line}"' for line in wanted)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(install, id="install-egm"))
    return notebook


def write_notebooks(folder: Path, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Write every chapter as a notebook for Colab that installs egm first, and return the paths of the new files.

    The files are written into a subfolder of `folder` with the hash of the last commit as its name. `root` is the main
    folder of the project, and the environment variables `environ` may contain the project's public address. Without a
    public address or a commit, or with uncommitted changes, raise LaunchError.
    """
    address, made = repository(root, environ), provenance.commit(root)
    if not (address and made) or made.changed:
        raise LaunchError(f"Colab needs a public address and a clean commit; these are {address} and {made}.")
    place = folder / made.hash
    place.mkdir(parents=True, exist_ok=True)
    for chapter in chapters(root):
        nbformat.write(self_installing(chapter, address, made), place / chapter.name)
    return sorted(place.iterdir())


def colab(address: str, commit: str, page: str) -> str:
    """Return the link that opens a chapter of the book in Colab.

    `address` is the project's public address, and `commit` is the hash of the commit whose chapter is opened. `page` is
    the name of the chapter's page, such as "notebooks/02-gaussian-mechanism".
    """
    return f"{COLAB}/github/{GITHUB.fullmatch(address)[1]}/blob/{BRANCH}/{commit}/{page.rpartition('/')[2]}.ipynb"


def report(address: str, commit: str, page: str) -> str:
    """Return a link to the form on GitHub by which readers report an error, with the page and the commit filled in.

    `address` is the project's public address, `commit` is the hash of the commit, and `page` is the name of the page.
    """
    fields = {"template": "erratum.yml", "source": "This book", "version": f"commit {commit[:7]}", "place": page}
    return f"{address}/issues/new?{urlencode(fields, quote_via=quote)}"


def add_links(app, pagename, templatename, context, doctree):
    """Change the buttons that the theme has made for an HTML page.

    Add a button for Colab, let the button for errors lead to the form by which readers report an error, and give some
    buttons plainer names. If the project has a public address, add buttons for files to download. `app` is the Sphinx
    application, `pagename` is the name of the page, and `context` has its buttons and other parts.
    """
    options, groups = app.config.html_theme_options, {}
    for group in context.get("header_buttons", []):
        groups[group.get("label")] = group.get("buttons", [])
    address, commit = options.get("repository_url"), options.get("repository_branch")
    if launch := groups.get("launch-buttons"):
        icon = "_static/images/logo_colab.png"
        button = {"type": "link", "text": "Colab", "tooltip": "Launch on Colab", "icon": icon}
        launch.append(button | {"url": colab(address, commit, pagename)})
    for button in groups.get("source-buttons", []):
        if button["label"] == "source-issues-button":
            text = {"text": "Report an error", "tooltip": "Report an error on this page"}
            button.update(text, url=report(address, commit, pagename))
    if address and "download-buttons" in groups:  # the workflow puts these files beside the published pages
        for name, text in FILES.items():
            tooltip = f"Download {text[0].lower()}{text[1:]}"
            look = {"text": text, "tooltip": tooltip, "icon": "fas fa-file-arrow-down"}
            button = {"type": "link", "label": "download-file-button", **look}
            groups["download-buttons"].append(button | {"url": context["pathto"](name, resource=True)})
    for button in groups.get("download-buttons", []):
        if button["label"] == "download-source-button" and button["text"] == ".ipynb":
            button.update(text="Notebook (.ipynb)", tooltip="Download this chapter as a notebook, with its results")
        if button["label"] == "download-pdf-button":
            button.update(text="Print", tooltip="Print this page")


def setup(app):
    """Connect `add_links` to `app`, the Sphinx application, and return the properties of this extension.

    `add_links` runs after the function of the theme that makes the buttons.
    """
    app.connect("html-page-context", add_links, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main() -> None:
    """Write the notebooks for Colab into the folder that the command line names, and print the paths of the files."""
    (folder,) = sys.argv[1:]
    try:
        print(*write_notebooks(Path(folder)), sep="\n")
    except LaunchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
