"""Test GitHub workflows, issue forms and pre-commit hooks: they satisfy their schemas, and what they call exists."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from tools import ledger
from tools.execute import ROOT
from tools.provenance import git

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())
FORMS = [form for form in sorted((GITHUB / "ISSUE_TEMPLATE").iterdir()) if form.name != "config.yml"]
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": FORMS,
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
NAMED = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)


def run(*command):
    """Run a program of this Python environment, and return its exit code and a text with all that it printed.

    The function is called with the name of the program and then the arguments of the program.
    """
    command = [Path(sys.executable).with_name(command[0]), *command[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def read(file):
    """Read the YAML `file` with all values as text, as GitHub does, because YAML would turn the word `on` into True."""
    return yaml.load(file.read_text(), yaml.BaseLoader)


def steps(workflow):
    """Return the list of all steps, as dictionaries, of all jobs of a GitHub workflow, whose path is `workflow`."""
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


def commands(workflow):
    """Return the list of all lines that `workflow`, the path of a GitHub workflow, runs in a shell."""
    return [line.strip() for step in steps(workflow) for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize(("schema", "file"), [(schema, file) for schema, files in SCHEMAS.items() for file in files])
def test_schema(schema, file):
    """Each workflow, form and settings file that GitHub reads in the repository satisfies its schema.

    `file` is its path, and `schema` the name of its schema in the program check-jsonschema. GitHub silently ignores a
    file that it cannot read.
    """
    failed, printed = run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", str(file))
    assert not failed, printed


def test_schemas_refuse(tmp_path):
    """The program check-jsonschema refuses a workflow with the misspelled key `stepps`."""
    file = tmp_path / "ci.yml"
    file.write_text("on: push\njobs: {a: {runs-on: x, stepps: []}}\n")
    assert run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(file))[0]


def test_the_package_is_checked_with_every_python_that_it_declares():
    (tests,) = (read(workflow) for workflow in WORKFLOWS if workflow.stem == "tests")
    declared = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert tests["jobs"]["check"]["strategy"]["matrix"]["python"] == declared


@NAMED
def test_workflow_calls_what_exists(workflow):
    """Each target of the Makefile, each script and each module in tools that a GitHub `workflow` calls exists."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in commands(workflow):
        if made := re.fullmatch(r"make (\w+)", line):
            assert made[1] in targets, line
        for module in re.findall(r"-m (tools[.\w]+)", line):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), line
        if line.startswith("."):
            assert line.startswith(".venv/") or (ROOT / line).is_file(), line


def test_actions_are_official_and_pinned():
    """Workflows use only GitHub's own actions, each in a single version that is fixed by the hash of a commit.

    A hash is required because a git tag such as v4 can be moved to another commit. A comment after the hash names the
    version, so that Dependabot can update both.
    """
    used = {line for file in WORKFLOWS for line in re.findall(r"uses: *(.*)", file.read_text())}
    assert not [line for line in used if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]
    assert len({line.partition("@")[0] for line in used}) == len(used)  # all workflows use one version of each


@NAMED
def test_no_credentials_are_left_where_code_of_the_project_runs(workflow):
    """If a job of a GitHub `workflow` has no right to write to the repository, it leaves no credentials in its clone.

    Such a job must set the option persist-credentials of the action `checkout` to false; other jobs must not set it.
    """
    for name, job in read(workflow)["jobs"].items():
        pushes = job.get("permissions", {}).get("contents") == "write"
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step.get("with", {}).get("persist-credentials") == (None if pushes else "false"), name


# What the instructions install ----------------------------------------------------------------------------------------

INSTALL = re.compile(r"pip3? install ([^\n`]*)")
EXTRA = re.compile(rf"(?<![\w-])egm\[(?:{'|'.join(PROJECT['optional-dependencies'])})\b")
TAKE_A_VALUE = re.compile("-r|-c|--(requirement|constraint|target|platform|python-version|only-binary)")


def wrongly_installed(text, known, inside_the_package=False):
    """Return a list of the names in `pip install` commands of `text` that may belong to somebody else's package.

    The names in the set `known` are allowed. The project is not on PyPI, so its own name must be followed by "@" and an
    address. If `inside_the_package` is True, `text` is from a file of egm, whose users have installed the project
    already, and the name needs no address. A name such as "egm[files]" is reported wherever it is in `text`, because on
    PyPI `egm` is another project.
    """
    wrong = EXTRA.findall(text)
    for line in INSTALL.findall(text):
        words = ["", *re.sub(r"\\n|['\"\\]", " ", line.partition(" #")[0]).split()]
        kept = [word for last, word in pairwise(words) if not TAKE_A_VALUE.fullmatch(last)]
        named = [word for word in kept if re.match(r"[\w.{@/$]", word)]
        for word, then in pairwise([*named, ""]):
            if word[0] in ".{@/$" or word.startswith(("git+", "http")):
                continue  # a folder, a placeholder or an address
            name = canonicalize_name(re.split(r"[\[=<>~!]", word)[0])
            ours = name == PROJECT["name"] and (inside_the_package or then == "@")
            if not ours and name not in known:
                wrong.append(word)
    return wrong


@pytest.fixture(scope="module")
def known():
    """Return the set of package names that commands in the project's files may install from PyPI without an address.

    These are the packages in constraints.txt, and chi2comb.
    """
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(line.partition("==")[0]) for line in lines} | {"chi2comb"}


def test_nothing_is_installed_by_a_name_that_is_not_ours(known, do_without):
    """If a file of the project tells a user to install a package by its name, the name is in the set `known`.

    So nobody installs another package by mistake: on PyPI "egm", for instance, is another project. Outside of a git
    clone, `do_without` skips the test.
    """
    if not (ROOT / ".git").exists():
        do_without("no clone: the files of the project are those that git knows")
    for name in git(ROOT, "ls-files").split():
        if not name.endswith((".png", ".npz", ".csv", ".css", "tests/project/test_repository.py")):
            text = (ROOT / name).read_text()
            assert not wrongly_installed(text, known, name.startswith("egm/")), name


def test_what_is_downloaded_is_checked_by_its_hash():
    """Each `pip install` in the Makefile, the scripts and the workflows has the option `--require-hashes`.

    Only the project itself is installed without hashes, from its folder and without a download.
    """
    places = {name: (ROOT / name).read_text() for name in ("Makefile", ".ci/run", "postBuild")}
    places |= {file.name: file.read_text() for file in WORKFLOWS}
    for name, text in places.items():
        for line in re.findall(r"^(?!PIP = ).*(?:pip install|\$\(PIP\)) (.*)", text, re.MULTILINE):
            local = {"--no-deps", "--no-build-isolation"} <= set(line.split()) and line.split()[-1] == "."
            assert local or "--require-hashes" in line, (name, line)
    assert places["Makefile"].count("$(PIP) ") == 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install 'egm[files]'", ["egm[files", "egm[files]"]),
        ("$ pip install -U egm", ["egm"]),
        ('    "%pip install --quiet \\"egm @ git+https://example.invalid/x\\"\\n"', ["egm"]),
        ("Read it, then `pip install egm==0.1.0`.", ["egm==0.1.0"]),
        ("needs egm[study] of the book", ["egm[study"]),
        ("`pip install elliptical-gaussian-mechanism`", ["elliptical-gaussian-mechanism"]),
        ("- run: pip install -r file.txt something-new", ["something-new"]),
        ("python -m pip install --require-hashes -r requirements.txt", []),
        ("`pip install '.[files]'`, or pip install --no-deps -e . # the package", []),
        ("pip install 'elliptical-gaussian-mechanism[study] @ git+https://example.invalid/x@1'", []),
        ("pip install --no-cache-dir numpy>=2 chi2comb", []),
    ],
)
def test_wrong_names_are_seen(text, wrong, known):
    assert wrongly_installed(text, known) == wrong


def test_own_name_may_stand_in_messages_of_the_package(known):
    """`wrongly_installed` does not report `pip install` with the project's name and an extra in a message of egm.

    An extra is a set of optional dependencies. Whoever reads a message of egm has installed the project already, so pip
    adds only the packages of the extra.
    """
    assert not wrongly_installed("pip install 'elliptical-gaussian-mechanism[files]'", known, inside_the_package=True)


# Permissions and publication ------------------------------------------------------------------------------------------


@NAMED
def test_least_permissions(workflow):
    """By default a GitHub `workflow` may only read the repository; a job that may write runs no code of the project.

    A job that may write must declare this permission. Each job must end within 120 minutes.
    """
    everywhere, jobs = read(workflow)["permissions"], read(workflow)["jobs"]
    assert everywhere in ({}, {"contents": "read"})
    for name, job in jobs.items():
        assert int(job["timeout-minutes"]) <= 120, name
        if "write" in job.get("permissions", {}).values():
            lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
            assert not [line for line in lines if re.search(r"make|python|pip|\.ci", line)], name


def test_form_for_errata_mirrors_the_ledger():
    """The form for errata on GitHub asks for each field of an entry in ledger/errata.yml that a reader can fill in.

    ledger/errata.yml lists the errors of Poulsen's report and of the lecture notes, the texts that the book checks. The
    form names all versions of the report.
    """
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "erratum.yml").read_text())
    asked = {field["id"] for field in form["body"] if "id" in field}
    entry = yaml.safe_load((ROOT / "ledger" / "errata.yml").read_text())[0].keys()
    assert entry - {"id", "kind", "cell", "also", "figures", "versions", "final"} <= asked
    version = next(field for field in form["body"] if field.get("id") == "version")
    named = version["attributes"]["description"]
    assert all(name in named for name in ledger.VERSIONS if name != "notes")


def test_hooks_are_valid():
    """The program pre-commit accepts the project's list of checks before a commit, .pre-commit-config.yaml."""
    failed, printed = run("pre-commit", "validate-config", str(ROOT / ".pre-commit-config.yaml"))
    assert not failed, printed


def test_hooks_have_the_versions_of_the_lock():
    """The hooks that run before a commit are ruff and nbstripout, in the versions that constraints.txt states.

    `make test` uses the versions in constraints.txt, too; another version could format files differently.
    """
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    pins = (ROOT / "constraints.txt").read_text().split()
    assert all(hook["additional_dependencies"][0] in pins for hook in repo["hooks"])
    assert {hook["entry"].split()[0] for hook in repo["hooks"]} == {"ruff", "nbstripout"}


def test_chapters_for_colab_are_kept(tmp_path):
    """Each publication of the book adds a folder with its chapters to the branch "colab", and deletes no other folder.

    The test runs the script of the GitHub workflow "book" in new git repositories. If one commit is published twice,
    the second publication changes nothing.
    """
    (book,) = (workflow for workflow in WORKFLOWS if workflow.stem == "book")
    (script,) = (step["run"] for step in read(book)["jobs"]["colab"]["steps"] if "run" in step)
    remote, source, chapters = tmp_path / "remote", tmp_path / "source", tmp_path / "chapters"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", remote)
    git(tmp_path, "clone", "--quiet", remote, source)
    (source / "README.md").write_text("main")
    git(source, "add", ".")
    git(source, "-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "--quiet", "-m", "first")
    git(source, "push", "--quiet", "origin", "HEAD:main")
    for number, commit in enumerate(["one", "two", "two"]):
        shutil.rmtree(chapters, ignore_errors=True)
        (chapters / commit).mkdir(parents=True)
        (chapters / commit / "01-x.ipynb").write_text(commit)
        git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{remote}", tmp_path / f"run{number}")
        variables = {**os.environ, "CHAPTERS": str(chapters), "GITHUB_SHA": commit}
        run = ["bash", "-e", "-c", script]  # GitHub runs it like this
        subprocess.run(run, cwd=tmp_path / f"run{number}", env=variables, capture_output=True, check=True)
    listed = git(remote, "ls-tree", "-r", "--name-only", "colab").split()
    assert listed == ["one/01-x.ipynb", "two/01-x.ipynb"]
    assert len(git(remote, "log", "--format=%H", "colab").split()) == 2
    assert git(remote, "ls-tree", "-r", "--name-only", "main").split() == ["README.md"]
