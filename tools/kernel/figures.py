"""Figures in two formats, whatever a chapter asks for: as it says for the screen, and as PDF for the book on paper.

`tools.execute` has the kernel of each chapter call `start` before the first cell.
"""


def start() -> None:
    """From now on, add PDF whenever the formats of figures are set."""
    from IPython import get_ipython
    from matplotlib_inline.config import InlineBackend

    def add_pdf(change) -> None:
        change.owner.figure_formats = {*change.new, "pdf"}

    InlineBackend.instance(parent=get_ipython()).observe(add_pdf, "figure_formats")
