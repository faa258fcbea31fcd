"""Leave-one-out, add-one and replace-one numbers against refitting."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce import errors
from sottovoce.audit import leverages

METRICS = ("identity", "hessian", "gram")


def table(n=40, d=4, seed=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.2, 2, d)
    return X, X @ rng.normal(size=d) + rng.normal(size=n), rng


def refitted(X, y, ridge):
    return np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T @ y)


def norm_in(vector, metric):
    return float(np.sqrt(vector @ metric @ vector))


@pytest.mark.parametrize("ridge", [0.0, 0.3, 50.0])
def test_leaving_out_agrees_with_refitting(ridge):
    X, y, _ = table()
    whole = leverages.fit_ridge(X, y, ridge)
    records = leverages.compute_leverages(X, y, ridge)
    for i in range(len(y)):
        rest = np.delete(X, i, 0)
        theta = refitted(rest, np.delete(y, i), ridge)
        hessian = rest.T @ rest + ridge * np.eye(X.shape[1])
        assert records.leverage[i] == pytest.approx(X[i] @ np.linalg.solve(hessian, X[i]), rel=1e-9)
        assert records.residual[i] == pytest.approx(y[i] - X[i] @ theta, rel=1e-9)
        for kind in METRICS:
            metric = whole.metric(kind)
            moved = whole.moved_by_leaving(X[i : i + 1], y[i : i + 1], metric)[0]
            assert moved == pytest.approx(norm_in(whole.theta - theta, metric), rel=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 0.3, 50.0])
def test_adding_agrees_with_refitting(ridge):
    X, y, rng = table()
    fit = leverages.fit_ridge(X, y, ridge)
    new = rng.normal(size=(10, X.shape[1]))
    labels = rng.normal(size=10)
    records = fit.added(new, labels)
    for i in range(10):
        larger = leverages.fit_ridge(np.vstack([X, new[i]]), np.append(y, labels[i]), ridge)
        inside = larger.left_out(new[i : i + 1], labels[i : i + 1])
        for ours, theirs in zip(records, inside, strict=True):
            assert ours[i] == pytest.approx(theirs[0], rel=1e-8)
        for kind in METRICS:
            metric = fit.metric(kind)
            moved = fit.moved_by_adding(new[i : i + 1], labels[i : i + 1], metric)[0]
            assert moved == pytest.approx(norm_in(larger.theta - fit.theta, metric), rel=1e-8)


def test_replacing_agrees_with_refitting():
    X, y, rng = table()
    fit = leverages.fit_ridge(X, y, 0.7)
    new = rng.normal(size=X.shape)
    labels = rng.normal(size=len(y))
    moved = fit.moved_by_replacing((X, y), (new, labels))
    for i in range(len(y)):
        changed = X.copy()
        told = y.copy()
        changed[i] = new[i]
        told[i] = labels[i]
        assert moved[i] == pytest.approx(refitted(changed, told, 0.7) - fit.theta, abs=1e-12)
    assert np.abs(fit.moved_by_replacing((X, y), (X, y))).max() < 1e-12


def test_weights_scale_rows_by_their_roots():
    X, y, rng = table()
    weights = rng.uniform(0, 3, len(y))
    scaled = np.sqrt(weights)[:, None] * X, np.sqrt(weights) * y
    ours = leverages.compute_leverages(X, y, 0.4, weights)
    theirs = leverages.compute_leverages(*scaled, 0.4)
    for one, two in zip(ours, theirs, strict=True):
        assert one == pytest.approx(two, rel=1e-9, abs=1e-12)
    fit = leverages.fit_ridge(X, y, 0.4, weights)
    identity = fit.metric("identity")
    assert fit.moved_by_leaving(X, y, identity, weights) == pytest.approx(
        fit.moved_by_leaving(*scaled, identity)
    )


def test_chunks_change_nothing(monkeypatch):
    X, y, _ = table(1000)
    before = leverages.compute_leverages(X, y, 1.0)
    monkeypatch.setattr(leverages, "CHUNK", 7)
    for one, two in zip(before, leverages.compute_leverages(X, y, 1.0), strict=True):
        assert one == pytest.approx(two, rel=1e-10)


def test_a_record_that_the_fit_needs_has_no_finite_leverage():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    y = np.array([1.0, 2.0, 3.0])
    assert leverages.compute_leverages(X, y, 0.0).leverage[2] == np.inf
    assert np.all(np.isfinite(leverages.compute_leverages(X, y, 0.1).leverage))


def test_a_singular_fit_is_refused():
    with pytest.raises(errors.InvalidParameter, match="singular"):
        leverages.fit_ridge(np.ones((3, 2)), np.ones(3), 0.0)


def test_the_identities_can_fail():
    """Errors in place of residuals, or h in place of μ, are far off on ten rows."""
    X, y, _ = table(10)
    records = leverages.compute_leverages(X, y, 0.1)
    i = int(records.share.argmax())  # at least the mean, about 4/10
    theta = refitted(np.delete(X, i, 0), np.delete(y, i), 0.1)
    assert abs(records.error[i] / (y[i] - X[i] @ theta) - 1) > 0.1
    assert abs(records.share[i] / records.leverage[i] - 1) > 0.1
