"""Define the options of each command and their help texts, and check which options go together.

In each function the argument `it` is the parser of a command.
"""

from __future__ import annotations

import argparse
import csv
import re
from argparse import Namespace
from typing import Any, NoReturn

import egm
from egm._cli.terminal import Mistake

__all__ = ["SCALINGS", "VECTORS", "parser", "require_options_that_fit", "spelled"]

SCALINGS = ("optimal", "expected_norm", "none")
VECTORS = ("sigma", "center", "center_std", "scaling")  # options that may name a file with a number for each column

_NEVER_WITH_ADAPTIVE = (
    "center_std",
    "sigma_factor",
    "clip_probability",
    "scaling",
    "neighbors",
    "count_clipped",
    "noise",
    "basis",
)
_ONLY_WITH_ADAPTIVE = ("rho", "radius", "sigma_range", "range")

_ABOUT = """\
Differentially private sums of the rows of a file.

Each row belongs to one person. A release is the sum of the rows, each clipped to an ellipsoid, plus normal noise, which
hides what one person adds to the sum, to the degree that epsilon and delta say. `egm plan` tells how large the error
will be, before any data; `egm sum` makes the release; `egm adaptive` makes one if nobody knows how the data spread."""

_SUM = """\
Release the sum of the rows of a file, with (epsilon, delta)-differential privacy.

The center is subtracted from each row; the row is scaled, clipped to a norm that few rows exceed, and added up. An
exact sampler draws the noise from the randomness of the operating system. sigma, the center and every other option
must be public: from a codebook, an earlier release or common knowledge, never computed from the data. Privacy holds
whatever the data are; the options only decide how accurate the sum is. Every release spends its epsilon and delta
anew. The file may be larger than memory.

example:
  egm sum visits.parquet --sigma sigma.csv --epsilon 1 --delta 1e-6 --output sums.json"""

_ADAPTIVE = """\
Release the sum of the rows of a file if neither their center nor their spread is known.

A part of the budget finds both out, privately. Only bounds must be known, and be public: a range for each column, as in
--range age=0:120 --range income=0:1e6; or one radius, so that the mean of every column lies between -radius and radius,
and a range of the standard deviations. The bounds may be generous. The data are held in memory. The budget is rho of
zero-concentrated differential privacy, or the rho that epsilon and delta allow. If it is too small for the search, the
rows are clipped to the ranges; without ranges, the message says what would do, and nothing is released. `egm plan` can
say it before there are data, and also how large the error will be.

The output has the estimate, for each column the bounds low and high between which the sum lies with 95 percent
confidence, and what the search found out. Rows far away from all others are clipped without a warning if they are too
few to be noticed with this budget.

example:
  egm adaptive visits.parquet --epsilon 1 --delta 1e-6 --radius 1000 --sigma-range 0.1,100"""

_PLAN = """\
Forecast the error of a release, without data.

The plan shows the expected squared error by its causes, what it would be with other scalings, and for each column the
noise and the error as a share of sigma * sqrt(rows). The forecast is for normal rows. It is an average over the errors
of the guesses that --center-std and --sigma-factor state. Nothing private is read.

With --adaptive and --range, or --radius and --sigma-range, the plan is for a release of `egm adaptive`, which is not
told --sigma and --center. It says how large the error would be for normal rows with this sigma and center, how probable
it is that the search finds them, what each step costs, and the least budget and the least number of rows that would do.
A budget that is too small is a mistake, and the message says what would do.

example:
  egm plan --sigma sigma.csv --rows 100000 --epsilon 1 --delta 1e-6"""

_CODES = """
exit codes: 0 done; 2 a mistake in an option or a file; 1 an error in egm; 130 interrupted; 143 terminated;
129 hung up"""

_DELTA = "privacy: the probability with which the promise of epsilon may fail, in (0, 1) and far below 1/N"


class _Parser(argparse.ArgumentParser):
    """Parse the options of the command line; for a wrong option, raise a `Mistake`, whose message is one line.

    The parser of argparse would end the process instead.
    """

    def error(self, message: str) -> NoReturn:
        raise Mistake(f"{message} ({self.prog} --help explains)")

    def option(self, name: str, text: str, **kind: Any) -> None:
        """Add the option `name`, with the help text `text` and the keyword arguments `kind` of `add_argument`.

        In the help text, each line break and each indentation becomes one space.
        """
        self.add_argument(name, help=" ".join(text.split()), **kind)


def parser() -> _Parser:
    """Return the parser of the command line, with all commands and their options."""
    shape: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    it = _Parser(prog="egm", description=_ABOUT, epilog=_CODES, **shape)
    it.add_argument("--version", action="version", version=f"egm {egm.__version__}")
    commands = it.add_subparsers(title="commands", metavar="command", dest="command", required=True)
    for name, add_options, summary, description in (
        ("sum", _sum, "release the sum of the rows of a file", _SUM),
        ("adaptive", _adaptive, "release the sum if nobody knows how the data spread", _ADAPTIVE),
        ("plan", _plan, "forecast the error of a release, without data", _PLAN),
    ):
        add_options(commands.add_parser(name, help=summary, description=description, epilog=_CODES, **shape))
    return it


def _sum(it: _Parser) -> None:
    """Add the options of the command `egm sum` to `it`, the parser of this command."""
    names = "all its cells are names in the file of --sigma, --center or --scaling, or if the --columns are among them"
    _data(it, names)
    text = """the number of rows. With --neighbors replace_one it is public: declare it, or it is taken from the file
        and published with the release, which is right only if everybody may know it. With --neighbors add_remove it is
        private: N is then a public guess, which only sets the clip norm, and must be given; a noisy count is
        released"""
    it.option("--rows", text, type=_count, metavar="N")
    _model(it)
    _simulate(it)
    _output(it, "csv", "json", "npy")


def _adaptive(it: _Parser) -> None:
    """Add the options of the command `egm adaptive` to `it`, the parser of this command."""
    _data(it, "no cell is a number and the --columns are among them")
    text = """the number of rows. It is public: declare it, or it is taken from the file and published with the
        release, which is right only if everybody may know it"""
    it.option("--rows", text, type=_count, metavar="N")
    text = "privacy: the whole budget in zCDP, > 0; instead of --epsilon and --delta"
    it.option("--rho", text, type=float, metavar="R")
    text = "privacy: goes with --delta; the two are converted to the largest rho that implies them"
    it.option("--epsilon", text, type=float, metavar="E")
    it.option("--delta", _DELTA, type=float, metavar="D")
    _ranges(it, "")
    text = """an orthonormal basis, if columns are correlated: learn, to find one with a twentieth of the budget; dct or
        haar, the transforms of signals; dct:8x8, of images with 8 times 8 pixels; or a FILE with a public square
        matrix, without a header, with one vector of the basis in each row"""
    it.option("--basis", text, metavar="B|FILE")
    _simulate(it)
    it.set_defaults(neighbors="replace_one")
    _output(it, "csv", "json", "npy")


def _plan(it: _Parser) -> None:
    """Add the options of the command `egm plan` to `it`, the parser of this command."""
    it.option("--rows", "the number of rows", type=_count, required=True, metavar="N")
    _model(it, planned=True)
    text = """forecast a release of egm adaptive. This takes --rows, --sigma, --center, --radius, --sigma-range or
        --range, and a budget, and no other option about the rows"""
    it.option("--adaptive", text, action="store_true")
    text = "privacy: the whole budget in zCDP, > 0; only with --adaptive, instead of --epsilon and --delta"
    it.option("--rho", text, type=float, metavar="R")
    _ranges(it, "; only with --adaptive")
    known = "center", *_NEVER_WITH_ADAPTIVE, *_ONLY_WITH_ADAPTIVE
    it.set_defaults(defaults={name: it.get_default(name) for name in known})
    _output(it, "text", "json")


def _data(it: _Parser, condition: str) -> None:
    """Add the options about the data file to `it`, the parser of a command.

    The text `condition` says when the first line of a CSV file is taken for names. It becomes a part of a help text.
    """
    text = "the rows: .csv (commas, UTF-8, with a header or without), .npy (two axes) or .parquet"
    it.option("data", text, metavar="DATA")
    text = "the columns to use, by name, or by number from 1 if they have no names; by default all"
    it.option("--columns", text, type=_columns, metavar="A,B,C")
    text = f"""whether line 1 of a CSV file has names. auto (default): yes if {condition}; no if all cells
        are numbers, and two of them are equal, or they are neither all whole nor in order; otherwise you must say yes
        or no, so that no header is taken for a person, and no person for a header"""
    it.option("--header", text, choices=("auto", "yes", "no"), default="auto")


def _model(it: _Parser, *, planned: bool = False) -> None:
    """Add the options about the columns and the privacy budget to `it`, the parser of a command.

    The options --epsilon and --delta are required unless `planned` is true.
    """
    text = """the standard deviation of every column, in its units, > 0: a .csv, .npy or .parquet FILE with one number
        on each line, or the name of a column and a number"""
    it.option("--sigma", text, required=True, metavar="FILE")
    text = """privacy: the data of one person make any result at most exp(E) times more likely. > 0; 1 is common, 10
        protects little"""
    given = "required, with --delta, unless --rho is given"
    it.option("--epsilon", f"{text}; {given}" if planned else text, type=float, required=not planned, metavar="E")
    it.option("--delta", _DELTA, type=float, required=not planned, metavar="D")
    text = """a public guess of the means of the columns, in their units: a number for all, or a FILE as for --sigma;
        default 0. If means lie far from it, in units of sigma, clipping spoils the sum"""
    it.option("--center", text, type=_number_or_text, default=0.0, metavar="X|FILE")
    text = """how far the means may be from --center, in their units: a number for all, or a FILE as for --sigma;
        default half of sigma. Like --sigma-factor, it is for the forecast and for --clip-probability optimal"""
    it.option("--center-std", text, type=_number_or_text, metavar="X|FILE")
    text = "the factor by which sigma may be too small or too large, from 1 to 10; default 1.25"
    it.option("--sigma-factor", text, type=float, default=1.25, metavar="F")
    text = """the share of rows that is clipped if they are normal around the center, in (0, 1); default 1/N. optimal:
        the share of least expected error, if center and sigma are as sure as --center-std and --sigma-factor say"""
    it.option("--clip-probability", text, type=_number_or_text, metavar="P|optimal")
    text = """how columns are weighed before clipping: expected_norm (a formula, default), optimal (less noise, and far
        more error if columns are correlated or the center is off), none, or a FILE as for --sigma with factors of your
        own, in inverse units, > 0"""
    it.option("--scaling", text, default="expected_norm", metavar="S")
    text = """what is protected: the content of a row (replace_one, the default; the number of rows is public), or also
        whether there is such a row (add_remove)"""
    it.option("--neighbors", text, choices=("replace_one", "add_remove"), default="replace_one")
    text = """release the number of clipped rows as well, for 0.8 percent more noise: with its standard deviation, and
        with its excess, in standard deviations, over what guesses as good as declared allow. If the excess is above 3,
        the guesses were worse, or rows are far from normal, and the sum is off by more than noise"""
    it.option("--count-clipped", text, action="store_true")
    text = """the law of the noise: gaussian (default); l2, which has less error unless delta is large compared with
        epsilon, most of all for few columns; or best, whichever of both has less error"""
    it.option("--noise", text, choices=("gaussian", "l2", "best"), default="gaussian")
    text = """a public orthonormal basis, if columns are correlated: dct or haar, the transforms of signals; dct:8x8, of
        images with 8 times 8 pixels; or a FILE with a square matrix, without a header, with one vector of the basis in
        each row. --sigma, --center-std and --scaling are then along the vectors of the basis"""
    it.option("--basis", text, metavar="B|FILE")


def _ranges(it: _Parser, when: str) -> None:
    """Add the options --range, --radius and --sigma-range to `it`, the parser of a command.

    They declare the ranges of the means and of the standard deviations of the columns. The text `when` is appended to
    their help texts, to say when they apply.
    """
    text = f"""the data of the column NAME are declared to lie between LO and HI, in its units; once for each column.
        Without --columns these are the columns to use{when}"""
    it.option("--range", text, type=_range, action="append", metavar="NAME=LO:HI")
    text = f"""the means of the columns are declared to lie between -R and R; in the units of the data, > 0; instead of
        --range{when}"""
    it.option("--radius", text, type=float, metavar="R")
    text = f"""the standard deviations of the columns are declared to lie between these two; in the units of the data,
        > 0; always with --radius. With --range they are in units of half the range, and default to 1e-4,1{when}"""
    it.option("--sigma-range", text, type=_pair, metavar="LO,HI")


def _simulate(it: _Parser) -> None:
    """Add the option --simulate to `it`, the parser of a command.

    The option asks for a simulation with a seed instead of secure noise.
    """
    text = "reproducible noise instead of secure noise, for experiments: the output says that it is not private"
    it.option("--simulate", text, type=_seed, metavar="SEED")


def _output(it: _Parser, *forms: str) -> None:
    """Add the options about the output to `it`, the parser of a command.

    `forms` are the names of the possible formats. The first of them is the default.
    """
    text = "where to write to, the whole output or nothing; default: standard output"
    it.option("--output", text, metavar="FILE")
    text = f"default: what the name of the output file ends in, else {forms[0]}"
    it.option("--format", text, choices=forms)
    it.option("--force", "replace an output file that exists", action="store_true")
    it.option("--debug", "show the traceback of an error in egm", action="store_true")
    it.set_defaults(forms=forms)


def require_options_that_fit(args: Namespace) -> None:
    """Raise a `Mistake`, an error for the user, if the options of `egm plan` in `args` do not go together.

    They do not go together if some of them exclude each other, or if a required option is missing.
    """
    useless = _NEVER_WITH_ADAPTIVE if args.adaptive else _ONLY_WITH_ADAPTIVE
    for name in useless:
        if getattr(args, name) != args.defaults[name]:
            without = "does not go with --adaptive" if args.adaptive else "goes with --adaptive only"
            raise Mistake(f"{spelled(name)} {without}")
    needed = ("radius", "sigma_range") * (not args.range) if args.adaptive else ("epsilon", "delta")
    missing = [spelled(name) for name in needed if getattr(args, name) is None]
    if missing:
        how = "with" if args.adaptive else "without"
        raise Mistake(f"the following arguments are required {how} --adaptive: {', '.join(missing)}")


def spelled(name: str) -> str:
    """Return the option `name` as a user types it: "sigma_range" becomes "--sigma-range"."""
    return f"--{name.replace('_', '-')}"


def _count(text: str) -> int:
    """Convert `text`, such as "1000" or "1e3", to a number of rows, an integer from 1 to 2**53.

    Raise the error of argparse for an argument if the text is not such a number.
    """
    number = _number_or_text(text)
    if isinstance(number, str) or not (1 <= number <= 2**53 and number == int(number)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 2**53, got {text!r}")
    return int(number)


def _seed(text: str) -> int:
    """Convert `text`, the digits of a seed, to an integer >= 0; for any other text raise the error of argparse."""
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0, got {text!r}")
    return int(text)


def _number_or_text(text: str) -> float | str:
    """Return `text` as a float if it is a number; otherwise return the text unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _columns(text: str) -> list[str]:
    """Split `text` at its commas, and return the list of the names between them; raise an error if a name is empty."""
    names = [name.strip() for name in next(csv.reader([text]), [])]
    if not all(names) or not names:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return names


def _range(text: str) -> tuple[str, tuple[float, float]]:
    """Convert `text`, such as "age=0:120", to a name and a pair of floats; raise an error for any other text."""
    name, _, ends = text.rpartition("=")
    try:
        low, high = map(float, ends.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a name and two numbers, as in age=0:120, got {text!r}") from None
    return name.strip(), (low, high)


def _pair(text: str) -> tuple[float, float]:
    """Convert `text`, two numbers with a comma between them, to a pair of floats; raise an error for any other text."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be two numbers with a comma between them, got {text!r}") from None
    return low, high
