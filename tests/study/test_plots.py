"""Test `egm.study.plots`: its functions draw tables, names and notes on given axes, and return these axes."""

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest

from egm.study import plots, tables

mpl.use("Agg")


@pytest.fixture
def ax():
    """Yield empty axes of a new figure, and close the figure after the test."""
    figure, ax = plots.figure()
    yield ax
    mpl.pyplot.close(figure)


@pytest.fixture
def table():
    """Return a table whose rows have the values d**alpha, for two values of d and three values of alpha."""
    return tables.sweep(lambda d, alpha: d**alpha, d=[10, 100], alpha=[0.0, 0.5, 1.0])


def names(ax):
    """Return a dictionary from each text on the axes `ax` to its bounding box in the figure, in pixels."""
    renderer = ax.figure.canvas.get_renderer()
    return {text.get_text(): text.get_window_extent(renderer) for text in ax.texts if text.get_text()}


def test_curves_draw_one_line_a_group(ax, table):
    assert plots.curves(table, ax, "alpha", by="d", label="d = {}") is ax
    for line, d in zip(ax.lines, [10, 100], strict=True):
        assert line.get_label() == f"d = {d}"
        np.testing.assert_allclose(line.get_ydata(), d ** np.array([0.0, 0.5, 1.0]))


def test_lines_and_points_differ_without_colour():
    """The seven styles of lines have different dashes, and the seven styles of points have different markers.

    So lines and points can be told apart without colors. The seven colors are different, too.
    """
    for look in ([str(plots.line(i)["dashes"]) for i in range(7)], [plots.dots(i)["marker"] for i in range(7)]):
        assert len(set(look)) == 7
    assert len(set(plots.COLORS)) == len(plots.COLORS) == 7


def test_a_dictionary_chooses_names_and_orders_groups(ax, table):
    plots.curves(table, ax, "alpha", by="d", label={100: "many", 7: "none", 10: "few"})
    assert [line.get_label() for line in ax.lines] == ["many", "few"]


def test_names_at_the_ends_do_not_overlap(ax):
    """`name_curves` writes the name of each line right of the line's end, in the line's color; no two names overlap.

    Names of lines that end nearly at the same height are moved apart, in the order of the lines.
    """
    for i, end in enumerate([1.0, 1.001, 1.002, 5.0]):
        ax.plot([0, 1], [0, end], label=f"line {i}", **plots.line(i))
    plots.name_curves(ax)
    boxes = [names(ax)[f"line {i}"] for i in range(4)]
    assert all(box.x0 > ax.transData.transform((1, 0))[0] for box in boxes)
    assert all(low.y1 < high.y0 for low, high in pairwise(boxes))
    assert abs((boxes[3].y0 + boxes[3].y1) / 2 - ax.transData.transform((0, 5))[1]) < 3
    assert [text.get_color() for text in ax.texts] == list(plots.COLORS[:4])


@pytest.mark.parametrize("places", [None, [0.5, 0.5]])
def test_a_line_that_leaves_the_picture_is_named_where_it_does(ax, places):
    """`name_curves` writes the name of a line that leaves the visible range at the point where the line leaves it.

    If `places` is not None, the names are written at these horizontal positions instead, from 0 for the left end of the
    axes to 1 for the right one. A line that is nowhere in the visible range gets no name in either case.
    """
    ax.plot([1, 2, 3], [1, 2, 1e9], label="lost")
    ax.plot([1, 2, 3], [-5, -5, -5], label="never seen")
    ax.set(ylim=(0, 10))
    plots.name_curves(ax, places)
    assert list(names(ax)) == ["lost"]
    assert names(ax)["lost"].x0 < ax.transData.transform((2.2, 0))[0]


@pytest.mark.parametrize(("side", "across", "up"), [("above", 0, 1), ("below left", -1, -1), ("right", 1, 0)])
def test_a_name_stands_beside_its_line(ax, side, across, up):
    """`name_curves` writes a name at half of the width of the axes, on the side `side` of the line.

    `across` is 1 if the name is expected right of the line, -1 for left, and 0 for neither; `up` is 1 for above the
    line, -1 for below, and 0 for neither.
    """
    ax.plot([1, 1000], [1, 1e6], label="power")
    plots.name_curves(plots.log_axis(ax).set(xlim=(1, 1000)) and ax, [0.5], side)
    box, place = names(ax)["power"], ax.transData.transform((1000**0.5, 1000.0))
    center = np.array([box.x0 + box.x1, box.y0 + box.y1]) / 2
    assert [int(np.sign(round(x / 6))) for x in center - place] == [across, up]


def test_note_and_rule_are_where_they_say(ax):
    """`note` writes a text at the given point, and `rule` draws a horizontal line at the given y with a text above."""
    ax.plot([0, 10], [0, 10])
    plots.rule(plots.note(ax, "here", 5, 5), "limit", y=8)
    box, place = names(ax)["here"], ax.transData.transform((5, 5))
    assert box.contains(*place)
    assert names(ax)["limit"].y0 > ax.transData.transform((0, 8))[1]
    assert ax.lines[-1].get_ydata() == [8, 8]


def test_log_axis_has_minor_ticks(ax):
    """`log_axis` makes both axes logarithmic, with minor ticks at 2, 3, ..., 9 times the powers of ten.

    On an axis that covers 24 powers of ten, upwards or downwards, minor ticks are at powers of ten only.
    """
    ax.plot([1, 1000], [1, 1e24])
    assert plots.log_axis(ax) is ax
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert {20.0, 90.0} <= set(ax.xaxis.get_minorticklocs().round(9))
    for limits in ((1, 1e24), (1e24, 1)):
        ax.set(ylim=limits)
        powers = np.log10(ax.yaxis.get_minorticklocs())
        np.testing.assert_allclose(powers, np.round(powers), atol=1e-9)
        assert len(powers) > 10


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((0.01, 1000), ["0.01", "0.1", "1", "10", "100", "1,000"]),
        ((1, 1e6), ["$\\mathdefault{10^{0}}$", "$\\mathdefault{10^{6}}$"]),
        ((1, 8), ["1", "2", "5"]),
        ((2e-9, 4e-8), [r"$2\cdot 10^{-9}$", r"$5\cdot 10^{-9}$", r"$2\cdot 10^{-8}$"]),
    ],
)
def test_log_axis_is_labelled_with_plain_numbers_where_it_can(ax, limits, labels):
    plots.log_axis(ax, "x").set(xlim=limits)
    ax.figure.draw_without_rendering()
    ticks = [*ax.xaxis.get_major_ticks(), *ax.xaxis.get_minor_ticks()]
    assert set(labels) <= {tick.label1.get_text() for tick in ticks}


def test_intervals_are_two_standard_errors_to_either_side(ax):
    rows = [(1, 10.0, 1.0, "a"), (2, 20.0, 3.0, "a"), (1, 5.0, 0.5, "b")]
    table = np.array(rows, dtype=[("x", int), ("value", float), ("se", float), ("name", "U1")])
    assert plots.intervals(table, ax, "x", by="name", label="method {}") is ax
    first, second = ax.containers
    assert [bars.get_label() for bars in (first, second)] == ["method a", "method b"]
    assert first.lines[0].get_xydata().tolist() == [[1, 10], [2, 20]]
    assert [path.vertices[:, 1].tolist() for path in first.lines[2][0].get_paths()] == [[8, 12], [14, 26]]
    assert second.lines[0].get_color() == plots.COLORS[1]


def test_intervals_do_not_hide_each_other(ax):
    """If two intervals have the same x, `intervals` draws them 1 to 5 pixels apart, so that both are visible."""
    rows = [(1, 10.0, 1.0, "a"), (1, 10.0, 1.0, "b")]
    table = np.array(rows, dtype=[("x", int), ("value", float), ("se", float), ("name", "U1")])
    plots.intervals(table, ax, "x", by="name").figure.draw_without_rendering()
    xs = [bars.lines[0].get_transform().transform((1, 10))[0] for bars in ax.containers]
    assert 1 < xs[1] - xs[0] < 5
    assert all(ax.bbox.x0 < x < ax.bbox.x1 for x in xs)


def test_intervals_may_end_at_given_values(ax):
    table = np.array([(1, 10.0, 9.0, 14.0)], dtype=[("x", int), ("value", float), ("low", float), ("high", float)])
    plots.intervals(table, ax, "x", between=("low", "high"))
    (path,) = ax.containers[0].lines[2][0].get_paths()
    assert path.vertices[:, 1].tolist() == [9, 14]


def test_shapes_lie_about_the_origin(ax):
    plots.box(plots.ellipse(ax, (3, 1), 0), (2, 0.5))
    outline, box = ax.patches
    np.testing.assert_allclose(
        outline.get_extents().transformed(ax.transData.inverted()).get_points(), [[-3, -1], [3, 1]]
    )
    assert (*box.get_xy(), box.get_width(), box.get_height()) == (-2, -0.5, 4, 1)


def test_a_mechanism_has_one_style(ax):
    """If the name of a group is a key of `STYLES`, `curves` draws the group's line in the color that STYLES has for it.

    So a mechanism has the same color in every figure. A group with another name gets a color that no other line has.
    """
    rows = [(x, x, name) for name in ("other", "optimal", "expected_norm", "another") for x in (1.0, 2.0)]
    table = np.array(rows, dtype=[("x", float), ("value", float), ("scaling", "U13")])
    plots.curves(table, ax, "x", by="scaling")
    colors = [line.get_color() for line in ax.lines]
    assert colors[1:3] == [plots.line("optimal")["color"], plots.line("expected_norm")["color"]]
    assert len(set(colors)) == 4
