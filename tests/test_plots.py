"""Figures: each function draws what its table says on the axis that it is given, and returns that axis."""

import matplotlib as mpl
import numpy as np
import pytest

from egm import experiments, plots

mpl.use("Agg")


@pytest.fixture
def ax():
    figure, ax = plots.figure()
    yield ax
    mpl.pyplot.close(figure)


@pytest.fixture
def table():
    return experiments.sweep(lambda d, alpha: d**alpha, d=[10, 100], alpha=[0.0, 0.5, 1.0])


def test_curves_draw_one_labelled_line_a_group(ax, table):
    assert plots.curves(table, ax, "alpha", by="d", label="d = {}", places=[0.5, 0.5]) is ax
    assert [text.get_text() for text in ax.texts] == ["d = 10", "d = 100"]
    for line, d in zip(ax.lines, [10, 100], strict=True):
        np.testing.assert_allclose(line.get_ydata(), d ** np.array([0.0, 0.5, 1.0]))
    assert len({(line.get_color(), str(line._dash_pattern)) for line in ax.lines}) == 2


def test_curves_without_places_have_a_legend(ax, table):
    plots.curves(table, ax, "alpha", by="d")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["10", "100"]


def test_bars_stand_side_by_side(ax, table):
    plots.bars(table, ax, "alpha", by="d")
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([1, 10**0.5, 10, 1, 10, 100])
    left = [bar.get_x() for bar in ax.patches]
    assert all(first < second for first, second in zip(left[:3], left[3:], strict=True))


def test_log_axis_has_minor_ticks_without_labels(ax):
    ax.plot([1, 1000], [1, 1e6])
    assert plots.log_axis(ax) is ax
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert len(ax.xaxis.get_minorticklocs()) > 10


def test_colours_are_distinct():
    assert len(set(plots.COLORS)) == len(plots.COLORS)


def test_intervals_are_two_standard_errors_to_either_side(ax):
    rows = [(1, 10.0, 1.0, "a"), (2, 20.0, 3.0, "a"), (1, 5.0, 0.5, "b")]
    table = np.array(rows, dtype=[("x", int), ("value", float), ("se", float), ("name", "U1")])
    assert plots.intervals(table, ax, "x", by="name", label="method {}") is ax
    first, second = ax.containers
    assert [bars.get_label() for bars in (first, second)] == ["method a", "method b"]
    assert first.lines[0].get_xydata().tolist() == [[1, 10], [2, 20]]
    assert [path.vertices[:, 1].tolist() for path in first.lines[2][0].get_paths()] == [[8, 12], [14, 26]]
    assert second.lines[0].get_color() == plots.COLORS[1]
