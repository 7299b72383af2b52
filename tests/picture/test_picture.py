"""Pictures: what is drawn is in them, legends cover nothing, colours survive grey, and files repeat byte for byte."""

import numpy as np
import pytest

from scaling import picture
from scaling.errors import ScalingError
from scaling.fit_report.report import fit_report
from scaling.law import fit, named
from scaling.law.columns import from_columns
from scaling.law.envelope import envelope
from scaling.picture import figures, interactive, palette, static
from scaling.picture.elements import Band, Contours, Line, Marks
from scaling.picture.labels import short
from scaling.published import datablations, gadre2024, porian2024


@pytest.fixture(scope="module")
def chinchilla():
    table = gadre2024.points()
    small = table["N"] < 1e9
    return fit("chinchilla", table.where(small)), table.where(~small)


@pytest.fixture(scope="module")
def pictures(chinchilla):
    found, held_out = chinchilla
    setting = porian2024.STEPS["warmup shortened"]
    sizes = np.geomspace(1e7, 1e10, 6)
    N, D = np.repeat(sizes, 20), np.repeat(sizes, 20) * np.tile(np.geomspace(1, 300, 20), 6)
    columns = {
        "run": [f"{n:.0f}" for n in N],
        "N": N,
        "D": D,
        "C": 6 * N * D,
        "loss": 2 + 480 * N**-0.34 + 2100 * D**-0.37,
    }
    runs = from_columns(columns)
    rng = np.random.default_rng(0)
    draws = {name: found.estimates[name] + 0.02 * rng.standard_normal(200) for name in ("alpha", "beta")}

    predict = figures.predictor(found, 0.9)
    return {
        "N": picture.loss_against(found, "N", predict=predict),
        "D": picture.loss_against(found, "D"),
        "C": picture.loss_against(found, "C", held_out=held_out),
        "three columns": picture.loss_against(datablations.law(datablations.points()), "D"),
        "contours": picture.contours(found, frontier=(np.geomspace(1e7, 1e9, 9), np.geomspace(1e9, 1e11, 9))),
        "residuals": picture.residuals(found),
        "sensitivity": picture.sensitivity(found),
        "region": picture.joint_region(found, draws),
        "extrapolation": picture.extrapolation(found, held_out, predict=predict),
        "valleys": picture.isoflop_valleys(porian2024.law(setting), porian2024.points(setting)),
        "curves": picture.learning_curves(runs, axis="C", envelope=envelope(runs, budgets=60)),
    }


NAMES = (
    "N",
    "D",
    "C",
    "three columns",
    "contours",
    "residuals",
    "sensitivity",
    "region",
    "extrapolation",
    "valleys",
    "curves",
)


def test_a_band_says_which_interval_it_is(pictures):
    """The band of a new run lies around that of the mean, and the bars of held-out runs are those that are counted."""
    assert "Dark bands: 90% interval of the mean; light bands: 90% interval of a new run." in pictures["N"].caption
    (panel,) = pictures["N"].panels
    bands = [part for part in panel.parts if isinstance(part, Band)]
    for run, mean in zip(bands[::2], bands[1::2], strict=True):
        assert (run.shade, mean.shade) == ("light", "dark")
        assert (run.low < mean.low).all()
        assert (run.high > mean.high).all()
    assert "Bars: 90% interval of a new run." in pictures["extrapolation"].caption
    assert "band" not in pictures["D"].caption


def test_the_bars_of_the_test_are_the_printed_intervals(chinchilla):
    found, held_out = chinchilla
    drawn = figures.figures_of_law(found, held_out, level=0.8)["extrapolation"]
    (bars,) = (part for part in drawn.panels[0].parts if isinstance(part, Marks) and part.low is not None)
    told = fit_report(found, level=0.8, held_out=held_out).to_json()["held_out"]["points"]
    for end, values in (("low", bars.low), ("high", bars.high)):
        assert values == pytest.approx([point["interval_run"][end] for point in told])
    assert "Bars: 80% interval of a new run." in drawn.caption


@pytest.mark.parametrize("name", NAMES)
def test_axes_name_units_and_the_caption_counts_the_runs(pictures, name):
    drawn = pictures[name]
    assert "planned." in drawn.caption
    for panel in drawn.panels:
        for axis in (panel.x, panel.y):
            assert axis.label
            assert "(" in axis.label or axis.label in ("alpha", "beta")
        for part in panel.parts:
            values = (
                [part.z] if isinstance(part, Contours) else [part.y] if isinstance(part, Marks | Line) else [part.low]
            )
            assert np.isfinite(np.concatenate([np.ravel(value) for value in values])).all()


DRAWN = [name if name in ("C", "valleys") else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_lies_under_a_legend_or_beyond_the_page(pictures, name):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = static.figure(pictures[name])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    page = figure.bbox
    renderer = canvas.get_renderer()
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is None:
            continue
        box = legend.get_window_extent(renderer)
        assert all(not box.overlaps(other.get_window_extent(renderer)) for other in figure.axes)
        assert box.x1 <= page.x1 + 1
    caption = figure._supxlabel.get_window_extent(renderer)  # type: ignore[attr-defined]
    assert caption.x0 >= 0
    assert caption.x1 <= page.x1


def test_a_long_label_stays_beside_its_panel(pictures):
    from dataclasses import replace

    from matplotlib.backends.backend_agg import FigureCanvasAgg

    panel = pictures["D"].panels[0]
    y = replace(panel.y, label="bits_per_byte (bits per byte of a task's right answers)")
    figure = static.figure(replace(pictures["D"], panels=(replace(panel, y=y),)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    caption = figure._supxlabel.get_window_extent(canvas.get_renderer())  # type: ignore[attr-defined]
    label = figure.axes[0].yaxis.label.get_window_extent(canvas.get_renderer())
    assert label.y0 >= caption.y1
    assert label.y1 <= figure.bbox.y1


@pytest.mark.parametrize("name", NAMES)
def test_plotly_draws_every_part(pictures, name):
    drawn = pictures[name]
    figure = interactive.figure(drawn)
    assert len(figure.data) == sum(len(panel.parts) for panel in drawn.panels)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_album_of_a_law_holds_every_picture_that_applies(chinchilla):
    names = set(figures.figures_of_law(*chinchilla))
    axes = {"loss_against_N", "loss_against_D", "loss_against_C"}
    assert names == axes | {"contours", "residuals", "sensitivity", "joint_region", "extrapolation"}
    table = gadre2024.points()
    curves = table.with_column("run", table["N"].astype(str).astype(object), "one run a size")
    assert "learning_curves" in figures.figures_of_law(fit("power_law_floor_d", curves))


@pytest.mark.parametrize(
    "suffix", [".svg", *(pytest.param(other, marks=pytest.mark.slow) for other in (".pdf", ".png"))]
)
def test_a_printed_picture_repeats_byte_for_byte(pictures, suffix, tmp_path):
    one, other = (
        picture.save(pictures["C"], tmp_path / f"{name}{suffix}")[0].read_bytes() for name in ("one", "other")
    )
    assert len(one) > 5_000
    assert one == other


def test_the_interactive_page_needs_nothing_else(pictures, tmp_path):
    (page,) = (path.read_text() for path in picture.save(pictures["C"], tmp_path / "page.html"))
    assert "Plotly.newPlot" in page
    assert "<script src=" not in page


@pytest.mark.parametrize("alpha", [np.zeros(200), np.linspace(0.2, 0.4, 200)], ids=["at a bound", "as beta"])
def test_draws_on_a_line_have_a_region_too(chinchilla, alpha):
    (panel,) = picture.joint_region(chinchilla[0], {"alpha": alpha, "beta": np.linspace(0.2, 0.4, 200)}).panels
    half, most = (part for part in panel.parts if isinstance(part, Line))
    for ring in (half, most):
        assert np.isfinite(ring.x).all()
        assert np.ptp(ring.x) == pytest.approx(np.ptp(alpha) / np.ptp(most.y) * np.ptp(ring.y), rel=0.6, abs=1e-6)
    assert np.ptp(half.y) < np.ptp(most.y) < 0.4


def test_an_unknown_kind_of_file_is_refused(pictures, tmp_path):
    with pytest.raises(ScalingError, match=r"choose \.pdf, \.svg, \.png or \.html"):
        picture.save(pictures["C"], tmp_path / "picture.gif")


def test_an_axis_the_law_lacks_is_refused(chinchilla):
    with pytest.raises(ScalingError, match="choose from N, D"):
        picture.loss_against(chinchilla[0], "U")


def test_ordered_colours_grow_lighter_evenly():
    """Lightness alone, all that a grey printer keeps, tells ordered colours apart."""

    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = [lightness(colour) for colour in palette.ordered(np.geomspace(1, 1e6, 6))]
    steps = np.diff(shades)
    assert (steps > 0.05).all()
    assert shades[-1] < 0.8, "the palest still shows on white"


@pytest.mark.parametrize(
    ("value", "text"), [(1.23e9, "1.23B"), (4e8, "400M"), (2e12, "2T"), (3.2e19, "3.2e19"), (0.25, "0.25"), (20, "20")]
)
def test_short_numbers(value, text):
    assert short(value) == text


def test_a_mixture_without_a_domain_is_drawn_on_plain_axes(tmp_path):
    rng = np.random.default_rng(0)
    mixture = rng.dirichlet(np.ones(3), 24)
    mixture[:4, 0], mixture[4:7, 1] = 0.0, 0.0
    mixture /= mixture.sum(1, keepdims=True)
    loss = 1.5 + 0.5 * np.exp(mixture @ np.array([-1.0, 0.5, 0.2])) + 1e-3 * rng.standard_normal(24)
    found = fit("mixture_exponential_3", {f"p_{i + 1}": mixture[:, i] for i in range(3)} | {"loss": loss}, starts=24)
    drawn = figures.figures_of_law(found, method="t")
    assert [panel.x.log for panel in drawn["residuals"].panels] == [False, False, True]
    marks = [part for panel in drawn["loss_against_p_1"].panels for part in panel.parts if isinstance(part, Marks)]
    assert all(np.isfinite(part.x).all() for part in marks)
    picture.save(drawn["loss_against_p_1"], tmp_path / "picture.svg")


def test_negative_losses_are_drawn_on_a_plain_axis():
    """On a logarithmic one the figure was empty."""
    N, V, H = (axis.ravel() for axis in np.meshgrid([1e7, 1e8, 1e9], [4e3, 1.6e4, 6e4], [1e9, 1e10, 1e11]))
    columns = {"N": N, "V": V, "H": H}
    truth = np.array([-5.4, 200.0, 30.0, 300.0, 0.35, 0.4, 0.3, 0.1])
    noise = 1e-3 * np.random.default_rng(0).standard_normal(27)
    found = fit("vocabulary", columns | {"loss_u": named("vocabulary").predict(truth, columns) + noise}, starts=24)
    drawn = picture.loss_against(found, "N", predict=figures.predictor(found))
    for panel in drawn.panels:
        assert panel.y.range is not None
        low, high = panel.y.range
        assert not panel.y.log
        assert low < high < 0
        bands = [part for part in panel.parts if isinstance(part, Band)]
        assert bands
        for band in bands:
            assert np.isfinite(band.low).all()
            assert (band.low < band.high).all()
    assert picture.residuals(found).panels[0].y.label == "observed - predicted"


def test_a_held_out_score_of_zero_is_drawn_with_its_difference():
    loss = np.linspace(2.0, 3.5, 12)
    accuracy = 0.25 + 0.6 / (1 + np.exp(4 * (loss - 2.7))) + 0.01 * np.random.default_rng(0).standard_normal(12)
    table = from_columns({"loss": [*loss, 4.0], "accuracy": [*accuracy, 0.0]})
    rest, held = table.hold_out(table["accuracy"] == 0)
    losses, errors = picture.extrapolation(fit("task_sigmoid", rest, starts=24), held, axis="loss").panels
    assert not losses.y.log
    assert errors.y.label == "predicted - observed"
