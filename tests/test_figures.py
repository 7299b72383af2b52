"""Figures of laws: what is drawn is in them, legends cover nothing, colours survive grey, and files repeat."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import FillBetweenPolyCollection, LineCollection

import scaling
from scaling.laws.figures import learning_curves, loss_against, ordered
from scaling.laws.points import load_points
from tests.laws.conftest import LAW, THETA, runs


def bands(axes):
    """The lower and the upper ends of each band."""
    drawn = [part for part in axes.collections if isinstance(part, FillBetweenPolyCollection)]
    corners = [np.asarray(part.get_paths()[0].vertices)[:, 1] for part in drawn]
    count = [(len(ends) - 3) // 2 for ends in corners]  # the ends along one side, between corners that repeat
    return [(ends[1 : n + 1], ends[n + 2 : -1][::-1]) for ends, n in zip(corners, count, strict=True)]


def numbers(axes):
    """All that is drawn in a panel."""
    points = [part.get_offsets() for part in axes.collections] + [part.get_xydata() for part in axes.lines]
    return np.concatenate(points)


@pytest.fixture(scope="module")
def fit():
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e7, 4e9, 4), np.geomspace(1e9, 1e11, 5)))
    table = {"run": [f"run-{row}" for row in range(20)], "C": 6 * N * D, **runs(N, D, 0.003)}
    return scaling.fit(table, hold_out="N>=2e9", level=0.8, intervals="t", starts=64, objective="log_squared")


@pytest.fixture(scope="module")
def pictures(fit):
    N, tokens = np.repeat(np.geomspace(1e7, 1e10, 6), 12), np.tile(np.geomspace(1, 300, 12), 6)
    D = N * tokens
    curves = {"run": [f"{size:.0f}" for size in N], "C": 6 * N * D, **runs(N, D)}
    C, tilt = np.repeat(np.geomspace(1e18, 1e21, 5), 9), np.tile(np.geomspace(0.1, 10, 9), 5)
    size = tilt * (C / 600) ** 0.5
    isoflop = {"C": C, **runs(size, C / (6 * size))}
    U = np.tile([1e9, 3e9, 1e10, 3e10], 15)
    N, D = np.repeat(np.geomspace(1e7, 1e9, 5), 12), U * np.tile(np.repeat([1, 4, 16], 4), 5)
    repeated, fixed = {"U": U, **runs(N, D, 0.01)}, dict(zip(LAW.parameter_names, THETA))
    three = scaling.laws.fit("data_constrained", repeated, fixed=fixed, starts=24)
    one_run = scaling.fit(fit.points.columns, hold_out="run=run-9", intervals="none", starts=24)
    loss = np.geomspace(2, 4, 12)
    losses = scaling.fit({"loss_a": loss, "loss_b": 0.5 + loss**1.1}, law="loss_to_loss", intervals="none", starts=24)
    return {
        "one_held_out": one_run.plot("extrapolation"),
        "long_label": losses.plot("residuals"),
        **fit.pictures,
        **scaling.fit(isoflop, law="isoflop_parabola").pictures,
        **scaling.fit(curves, law="envelope").pictures,
        "learning_curves": learning_curves(load_points(curves)),
        "three_columns": loss_against(three, "D", method=None),
    }


def test_every_law_has_its_figures_with_units_and_nothing_under_a_legend_or_beyond_the_page(pictures, tmp_path):
    more = {"isoflop_N", "isoflop_D", "envelope", "learning_curves", "three_columns", "one_held_out", "long_label"}
    of_points = {"contours", "residuals", "extrapolation", *(f"loss_against_{column}" for column in "NDC")}
    assert set(pictures) == of_points | more
    for name, picture in pictures.items():
        assert re.search(r"\d points?[.,]", picture.caption), name
        for axes in picture.panels:
            assert len(numbers(axes)) > 1, name
            assert np.isfinite(numbers(axes)).all(), name
            assert all("(" in label for label in (axes.get_xlabel(), axes.get_ylabel())), name
        with rc_context({"figure.autolayout": True}):
            picture.save(tmp_path / "picture.svg")  # lays it out, in its own way
        figure = picture.figure
        renderer = FigureCanvasAgg(figure).get_renderer()
        caption = max(figure.texts, key=lambda text: len(text.get_text())).get_window_extent(renderer)
        assert 0 <= caption.x0 < caption.x1 <= figure.bbox.x1, name
        label = figure.axes[0].yaxis.label.get_window_extent(renderer)
        assert caption.y1 <= label.y0 < label.y1 <= figure.bbox.y1, name
        for axes in figure.axes:
            label, (left, right) = axes.xaxis.label.get_window_extent(renderer), axes.get_xlim()
            assert 0 <= label.x0 < label.x1 <= figure.bbox.x1, name
            ticks = [text for text in axes.get_xticklabels() if left <= text.get_position()[0] <= right]
            boxes = [text.get_window_extent(renderer) for text in ticks]
            assert len(boxes) > 1, name
            assert all(one.x1 < other.x0 for one, other in pairwise(boxes)), name
        for legend in filter(None, (axes.get_legend() for axes in figure.axes)):
            box = legend.get_window_extent(renderer)
            assert not any(box.overlaps(axes.get_window_extent(renderer)) for axes in figure.axes), name
            assert box.x1 <= figure.bbox.x1 + 1, name
    picture = pictures["loss_against_C"]
    for suffix in (".svg", ".pdf", ".png"):
        one, other = (picture.save(tmp_path / name / f"picture{suffix}")[0].read_bytes() for name in ("one", "other"))
        assert len(one) > 5_000
        assert one == other, "a file repeats byte for byte"


def test_bands_and_bars_are_the_intervals_that_the_caption_states(fit, pictures):
    picture = pictures["loss_against_N"]
    assert "Dark bands: 80% interval of the mean; light bands: 80% interval of a new run." in picture.caption
    run, mean, *_ = bands(picture.panels[0])
    assert ((run[0] <= mean[0]) & (mean[0] < mean[1]) & (mean[1] <= run[1])).all()
    assert (run[0] < mean[0]).any()
    picture = pictures["extrapolation"]
    (bars,) = (part for part in picture.panels[0].collections if isinstance(part, LineCollection))
    low, high = np.array([ends[:, 1] for ends in bars.get_segments()]).T
    assert low == pytest.approx(fit.held_out["run_low"])
    assert high == pytest.approx(fit.held_out["run_high"])
    assert "Bars: 80% interval of a new run." in picture.caption
    (axes,) = scaling.fit(fit.points, intervals="none", starts=24).plot("loss_against_C").panels
    assert axes.lines
    assert not bands(axes)


def test_compute_is_drawn_by_size_whatever_columns_a_law_reads_first():
    law = scaling.laws.named("learning_rate_batch")
    lr, B, N, D = (axis.ravel() for axis in np.meshgrid([5e-4, 2e-3], [1e5, 1e6], [1e7, 1e8, 1e9], [1e9, 1e10]))
    table = {"lr": lr, "B": B, "N": N, "D": D}
    theta = [1.7, 400.0, 2000.0, 0.34, 0.37, 1e-3, 0.0, 0.0, 3e5, 0.0, 0.0, 0.01, 0.02, *[0.0] * 5]
    fixed = dict(zip(law.parameter_names[1:], theta[1:], strict=True))
    fit = scaling.laws.fit(law, {**table, "loss": law.predict(np.array(theta), table)}, fixed=fixed, starts=24)
    named = [axes.get_legend_handles_labels()[1] for axes in loss_against(fit, "C", method=None).panels]
    assert named == [["N = 10M", "N = 100M", "N = 1B"]] * 3


def test_ordered_colours_grow_lighter_evenly():
    """Lightness, all that a grey printer keeps, distinguishes ordered colours."""
    rgb = [[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in ordered(np.geomspace(1, 1e6, 6))]
    lightness = np.array(rgb) @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0.05).all()
    assert lightness[-1] < 0.8, "the palest still shows on white"


def test_a_column_that_the_law_does_not_read_may_have_gaps_and_numbers_may_be_words():
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e7, 4e9, 4), np.geomspace(1e9, 1e11, 5)))
    gaps, words = np.where(N > 3e9, np.nan, N), [f"{tokens / 1e6:.0f}M" for tokens in D]
    table = {"run": [f"run-{row % 4}" for row in range(20)], "step": np.arange(20), "C": gaps, "seen": words}
    table["loss"] = runs(N, D, 0.003)["loss"]
    for columns, law in (({"N": N, "D": D}, "chinchilla"), ({"N": gaps}, "L(seen) = E + A*seen^-a")):
        fit = scaling.fit({**table, **columns}, law=law, hold_out="loss<2.5", intervals="none", starts=24)
        assert ("learning_curves" in fit.pictures) == ("D" in columns)


def test_what_has_no_logarithm_is_drawn_on_plain_axes():
    """A mixture without a domain, losses of vocabularies, which may be negative, and a score of zero."""
    rng = np.random.default_rng(0)
    few: dict[str, Any] = {"starts": 24, "intervals": "t"}
    p = rng.dirichlet(np.ones(3), 24)
    p[:4, 0], p[4:7, 1] = 0.0, 0.0
    p /= p.sum(1, keepdims=True)
    loss = 1.5 + 0.5 * np.exp(p @ np.array([-1.0, 0.5, 0.2])) + 1e-3 * rng.standard_normal(24)
    mixtures = {f"p_{n}": p[:, n - 1] for n in (1, 2, 3)} | {"loss": loss}
    fit = scaling.fit(mixtures, law="mixture_exponential_3", **few)
    assert [axes.get_xscale() for axes in fit.plot("residuals").panels] == ["linear", "linear", "log"]
    assert np.isfinite(fit.predict(p_1=0.5, p_2=0.5, p_3=0.0)["run_high"]).all()
    N, V, H = (axis.ravel() for axis in np.meshgrid([1e7, 1e8, 1e9], [4e3, 1.6e4, 6e4], [1e9, 1e10, 1e11]))
    theta = np.array([-5.4, 200.0, 30.0, 300.0, 0.35, 0.4, 0.3, 0.1])
    loss = scaling.laws.named("vocabulary").predict(theta, {"N": N, "V": V, "H": H}) + 1e-3 * rng.standard_normal(27)
    fit = scaling.fit({"N": N, "V": V, "H": H, "loss_u": loss}, law="vocabulary", **few)
    for axes in fit.plot("loss_u_against_N").panels:
        assert axes.get_yscale() == "linear"
        assert axes.get_ylim()[0] < axes.get_ylim()[1] < 0
        assert all((low < high).all() for low, high in bands(axes))
    loss = np.linspace(2.0, 3.5, 12)
    accuracy = 0.25 + 0.6 / (1 + np.exp(4 * (loss - 2.7))) + 0.01 * rng.standard_normal(12)
    table = {"loss": [*loss, 4.0], "accuracy": [*accuracy, 0.0]}
    losses, errors = scaling.fit(table, law="task_sigmoid", hold_out="accuracy=0", **few).plot("extrapolation").panels
    assert losses.get_yscale() == "linear"
    assert errors.get_ylabel() == "predicted - observed"
