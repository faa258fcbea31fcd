"""Constants from public rows: the same rows give the same, reports do not move them, and λ_conv is
where the published objective becomes convex.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.main import app
from sottovoce.errors import InvalidParameter
from sottovoce.market import convexity_threshold, narrow_bounds, prior, tune
from sottovoce.market.tuning import compute_quantiles, make_noises

SCHEMA = """\
label = "ill"
[columns.age]
kind = "number"
low = 0
high = 1000
[columns.ill]
kind = "factor"
levels = ["no", "yes"]
"""


def make_rows(n=60):
    x = np.column_stack([np.linspace(-1, 1, n), np.cos(np.arange(n))])
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)


def ask(**options):
    X, y = make_rows()
    public = {"bounds": sv.Bounds(features=(-20, 20)), "sellers": 200, "trade_off": 1.0}
    return tune(X, y, **{**public, "prior": prior.uniform(1e-4, 5e-4), **options})


def test_the_same_public_rows_give_the_same_constants():
    one, other = ask(), ask()
    assert one.trials == other.trials
    assert (one.mu, one.sigma, one.alpha) == (one.best.mu, one.best.sigma, one.best.alpha)
    assert one.best.overall == min(trial.overall for trial in one.trials)


def test_dear_money_buys_less_and_a_budget_is_kept_in_the_rehearsal():
    cheap, dear = (ask(trade_off=gamma).best.payment for gamma in (0.1, 100.0))
    assert dear < cheap
    assert all(trial.payment <= 0.005 for trial in ask(budget=0.005).trials)


def test_quantiles_are_those_of_the_law():
    law = prior.lognormal(2.0, 0.5, 1, 5)
    costs = compute_quantiles(law, 50)
    assert law.cdf(costs) == pytest.approx((np.arange(50) + 0.5) / 50, abs=1e-9)


def test_noises_have_the_law_of_radial_noise():
    """Gamma(d) lengths of scale 2: from fixed bytes, so nothing here is left to chance."""
    noises = make_noises(10)
    assert np.array_equal(noises, make_noises(10))
    assert np.linalg.norm(noises, axis=1).mean() == pytest.approx(20, rel=0.15)


def test_ranges_follow_public_rows_within_what_was_declared():
    X, _ = make_rows()
    low, high = narrow_bounds(sv.Bounds(features=(-20, 20)), X).features
    assert np.all(low < X.mean(axis=0))
    assert np.all(high - low <= 2 * math.sqrt(3) * X.std(axis=0) + 1e-12)
    low, high = narrow_bounds(sv.Bounds(features=(-0.1, 0.1)), X).features
    assert (low.tolist(), high.tolist()) == ([-0.1, -0.1], [0.1, 0.1])
    constant = np.ones((5, 2))
    low, high = narrow_bounds(sv.Bounds(features=(-3, 3)), constant).features
    assert (low.tolist(), high.tolist()) == ([-3, -3], [3, 3])


def test_what_cannot_be_tried_is_refused():
    with pytest.raises(InvalidParameter):
        ask(sigmas=())
    with pytest.raises(InvalidParameter):
        ask(sellers=0)
    with pytest.raises(InvalidParameter):
        narrow_bounds(sv.Bounds(norm=1.0), make_rows()[0])


@pytest.mark.parametrize("base", [math.e, 2.0])
def test_the_published_objective_is_convex_from_the_threshold_on_and_not_below(base):
    """Eigenvalues of the Hessian of one row's part in (z, w), over all margins: the least is
    nowhere negative at λ_conv, and somewhere negative a hundredth below it.
    """

    def find_least(lam):
        margins = np.linspace(-15, 15, 3001)
        s = 1 / (1 + np.exp(margins))
        loss = np.logaddexp(0, -margins)
        hessians = np.empty((len(s), 2, 2))
        hessians[:, 0, 0] = loss
        hessians[:, 0, 1] = hessians[:, 1, 0] = -s
        hessians[:, 1, 1] = s * (1 - s)
        hessians /= math.log(base)
        hessians[:, 1, 1] += lam
        return np.linalg.eigvalsh(hessians)[:, 0].min()

    found = convexity_threshold(base=base)
    assert find_least(found * (1 + 1e-6)) >= -1e-12
    assert find_least(0.99 * found) < 0
    assert convexity_threshold(norm=2.0, base=base) == pytest.approx(4 * found)


def write_tables(folder, costs):
    (folder / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    lines = "".join(f"{20 + i},{'yes' if i > 30 else 'no'}\n" for i in range(60))
    (folder / "public.csv").write_text("age,ill\n" + lines, encoding="utf-8")
    told = "".join(f"s{i},{cost}\n" for i, cost in enumerate(costs))
    (folder / "sellers.csv").write_text("seller,cost\n" + told, encoding="utf-8")


def test_at_the_terminal_reports_move_no_constant(tmp_path):
    chosen = []
    for costs in ([1.0 + i / 50 for i in range(100)], [2.9] * 100):
        write_tables(tmp_path, costs)
        words = [
            "market", tmp_path / "sellers.csv", "--prior", "uniform:1:3", "--trade-off", "0.01",
            "--tune", tmp_path / "public.csv", "--schema", tmp_path / "schema.toml",
            "--tuned-schema", tmp_path / "tuned.toml", "--force",
        ]  # fmt: skip
        made = CliRunner().invoke(app, list(map(str, words)))
        assert made.exit_code == 0, made.output
        chosen.append(made.output.splitlines()[:2])
    assert chosen[0] == chosen[1]
    assert "Chosen on public rows: μ = 1" in chosen[0][0]
    assert sv.Schema.load(tmp_path / "tuned.toml").columns["age"].high < 100


def test_public_rows_need_a_schema_and_no_constants_beside(tmp_path):
    write_tables(tmp_path, [1.5, 2.0])
    words = ["market", tmp_path / "sellers.csv", "--prior", "uniform:1:3", "--trade-off", "0.01"]
    tuned = [*words, "--tune", tmp_path / "public.csv"]
    for more in ([], ["--schema", tmp_path / "schema.toml", "--sigma", "3"]):
        made = CliRunner().invoke(app, list(map(str, [*tuned, *more])))
        assert made.exit_code != 0
        assert "Pass --tune and --schema" in made.output.replace("\n", " ")
    own = [*words, "--sellers"]
    assert CliRunner().invoke(app, list(map(str, own))).exit_code != 0
    same = [*words, "--tune", tmp_path / "sellers.csv", "--schema", tmp_path / "schema.toml"]
    assert CliRunner().invoke(app, list(map(str, same))).exit_code != 0
