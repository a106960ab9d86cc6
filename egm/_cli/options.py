"""Define the options of each command and their help texts, and check which options go together.

In each function that adds options, the argument `it` is the parser of a command.
"""

from __future__ import annotations

import argparse
import csv
import re
from argparse import Namespace
from typing import Any, NoReturn

import egm
from egm._cli.terminal import Mistake, printing

__all__ = ["ALONG", "SCALINGS", "VECTORS", "parser", "require_options_that_fit", "spelled", "split"]

SCALINGS = ("optimal", "expected_norm", "none")
VECTORS = ("sigma", "center", "center_std", "scaling")  # options that may name a file with a number for each column
ALONG = "_along_basis"  # ends the name of a vector in the output that has a number for each vector of a basis

_SHAPE: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
_NEVER_WITH_ADAPTIVE = (
    "center_std",
    "sigma_factor",
    "clip_probability",
    "scaling",
    "count_clipped",
    "noise",
    "basis",
)
_ONLY_WITH_ADAPTIVE = ("rho", "radius", "sigma_range", "range")
_ONLY_WITH_TARGET = ("solve_for", "measure", "column")
_SOLVED = {"epsilon": ("epsilon", "rho"), "rows": ("rows",)}  # options that --solve-for replaces

_ABOUT = """\
Differentially private sums of the rows of a file.

By default each row belongs to one person. A release is the sum of the rows, each clipped to an ellipsoid, plus random
noise, which hides what one person adds to the sum, to the degree that epsilon and delta say. `egm plan` tells how large
the error will be, before any data; `egm sum` makes the release; `egm adaptive` makes one if nobody knows how the data
spread."""

_SUM = """\
Release the sum of the rows of a file, with (epsilon, delta)-differential privacy.

The center is subtracted from each row; the row is scaled, clipped to a norm that few rows exceed, and added up. An
exact sampler draws the noise from the randomness of the operating system. sigma, the center and every other option
must be public: from a codebook, an earlier release or common knowledge, never computed from the data. Privacy holds
whatever the data are; the options only decide how accurate the sum is. Every release spends its epsilon and delta
anew. The file may be larger than memory.

example:
  egm sum visits.parquet --sigma sigma.csv --epsilon 1 --delta 1e-6 --output sums.json"""

_MEAN = """\
Release the means of the columns of a file, with (epsilon, delta)-differential privacy.

The release is that of `egm sum`. Its output has, for each column, the mean and the standard deviation of its noise, the
bounds low and high between which the mean of these rows lies with 95 percent confidence, and population_low and
population_high, the bounds for the mean of the population from which the rows are a random sample. With --sample, low
and high are bounds for the mean of the secret sample, and not of all rows: publish population_low and population_high.
The bounds hold if center and sigma are as good as --center-std and --sigma-factor say, and the rows are nearly normal:
of skewed rows, clipping may take more.

example:
  egm mean visits.csv --sigma sigma.csv --center center.csv --person id --per-person mean --by region
    --keys regions.txt --rows 10000 --epsilon 1 --delta 1e-6 --output means.csv"""

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

_BUDGET = """\
Keep the privacy budget of several releases from the same data in a file, the journal.

`egm budget new` makes a journal with a total. With --budget, `egm sum`, `egm mean` and `egm adaptive` charge a release
to it before they read any value but the labels of --person, whose order they check, and refuse a release that would
exceed the total. `egm budget show` prints the total, what is spent, what is left, and the releases so far. If a release
was chosen because of earlier results, only the total is a guarantee, and what is spent is none."""

_NEW = """\
Make a new journal, a file that keeps the privacy budget of several releases from the same data.

The total is --epsilon with --delta, or --rho. The file must not exist. It belongs to one data set: all releases from
the data must be charged to it.

example:
  egm budget new survey.budget --epsilon 1 --delta 1e-6"""

_SHOW = """\
Print the total of a budget, what is spent, what is left, and all releases that were charged to it.

What is left is the cost that one more release may have: the epsilon and delta of a Gaussian mechanism, or a rho.

example:
  egm budget show survey.budget"""

_CODES = """
exit codes: 0 done; 2 a mistake in an option or a file; 1 an error in egm; 130 interrupted; 143 terminated;
129 hung up"""

_DELTA = "privacy: the probability with which the promise of epsilon may fail, in (0, 1) and far below 1/N"


class _Parser(argparse.ArgumentParser):
    """Parse the options of the command line; for a wrong option, raise a `Mistake`, whose message is one line.

    The parser of argparse would end the process instead. A text that begins with a minus sign and a digit, such as
    -1e2 or -1,0,1, is the value of an option and not an option.
    """

    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # that of argparse knows no exponents

    def error(self, message: str) -> NoReturn:
        raise Mistake(f"{message} ({self.prog} --help explains)")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the text of --help or --version to standard output, `file`; that of argparse ignores a full disk."""
        if file is None:  # standard output is closed
            super()._print_message(message)
            return
        with printing():
            print(message, end="", file=file, flush=True)

    def option(self, name: str, text: str, **kind: Any) -> None:
        """Add the option `name`, with the help text `text` and the keyword arguments `kind` of `add_argument`.

        Line breaks and indentation in the text become single spaces.
        """
        self.add_argument(name, help=" ".join(text.split()), **kind)


def parser() -> _Parser:
    """Return the parser of the command line, with all commands and their options."""
    it = _Parser(prog="egm", description=_ABOUT, epilog=_CODES, **_SHAPE)
    it.add_argument("--version", action="version", version=f"egm {egm.__version__}")
    commands = it.add_subparsers(title="commands", metavar="command", dest="command", required=True)
    for name, add_options, summary, description in (
        ("sum", _sum, "release the sum of the rows of a file", _SUM),
        ("mean", _sum, "release the means of the columns of a file", _MEAN),
        ("adaptive", _adaptive, "release the sum if nobody knows how the data spread", _ADAPTIVE),
        ("plan", _plan, "forecast the error of a release, without data", _PLAN),
        ("budget", _budget, "make or show the privacy budget of several releases", _BUDGET),
    ):
        add_options(commands.add_parser(name, help=summary, description=description, epilog=_CODES, **_SHAPE))
    return it


def _sum(it: _Parser) -> None:
    """Add the options of the command `egm sum` or `egm mean` to `it`, the parser of this command."""
    names = """no cell is a number, and all its cells are names in the file of --sigma, --center or --scaling or the
        --columns are among them"""
    _data(it, names)
    _rows(it)
    _model(it)
    _people(it)
    text = """what happens with a missing value, which in a CSV file is an empty cell, a point, NA, #N/A, NaN, None or
        null: error (default); center, the value becomes that of --center; drop_row, its row is left out"""
    it.option("--missing", text, choices=("error", "center", "drop_row"), default="error")
    _charged(it)
    _sample(it)
    _simulate(it)
    _release_output(it)


def _sample(it: _Parser) -> None:
    """Add the option --sample to `it`, the parser of a command that makes a release."""
    text = """release the sum, or the means, of a random sample: each row, or all rows of each person, is in it with the
        probability Q, and the budget is charged less. Goes with --budget and --neighbors add_remove; --rows is still
        the number of rows, or of persons, in the file. For one sum this rarely pays. The estimates are those of the
        sample; of the bounds of a mean, publish population_low and population_high, because low and high are for the
        mean of the sample"""
    it.option("--sample", text, type=_share, metavar="Q")


def _rows(it: _Parser) -> None:
    """Add the option --rows to `it`, the parser of a command that makes a release."""
    text = """the number of rows. With --neighbors replace_one it is public: declare it, or it is taken from the file
        and published with the release, which is right only if everybody may know it. With --neighbors add_remove it is
        private: N is then a public guess, which decides how accurate the release is, and must be given; a noisy count
        is released. With --by, N is never compared with the file, and is stated in the output as it was given"""
    it.option("--rows", text, type=_count, metavar="N")


def _neighbors(it: _Parser) -> None:
    """Add the option --neighbors to `it`, the parser of a command."""
    text = """what is protected: the content of a row (replace_one, the default; the number of rows is public), or also
        whether there is such a row (add_remove)"""
    it.option("--neighbors", text, choices=("replace_one", "add_remove"), default="replace_one")


def _people(it: _Parser) -> None:
    """Add the options about persons with several rows and about groups to `it`, the parser of a command."""
    _person(it)
    text = """what becomes of the rows of one person: sum, they are added up; mean, they are averaged; or K, the first K
        of them are kept, and the noise is K times as large"""
    it.option("--per-person", text, type=_per_person, metavar="sum|mean|K")
    text = """the column with the group of each row. A sum and a noisy number of rows are released for each of the
        --keys, with the noise of one sum. Goes with --keys and --rows"""
    it.option("--by", text, metavar="A")
    text = """the public keys of the groups: a FILE with one on each line, or keys with commas between them. Rows with
        another key are left out, and spaces around keys do not count. A date is written as 2024-03-01 or
        2024-03-01T12:30; a date without a time is midnight, and not the whole day"""
    it.option("--keys", text, metavar="FILE|A,B,C")
    text = """the number of groups in which the rows of one person count, if a person has several; default 1. Goes with
        --per-person sum or mean. The noise grows like the root of M"""
    it.option("--groups-per-person", text, type=_count, default=1, metavar="M")


def _person(it: _Parser) -> None:
    """Add the option --person to `it`, the parser of a command."""
    text = """the column that says to whom a row belongs, if a person may have several rows; it is not summed, and a
        file must be sorted by it. Goes with --per-person, and with --rows: the number of persons"""
    it.option("--person", text, metavar="A")


def _adaptive(it: _Parser) -> None:
    """Add the options of the command `egm adaptive` to `it`, the parser of this command."""
    _data(it, "no cell is a number and the --columns are among them")
    _rows(it)
    _neighbors(it)
    text = "privacy: the whole budget in zCDP, > 0; instead of --epsilon and --delta"
    it.option("--rho", text, type=float, metavar="R")
    text = "privacy: goes with --delta; the two are converted to the largest rho that implies them"
    it.option("--epsilon", text, type=float, metavar="E")
    it.option("--delta", _DELTA, type=float, metavar="D")
    _ranges(it, "")
    _person(it)
    text = "what becomes of the rows of one person: sum, they are added up; or mean, they are averaged"
    it.option("--per-person", text, choices=("sum", "mean"))
    text = """an orthonormal basis, if columns are correlated: learn, to find one with a twentieth of the budget; dct or
        haar, the transforms of signals; dct:8x8, of images with 8 times 8 pixels; or a FILE with a public square
        matrix, without a header, with one vector of the basis in each row"""
    it.option("--basis", text, metavar="B|FILE")
    text = """what happens with a missing value, which in a CSV file is an empty cell, a point, NA, #N/A, NaN, None or
        null: error (default); drop_row, its row is left out, which needs --neighbors add_remove"""
    it.option("--missing", text, choices=("error", "drop_row"), default="error")
    _charged(it)
    _simulate(it)
    _release_output(it)


def _plan(it: _Parser) -> None:
    """Add the options of the command `egm plan` to `it`, the parser of this command."""
    it.option("--rows", "the number of rows; required, unless --solve-for finds it", type=_count, metavar="N")
    _model(it, planned=True)
    text = """find the least epsilon (or the least rows) for which the expected error is at most X, and plan for it: in
        the units of the data or, for the measure relative, a share"""
    it.option("--target-error", text, type=float, metavar="X")
    text = """what --target-error finds: rows, or epsilon (default; rho if --adaptive is given without --delta), rounded
        up to three digits, or to more if the error rises just above it"""
    it.option("--solve-for", text, choices=tuple(_SOLVED))
    text = """the kind of error: that of the mean (default) or of the sum, in root mean square; relative, that of the
        sum of a column as a share of rows * center; or interval, half of the width of the 95 percent interval of a
        mean"""
    it.option("--measure", text, choices=("mean", "sum", "relative", "interval"))
    text = """the column that --target-error is about, by name, or by number from 1 if columns have no names; by default
        all together, in the Euclidean norm"""
    it.option("--column", text, metavar="A")
    text = """forecast a release of egm adaptive. This takes --rows, --sigma, --center, --radius, --sigma-range or
        --range, and a budget, and no other option about the rows"""
    it.option("--adaptive", text, action="store_true")
    text = "privacy: the whole budget in zCDP, > 0; only with --adaptive, instead of --epsilon and --delta"
    it.option("--rho", text, type=float, metavar="R")
    _ranges(it, "; only with --adaptive")
    known = "center", *_NEVER_WITH_ADAPTIVE, *_ONLY_WITH_ADAPTIVE
    it.set_defaults(defaults={name: it.get_default(name) for name in known})
    _output(it, "text", "json")


def _budget(it: _Parser) -> None:
    """Add the commands `egm budget new` and `egm budget show` to `it`, the parser of `egm budget`."""
    actions = it.add_subparsers(title="commands", metavar="command", dest="action", required=True)
    _new(actions.add_parser("new", help="make a new journal", description=_NEW, epilog=_CODES, **_SHAPE))
    _show(actions.add_parser("show", help="print a journal", description=_SHOW, epilog=_CODES, **_SHAPE))


def _new(it: _Parser) -> None:
    """Add the options of the command `egm budget new` to `it`, the parser of this command."""
    it.option("budget", "the journal to make, for example survey.budget", metavar="FILE")
    it.option("--epsilon", "the total epsilon, > 0; goes with --delta", type=float, metavar="E")
    text = "the total delta, in [0, 1) and far below 1/N; with 0, the default, egm sum, mean and adaptive are refused"
    it.option("--delta", text, type=float, metavar="D")
    it.option("--rho", "the total in zCDP, > 0; instead of --epsilon and --delta", type=float, metavar="R")
    text = """how costs are added up to epsilon and delta: gaussian, zcdp or basic, with which a release may be chosen
        after those before it; or planned, if all were chosen before the first. By default the first release decides"""
    it.option("--rule", text, choices=("gaussian", "zcdp", "basic", "planned"))
    text = "the neighbors of all releases: replace_one (default) or add_remove"
    it.option("--neighbors", text, choices=("replace_one", "add_remove"))
    it.option("--simulation", "a budget for rehearsals, which takes simulations and nothing else", action="store_true")
    it.option("--debug", "show the traceback of an error in egm", action="store_true")


def _show(it: _Parser) -> None:
    """Add the options of the command `egm budget show` to `it`, the parser of this command."""
    it.option("budget", "the journal", metavar="FILE")
    _output(it, "text", "json")


def _charged(it: _Parser) -> None:
    """Add the options about the budget of several releases to `it`, the parser of a command."""
    text = """the journal of a budget for all releases from these data, made by egm budget new: the release is charged
        to it before a value is read, and refused if it would exceed the total"""
    it.option("--budget", text, metavar="FILE")
    it.option("--label", "a text that the journal keeps with the charge, such as March", default="", metavar="TEXT")


def _data(it: _Parser, condition: str) -> None:
    """Add the options about the data file to `it`, the parser of a command.

    `condition` is a part of a help text: it says when the first line of a CSV file is taken for names.
    """
    text = """the rows: .csv or .tsv (with a header or without; also .csv.gz and .tsv.gz), .npy (two axes), .parquet, or
        a folder of CSV or of .parquet files, with its subfolders; or -, for CSV from standard input, which is held in
        an unnamed temporary file that ends with the command"""
    it.option("data", text, metavar="DATA")
    text = "the columns to use, by name, or by number from 1 if they have no names; by default all"
    it.option("--columns", text, type=_columns, metavar="A,B,C")
    text = f"""whether line 1 of a CSV file has names. auto (default): yes if {condition}; no if all cells
        are numbers, and two of them are equal, or they are neither all whole nor in order; otherwise you must say yes
        or no, so that no header is taken for a person, and no person for a header"""
    it.option("--header", text, choices=("auto", "yes", "no"), default="auto")
    text = """the character between the cells of a CSV file, such as ';', or tab; default a comma, and in .tsv files a
        tab. Like the next four options, it is for DATA only, not for the FILE of another option"""
    it.option("--delimiter", text, type=_delimiter, metavar="C")
    text = """the character between groups of three digits in the numbers of a CSV file, such as ',' in 1,234.5; default
        none. If it is also the delimiter, such numbers must be in quotes. A space also allows no-break spaces, and an
        apostrophe the curved one"""
    it.option("--thousands", text, type=_character, metavar="C")
    text = "the decimal sign in a CSV file, a point (default) or a comma"
    it.option("--decimal", text, choices=(".", ","), default=".", metavar="SIGN")
    text = """the number of lines at the start of a CSV file, such as titles, that are left out; default 0. No line at
        the end is left out: one with totals counts as a row"""
    it.option("--skip-lines", text, type=_whole, default=0, metavar="N")
    text = "the encoding of a CSV file, such as latin-1, cp1252 or utf-16; default utf-8"
    it.option("--encoding", text, type=_encoding, default="utf-8", metavar="NAME")


def _model(it: _Parser, *, planned: bool = False) -> None:
    """Add the options about the columns and the privacy budget to `it`, the parser of a command.

    The options --epsilon and --delta are required unless `planned` is true.
    """
    text = """the standard deviation of every column, in its units, > 0 (0.5 for rare ones among zeros): a .csv, .npy or
        .parquet FILE with one number on each line, or the name of a column and a number; or a release, as egm adaptive
        writes it in CSV or JSON. A release along a basis has sigma_along_basis instead, which is not taken"""
    it.option("--sigma", text, required=True, metavar="FILE")
    text = """privacy: the data of one person make any result at most exp(E) times more likely. > 0; 1 is common, 10
        protects little"""
    given = "required, with --delta, unless --rho is given or --solve-for finds it"
    it.option("--epsilon", f"{text}; {given}" if planned else text, type=float, required=not planned, metavar="E")
    it.option("--delta", _DELTA, type=float, required=not planned, metavar="D")
    default = "default 0 or, with --range, the middle of each range" if planned else "default 0"
    text = """a public guess of the means of the columns, in their units: a number for all, or a FILE as for --sigma;
        {}. If means lie far from it, in units of sigma, clipping spoils the sum"""
    it.option("--center", text.format(default), type=_number_or_text, default=0.0, metavar="X|FILE")
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
    _neighbors(it)
    text = """release the number of clipped rows as well, for 0.8 percent more Gaussian noise, or up to 24 percent more
        l2 noise if there are few columns: with its standard deviation, and with its excess, in standard deviations,
        over what guesses as good as declared allow. If the excess is above 3, the guesses were worse, or rows are far
        from normal, and the sum is off by more than noise"""
    it.option("--count-clipped", text, action="store_true")
    text = """the law of the noise: gaussian (default); l2, which has less error unless delta is large compared with
        epsilon, most of all for few columns; or best, whichever of both has less error. If one budget is for several
        releases, take gaussian: l2 noise can cost far more than its epsilon when releases are added up"""
    it.option("--noise", text, choices=("gaussian", "l2", "best"), default="gaussian")
    text = """a public orthonormal basis, if columns are correlated: dct or haar, the transforms of signals; dct:8x8, of
        images with 8 times 8 pixels; or a FILE with a square matrix, without a header, with one vector of the basis in
        each row. --sigma, --center-std and --scaling are then along the vectors of the basis"""
    it.option("--basis", text, metavar="B|FILE")


def _ranges(it: _Parser, when: str) -> None:
    """Add the options --range, --radius and --sigma-range to `it`, the parser of a command.

    They declare ranges of the columns, of their means and of their standard deviations, in this order. The text `when`
    is appended to their help texts, to say when they apply.
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
    """Add the option --simulate SEED, for reproducible noise that is not private, to `it`, the parser of a command."""
    text = "reproducible noise instead of secure noise, for experiments: the output says that it is not private"
    it.option("--simulate", text, type=_whole, metavar="SEED")


def _release_output(it: _Parser) -> None:
    """Add the options about the output of a release to `it`, the parser of a command."""
    text = """write CSV without the comment in line 1, which has the parameters; and without center and sigma if the
        comment would say that they are only taken from declared ranges"""
    it.option("--plain", text, action="store_true")
    _output(it, "csv", "json", "npy", "parquet")


def _output(it: _Parser, *forms: str) -> None:
    """Add the options about the output to `it`, the parser of a command.

    `forms` are the names of the possible formats, beginning with the default.
    """
    text = "where to write to, the whole output or nothing; default, and -: standard output"
    it.option("--output", text, metavar="FILE")
    text = f"default: what the name of the output file ends in, else {forms[0]}"
    it.option("--format", text, choices=forms)
    it.option("--force", "replace an output file that exists", action="store_true")
    it.option("--debug", "show the traceback of an error in egm", action="store_true")
    it.set_defaults(forms=forms)


def require_options_that_fit(args: Namespace) -> None:
    """Raise a `Mistake`, an error for the user, if the options of `egm plan` in `args` do not go together."""
    useless = _NEVER_WITH_ADAPTIVE if args.adaptive else _ONLY_WITH_ADAPTIVE
    for name in useless:
        if getattr(args, name) != args.defaults[name]:
            without = "does not go with --adaptive" if args.adaptive else "goes with --adaptive only"
            raise Mistake(f"{spelled(name)} {without}")
    solved = _solved(args)
    if "rows" not in solved and args.rows is None:
        raise Mistake("the following arguments are required: --rows (egm plan --help explains)")
    needed = ("radius", "sigma_range") * (not args.range) if args.adaptive else ("epsilon", "delta")
    missing = [spelled(name) for name in needed if name not in solved and getattr(args, name) is None]
    if missing:
        how = "with" if args.adaptive else "without"
        raise Mistake(f"the following arguments are required {how} --adaptive: {', '.join(missing)}")


def _solved(args: Namespace) -> tuple[str, ...]:
    """Return the names of the options of `egm plan` whose values are to be found, and which must therefore be left out.

    With the option --target-error, these are "epsilon" and "rho", the budget, or, for "--solve-for rows", only "rows",
    the number of rows. Then --solve-for and --measure get their defaults in `args` if they are missing. A `Mistake` (an
    error for the user) is raised if one of the returned options is given. Without --target-error the result is empty,
    and a `Mistake` is raised if --solve-for, --measure or --column is given.
    """
    if args.target_error is None:
        for name in _ONLY_WITH_TARGET:
            if getattr(args, name) is not None:
                raise Mistake(f"{spelled(name)} goes with --target-error only")
        return ()
    args.solve_for, args.measure = args.solve_for or "epsilon", args.measure or "mean"
    for name in _SOLVED[args.solve_for]:
        if getattr(args, name) is not None:
            raise Mistake(f"{spelled(name)} does not go with --target-error and --solve-for {args.solve_for}")
    return _SOLVED[args.solve_for]


def spelled(name: str) -> str:
    """Return the option `name` as a user types it: "sigma_range" becomes "--sigma-range"."""
    return f"--{name.replace('_', '-')}"


def _count(text: str) -> int:
    """Convert `text`, such as "1000" or "1e3", to a number of rows, an integer from 1 to 2**53.

    Raise argparse.ArgumentTypeError if the text is not such a number, or if it has a point: 5.000 may mean 5000.
    """
    number = _number_or_text(text)
    if isinstance(number, str) or "." in text or not (1 <= number <= 2**53 and number == int(number)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 2**53, got {text!r}")
    return int(number)


def _share(text: str) -> float:
    """Convert `text` to a sampling probability from 1e-12 to 1; raise argparse.ArgumentTypeError for any other text."""
    number = _number_or_text(text)
    if isinstance(number, str) or not 1e-12 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be a probability from 1e-12 to 1, got {text!r}")
    return number


def _per_person(text: str) -> str | int:
    """Convert the value `text` of --per-person: return "sum" or "mean" unchanged, and a number as an integer.

    The number, from 1 to 2**53, says how many rows of each person are kept.
    """
    return text if text in ("sum", "mean") else _count(text)


def _whole(text: str) -> int:
    """Convert `text`, a row of digits, to an integer >= 0; raise argparse.ArgumentTypeError for any other text."""
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0, got {text!r}")
    return int(text)


def _delimiter(text: str) -> str:
    """Return a tab if `text` is "tab" or a backslash and "t", or `text` itself if it is one character.

    Raise argparse.ArgumentTypeError for any other text.
    """
    return "\t" if text in ("tab", "\\t") else _character(text, ", or tab")


def _character(text: str, other: str = "") -> str:
    """Return `text` if it is a single character, and otherwise raise argparse.ArgumentTypeError.

    The text `other` in the message says what else is allowed.
    """
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"must be one character{other}, got {text!r}")
    return text


def _encoding(text: str) -> str:
    """Return `text` if it is the name of a text encoding, such as "latin-1".

    Raise argparse.ArgumentTypeError for any other text.
    """
    try:
        "".encode(text)
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(f"must be the name of an encoding, such as latin-1, got {text!r}") from None
    return text


def _number_or_text(text: str) -> float | str:
    """Return `text` as a float if it is a number; otherwise return the text unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _columns(text: str) -> list[str]:
    """Split `text` at its commas, and return the list of the names between them; raise an error if a name is empty."""
    names = [name.strip() for name in split(text)]
    if not all(names) or not names:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return names


def split(text: str) -> list[str]:
    """Split `text` at its commas, but not at those in quotes; return [] if it is empty or has more than one line."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return []


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
