"""Make each figure of a chapter (notebook) available in two more formats: PDF, and its numbers as CSV.

`tools.execute` makes the kernel of each chapter call `start` before the first cell.
"""


def start() -> None:
    """Let this kernel, the process that runs a notebook, output every later figure in two more formats: PDF and CSV.

    The CSV has the points of the curves in the figure.
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
    """Return the points of the curves in `figure` as CSV text, with the columns panel, name, x and y.

    Lines of one or two points without markers, such as a horizontal line, are left out.
    """
    import csv
    from io import StringIO

    rows = []
    for k, ax in enumerate(figure.axes, 1):
        for i, line in enumerate(ax.lines, 1):
            if len(line.get_xdata()) > 2 or line.get_marker() not in ("None", "", None):
                name = line.get_label() if not line.get_label().startswith("_") else f"curve {i}"
                rows += [(k, name, x, y) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("panel", "name", "x", "y"))
    table.writerows((k, name, *(f"{v:.10g}" if isinstance(v, float) else v for v in point)) for k, name, *point in rows)
    return text.getvalue()
