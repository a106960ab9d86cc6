"""Make each figure of a chapter (notebook) available in two more formats: PDF, and its numbers as CSV.

`tools.execute` makes the kernel of each chapter call `start` before the first cell.
"""


def start() -> None:
    """Let this kernel, the process that runs a notebook, output every later figure in two more formats: PDF and CSV.

    The CSV has the numbers of the figure; see `drawn`.
    """
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from matplotlib_inline.config import InlineBackend
    from traitlets import ObjectName, Unicode

    class Numbers(BaseFormatter):
        format_type = Unicode("text/csv")
        print_method = ObjectName("_repr_csv_")

    def add_formats(change) -> None:
        from matplotlib.figure import Figure

        change.owner.figure_formats = {*change.new, "pdf"}
        Figure._repr_csv_ = drawn

    shell = get_ipython()
    InlineBackend.instance(parent=shell).observe(add_formats, "figure_formats")
    shell.display_formatter.formatters["text/csv"] = Numbers(parent=shell.display_formatter)


def drawn(figure) -> str:
    """Return what is drawn in `figure` as CSV text: the points of curves, and the outlines of patches (filled areas).

    The columns are panel, name, x and y, and in a figure with error bars also low and high, the ends of the bars. Lines
    of one or two points without markers, such as a horizontal line, are left out.
    """
    import csv
    from io import StringIO

    rows = []
    for k, ax in enumerate(figure.axes, 1):
        bars = {each[0]: each for each in ax.containers if getattr(each, "has_yerr", False)}
        curves = names([bars.get(line, line) for line in ax.lines], [line.get_color() for line in ax.lines], "curve")
        for line, name in zip(ax.lines, curves, strict=True):
            x, y = line.get_data()
            if len(x) > 2 or line in bars or line.get_marker() not in ("None", "", None):
                ends = [bar.vertices[:, 1] for bar in bars[line][2][-1].get_paths()] if line in bars else [()] * len(x)
                rows += [(k, name, *point, *end) for *point, end in zip(x, y, ends, strict=True)]
        outlines = names(ax.patches, [patch.get_edgecolor() for patch in ax.patches], "patch")
        for patch, name in zip(ax.patches, outlines, strict=True):
            rows += [(k, name, *point) for point in outline(patch)]
    columns = ("panel", "name", "x", "y", "low", "high")[: max(map(len, rows), default=4)]
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows([columns, *((*row, "", "")[: len(columns)] for row in rows)])
    return text.getvalue()


def names(artists, colors, kind) -> list[str]:
    """Return the names of `artists`, which are the curves or the patches of one panel, as the legend has them.

    An artist without a name is named by the word `kind` and its number and, if another one has its color, by the name
    of this one, too. `colors` has the color of each artist.
    """
    labels = [artist.get_label() for artist in artists]
    own = [bool(label) and not label.startswith("_") for label in labels]  # else it is from Matplotlib
    known = {color: label for color, label, named in zip(colors, labels, own, strict=True) if named}
    return [
        label if named else f"{known[color]} ({kind} {i})" if color in known else f"{kind} {i}"
        for i, (color, label, named) in enumerate(zip(colors, labels, own, strict=True), 1)
    ]


def outline(patch):
    """Return the points of the outline of `patch` in the coordinates of the data, with 16 points on each curved part.

    The result is an array of shape (k, 2).
    """
    import numpy as np

    part = np.linspace(0, 1, 17)[1:]
    pieces = [piece for piece, _ in patch.get_patch_transform().transform_path(patch.get_path()).iter_bezier()]
    return np.concatenate([piece(part if piece.degree > 1 else part[-1:]) for piece in pieces])
