# SPDX-License-Identifier: Apache-2.0
"""The losses of models with noise in their objective, stage by stage: the default regression and
logistic regression (docs/theory/per-instance.md, section on realised losses).

A regression runs its recipe again with what its stages released in the place of draws, so that
every stage is asked at the numbers that it was run with; the model at the end must be the one that
was published.

A row that is taken out pulls and bends nothing, is in no window and no cell of residuals, and is no
error of a classifier.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from sottovoce import units as privacy_units
from sottovoce.arrays import Floats, Integers
from sottovoce.audit import laws
from sottovoce.audit.laws import AuditUnits, ObjectiveNoise, ObjectiveStage
from sottovoce.audit.replays import (
    BatchCollector,
    Replayed,
    ReplayMethod,
    StageLoss,
    make_bound,
    replay_adaptive_sums,
    replay_descent,
    replay_statistics,
)
from sottovoce.budgets import Budgets
from sottovoce.data.encoding import (
    Reader,
    Recoding,
    UnitBall,
    UnitBallReader,
    describe_model,
    round_to_grid,
)
from sottovoce.data.feature_ball import BallTerms, FeatureBall
from sottovoce.data.loss_kernels import (
    ClassicHuber,
    LogisticTerms,
    ResidualSizes,
    SoftHuber,
    SoftmaxTerms,
    compute_predictions,
)
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import (
    logistic_mechanism,
    ridge_descent,
    ridge_gaussian,
    ridge_objective,
    ridge_origin,
)
from sottovoce.estimators.curvature import PurchaseWeights
from sottovoce.estimators.logistic import LogisticRegression
from sottovoce.estimators.logistic_mechanism import HALF, NoisyObjective, PersonWeights
from sottovoce.estimators.logistic_tuning import TuningChoice
from sottovoce.estimators.ridge_ball import BallPurchase
from sottovoce.estimators.ridge_errors import StageParameters
from sottovoce.estimators.ridge_objective import (
    NO_SLOPES,
    BoundChoice,
    RadiusChoice,
    SolvedStage,
    StagedFit,
    WindowChoice,
)
from sottovoce.estimators.ridge_recipe import StagePurchase, list_residual_bounds
from sottovoce.noise.source import Grid
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.weights import Weights

#: Coefficients of a recipe that was run again agree with those that were published to this.
AGREED = 1e-9
CELLS_BITS = ridge_objective.CELLS_BITS


def replay_ridge(made: Replayed) -> list[StageLoss]:
    """Return the stages of a regression by the objective or by noisy sums."""
    if made.release.parameters["method"] == "statistics":
        return replay_statistics(made)
    if made.release.parameters["method"] == "adassp":
        return replay_adaptive_sums(made)
    if made.release.parameters["method"] == "descent":
        low, high = made.plan.parameters["label"]
        return replay_descent(
            replace(made, model=ridge_descent.make_descent(made.model, (high - low) / 2))
        )
    value: dict[str, Any] = made.release.value  # type: ignore[assignment]
    if "stages" not in value:  # made by an earlier version
        return [charge_whole_release(made)]
    ridge = made.model
    plan = made.plan
    low, high = plan.parameters["label"]
    scale = ridge_objective.parse_label_scale(ridge.label_scale, (high - low) / 2)
    robust = ridge_objective.is_robust(ridge)
    kind = ReplayedFit
    if not ridge.fit_intercept:
        kind = ReplayedOriginFit
    fit = kind(
        made.rows,
        ridge_origin.limit_budgets(plan),
        ridge_origin.get_loss(ridge),
        plan.grid,
        list(value["stages"]),
        delta=plan.guarantee.delta,
        made=made,
    )
    if ridge.fit_intercept:
        theta, _ = ridge_objective.fit_in_stages(
            fit,
            scale,
            robust,
            ridge_objective.get_interval_share(ridge),
            ball_allowed=ridge_objective.find_ball(made.release) is not None,
        )
    else:
        theta = ridge_origin.complete(ridge_origin.fit_in_stages(fit, scale, robust)[0])
    theta = plan.grid.nearest(theta)
    recoding = Recoding.from_dict(plan.parameters["features"])
    half = (high - low) / 2
    model = describe_model(recoding, (high + low) / 2 + half * theta[0] / 2, half * theta[1:])
    _refuse_another_model(model, value, half)
    return [*fit.stages, fit.charge_slack()]


def _refuse_another_model(model: dict[str, Any], value: dict[str, Any], unit: float) -> None:
    ours, theirs = (
        np.array([one["intercept"], *one["coefficients"].values()]) for one in (model, value)
    )
    if not np.allclose(ours, theirs, rtol=AGREED, atol=AGREED * unit):
        raise InvalidParameter(
            "The stages of this release do not lead to its model.",
            "An audit goes through the stages as the mechanism did.",
            "Take the file as it was made, with the version of sottovoce that made it.",
            parameter="release",
        )


def charge_whole_release(made: Replayed) -> StageLoss:
    """Return what everybody was charged: all that is known where stages were not recorded."""
    charged = privacy_units.to_epsilon(made.plan.guarantee.spent)[made.kinds]
    return StageLoss("the whole release, at its charge", False, make_bound(np.asarray(charged)))


@dataclass(frozen=True, eq=False)
class ReplayedFit(StagedFit):
    """The stages of a regression, each of which gives what it released, and keeps what everybody
    lost to it.
    """

    made: Replayed | None = None
    stages: list[StageLoss] = field(default_factory=list)
    slacks: list[float] = field(default_factory=list)

    def scale(
        self, share: float, quantile: float, candidates: Floats, theta: Floats, reader: Reader
    ) -> float:
        """Gives the half-width that was chosen."""
        weights = self._make_choice_weights(share)
        labels = reader.width == 0
        reach = 1.0
        if not labels:
            reach = 4 * float(candidates[0])
        grid = Grid.cover(-reach, reach, CELLS_BITS)
        choice = WindowChoice.of(weights, quantile, candidates, grid, labels)
        found, which = self._take_choice(candidates)
        cells, heavy, histogram = self._find_cells(weights, grid, theta)
        full = choice.score(histogram)

        def compute(units: AuditUnits) -> Floats:
            some, inverse, few = units.distinguish(cells, self._made.kinds)
            without = score_windows_without(choice, histogram, cells[some], heavy[some], few)
            found = laws.compute_choice_loss(full, without, which, choice.scale)
            return np.asarray(found[inverse])

        self.stages.append(StageLoss("scale", True, compute))
        return found

    def tail(self, purchase: StagePurchase, scale: float, theta: Floats) -> float:
        """Gives the bound that was chosen."""
        weights = self._make_choice_weights(purchase.share)
        bounds = list_residual_bounds(scale)[::-1]
        sizes = ResidualSizes(bounds)
        choice = BoundChoice.of(weights, purchase.quantile, bounds, scale)
        found, which = self._take_choice(bounds)
        cells, heavy, histogram = self._find_cells(weights, sizes, theta)
        full = choice.score(histogram)
        held = np.cumsum(histogram)[:-1]

        def compute(units: AuditUnits) -> Floats:
            some, inverse, few = units.distinguish(cells, self._made.kinds)
            counted = heavy[some][:, None] * (cells[some][:, None] <= np.arange(len(bounds)))
            without = choice.compare(held - few.add(counted), choice.total)
            found = laws.compute_choice_loss(full, without, which, choice.scale)
            return np.asarray(found[inverse])

        self.stages.append(StageLoss("tail", True, compute))
        return found

    def centre(self, share: float) -> Floats:
        """Gives the means that were released; what they cost counts at its charge."""
        bought = self._make_mean_weights()
        self.stages.append(charge_purchase(bought, share, self._made.kinds, "means of features"))
        return np.clip(np.array(self.record.pop(0)["means"], dtype=np.float64), -0.5, 0.5)

    def ball(self, purchase: BallPurchase, middle: Floats) -> FeatureBall:
        """Gives the ball whose radius was chosen."""
        weights = self._make_choice_weights(purchase.radius)
        kernel = self._make_size_sums(weights, middle)
        choice = RadiusChoice.of(weights, purchase, kernel.radii)
        held = np.array(self.rows.engine.fold(kernel), dtype=np.int64)
        found, which = self._take_choice(kernel.radii)
        (cells,) = self._made.fold(
            lambda batch: (kernel.find_cells(kernel.reader.matrix(batch)),), kernel.reader.columns
        )
        heavy = weights.row[self._made.kinds]
        full = choice.score(held)

        def compute(units: AuditUnits) -> Floats:
            some, inverse, few = units.distinguish(cells, self._made.kinds)
            without = choice.compare(
                held - few.add(kernel.count(heavy[some], cells[some])), choice.total
            )
            found = laws.compute_choice_loss(full, without, which, choice.scale)
            return np.asarray(found[inverse])

        self.stages.append(StageLoss("radius", True, compute))
        return replace(kernel.ball, radius=found)

    def buy_equation(self, share: float, solved: SolvedStage, answer: Floats) -> Any:
        """Gives nothing: what intervals need was changed on its way out, and counts at its
        charge.
        """
        p = self.rows.features.width
        kinds = self.budgets.kinds
        H = self._find_regularity(solved)
        row_weights, _ = self._compute_row_weights(solved.share, H, p)
        bought = PurchaseWeights.of(kinds, row_weights, privacy_units.to_epsilon(kinds.epsilon))
        self.stages.append(charge_purchase(bought, share, self._made.kinds))

    def _minimise_perturbed(
        self,
        share: float,
        tau: float,
        choice: StageParameters,
        reader: Reader,
        centre: Floats,
        held: Floats = NO_SLOPES,
        ball: FeatureBall | None = None,
    ) -> Floats:
        p = len(centre) - 1
        H = choice.compute_regularity(p) * (1 + 1e-12)
        ridge = np.concatenate([[choice.intercept_ridge], np.full(p, choice.ridge)])
        row_weights, slack = self._compute_row_weights(share, H, p)
        loss: SoftHuber | ClassicHuber = ClassicHuber(tau)
        if self.loss == "soft":
            loss = SoftHuber(tau, ridge_objective.find_softness(choice, p))
        fitted = np.array(self.record.pop(0)["theta"], dtype=np.float64)
        if ball is None:
            theta = self._complete(np.concatenate([fitted, held]))
            _, pull, bend = loss(self._compute_residuals(theta))
            phi = self._select_columns(p)
        else:
            kernel = self._make_kernel(reader, row_weights, loss, fitted)
            terms = BallTerms(**kernel.__dict__, ball=ball)
            phi, pull, bend = collect_terms(self._made, terms, row_weights, terms.measure_scaled)
        v = row_weights[self._made.kinds]
        in_ball = None
        if ball is not None:
            in_ball = ball.columns
        stage = ObjectiveStage(
            phi,
            (v * pull)[:, None],
            np.sqrt(v * bend)[:, None, None],
            ridge,
            fitted - centre,
            ObjectiveNoise(make_stage_norm(tau, p, choice, in_ball)),
        )
        self.stages.append(StageLoss("fit", True, stage.compute_losses))
        self.slacks.append(slack)
        return fitted

    def _complete(self, theta: Floats) -> Floats:
        """Coefficients of all columns, that of the constant first."""
        return theta

    def _select_columns(self, slopes: int) -> Floats:
        """The columns that were fitted."""
        if slopes == 0:
            return np.full((len(self._made.kinds), 1), 0.5)
        return self.table.design[:, : slopes + 1]

    def charge_slack(self) -> StageLoss:
        """What pays for the solver's last digits, of all fits together."""
        v = self._compute_row_weights(1.0, 0.5, 0)[0][self._made.kinds]
        return StageLoss(
            "last digits of the solver", False, make_bound(np.where(v > 0, sum(self.slacks), 0.0))
        )

    @property
    def _made(self) -> Replayed:
        assert self.made is not None
        return self.made

    def _take_choice(self, candidates: Floats) -> tuple[float, int]:
        found = float(self.record.pop(0)["chosen"])
        return found, int(np.argmin(np.abs(np.asarray(candidates) - found)))

    @cached_property
    def table(self) -> ReplayedTable:
        """Rows and labels, which are read once for all stages."""
        return ReplayedTable.read(self._made)

    def _compute_residuals(self, theta: Floats) -> Floats:
        """Labels less predictions, exactly as the mechanism has them."""
        table = self.table
        if len(theta) == 1:
            return np.asarray(table.labels - theta[0] / 2)
        return np.asarray(table.labels - compute_predictions(table.design, theta))

    def _find_cells(
        self, weights: Weights, grid: Any, theta: Floats
    ) -> tuple[Integers, Integers, NDArray[np.int64]]:
        """The cell of each residual, the weight of its row, and the weight in all cells."""
        residuals = self._compute_residuals(theta)
        cells = np.asarray(grid.integers(residuals)).astype(np.int64)
        heavy = weights.row[self._made.kinds]
        histogram = np.zeros(grid.cells + 1, dtype=np.int64)
        np.add.at(histogram, cells, heavy)
        return cells, heavy, histogram


@dataclass(frozen=True, eq=False)
class ReplayedOriginFit(ReplayedFit):
    """The same for a model through the origin, whose rows have no constant column."""

    def _complete(self, theta: Floats) -> Floats:
        return ridge_origin.complete(theta)

    def _select_columns(self, slopes: int) -> Floats:
        return self.table.design[:, 1:]


@dataclass(frozen=True, eq=False)
class ReplayedTable:
    """What a regression read: rows (½, z) on their grid, and labels in [−1, 1]."""

    design: Floats
    labels: Floats

    @classmethod
    def read(cls, made: Replayed) -> ReplayedTable:
        """Reads them; what is missing is of rows that take no part, and counts as 0."""
        label = made.rows.label
        reader: Any = made.rows.features
        columns = tuple(dict.fromkeys((label.column, *reader.columns)))
        collector = BatchCollector(
            lambda batch: (label.values(batch), round_to_grid(reader.matrix(batch))), columns
        )
        design = np.empty((len(made.kinds), reader.width + 1))
        design[:, 0] = 0.5
        labels = np.empty(len(made.kinds))
        at = 0
        for own, rows in made.rows.engine.fold(collector):
            labels[at : at + len(own)] = own
            design[at : at + len(own), 1:] = rows
            at += len(own)
        for part in (design, labels):
            if not np.isfinite(part.sum()):
                part[~np.isfinite(part)] = 0.0
        return cls(design, labels)


def make_stage_norm(
    tau: float, slopes: int, choice: StageParameters, in_ball: Integers | None
) -> Callable[[Floats], Floats]:
    """Return N such that the noise of a stage has density ∝ exp(−N(b))."""
    if not choice.gaussian:
        return MixedNorm(tau, *choice.norm, in_ball)
    deviations = tau * ridge_gaussian.compute_deviations(slopes, choice)
    return lambda tilts: np.asarray(np.square(tilts / deviations).sum(axis=1) / 2)


@dataclass(frozen=True)
class MixedNorm:
    """N(b) = max(α₁a + (1−α₁)m, α₂a + (1−α₂)m), a = |b₀|/τ, m = max_j |b_j|/τ; a without slopes.

    Slopes of columns in a ball count together in m, by their length.
    """

    tau: float
    a1: float
    a2: float
    in_ball: Integers | None = None

    def __call__(self, tilts: Floats) -> Floats:
        """Returns N of each row."""
        sizes = np.abs(tilts) / self.tau
        constant = sizes[:, 0]
        if sizes.shape[1] == 1:
            return np.asarray(constant)
        slopes = sizes[:, 1:]
        if self.in_ball is not None:
            length = np.linalg.norm(slopes[:, self.in_ball], axis=1)
            slopes = np.column_stack([np.delete(slopes, self.in_ball, axis=1), length])
        most = slopes.max(axis=1)
        return np.asarray(
            np.maximum(
                self.a1 * constant + (1 - self.a1) * most, self.a2 * constant + (1 - self.a2) * most
            )
        )


def collect_terms(
    made: Replayed, terms: Any, row_weights: Floats, measure: Any = None
) -> tuple[Floats, ...]:
    """Returns rows on their grid, pulls and bends; zeros for rows that take no part."""
    measure = measure or terms.measure
    v = row_weights[made.kinds]
    everybody = bool((v > 0).all())

    def collect(batch: Any) -> tuple[Floats, ...]:
        participating = terms.row_weights[terms.owner.kinds(batch)] > 0
        found = measure(batch, participating)
        if everybody:
            return tuple(found)
        spread = []
        for one in found:
            whole = np.zeros((len(participating), *one.shape[1:]))
            whole[participating] = one
            spread.append(whole)
        return tuple(spread)

    return tuple(made.fold(collect, terms.columns))


def charge_purchase(
    bought: PurchaseWeights, share: float, kinds: Integers, what: str = "what intervals need"
) -> StageLoss:
    """Return what was bought beside a model, at its charge."""
    weights = bought.weights
    by_row = weights.row / weights.total * (share / bought.ratio)
    return StageLoss(
        f"{what}, at its charge",
        False,
        lambda units: units.add(np.asarray(by_row[kinds], dtype=np.float64)),
    )


def score_windows_without(
    choice: WindowChoice,
    histogram: NDArray[np.int64],
    cells: Integers,
    weight: Integers,
    units: AuditUnits,
) -> NDArray[np.int64]:
    """Returns the scores of windows without each unit, a line each."""
    last = len(histogram) - 1
    ends = (cells == 0) | (cells == last)
    inside = np.full(units.count, choice.total, dtype=np.int64)
    inner = histogram.copy()
    counted = weight
    if choice.labels:
        inside -= int(histogram[0] + histogram[-1])
        inside += units.add(np.where(ends, weight, 0).astype(np.float64)).astype(np.int64)
        inner[[0, -1]] = 0
        counted = np.where(ends, 0, weight)
    reached = np.concatenate([[0], np.cumsum(inner)])
    held = np.empty((units.count, len(choice.cells)), dtype=np.int64)
    for place, wide in enumerate(choice.cells):
        width = min(wide, last + 1)
        sums = reached[width:] - reached[:-width]
        if units.single:
            held[:, place] = _find_fullest_without_row(sums, width, cells, counted)
        else:
            held[:, place] = _find_fullest_without_several(sums, width, cells, counted, units)
    return choice.compare(held, inside)


def _find_fullest_without_row(
    sums: NDArray[np.int64], width: int, cells: Integers, weight: Integers
) -> NDArray[np.int64]:
    """The fullest window is one that holds the row, less its weight, or one that does not."""
    last = len(sums) - 1
    lowest = np.iinfo(np.int64).min // 2
    padded = np.concatenate([np.full(width - 1, lowest), sums, np.full(width - 1, lowest)])
    # At cell y windows that begin at y − width + 1 … y hold it.
    holding = maximum_filter1d(padded, width, mode="constant", cval=lowest, origin=0)
    centre = np.minimum(cells, last + width - 1) + (width - 1) // 2 + (width % 2 == 0)
    holds = holding[np.minimum(centre, len(holding) - 1)]
    before = np.concatenate([[lowest], np.maximum.accumulate(sums)])
    after = np.concatenate([np.maximum.accumulate(sums[::-1])[::-1], [lowest]])
    apart = np.maximum(
        before[np.clip(cells - width + 1, 0, last + 1)], after[np.minimum(cells + 1, last + 1)]
    )
    return np.asarray(np.maximum(holds - weight, apart))


def _find_fullest_without_several(
    sums: NDArray[np.int64], width: int, cells: Integers, weight: Integers, units: AuditUnits
) -> NDArray[np.int64]:
    found = np.empty(units.count, dtype=np.int64)
    for unit in range(units.count):
        places = units.order[units.first[unit] : units.first[unit] + units.sizes[unit]]
        held = np.zeros(len(sums) + 1, dtype=np.int64)
        np.add.at(held, np.maximum(cells[places] - width + 1, 0), weight[places])
        np.subtract.at(held, np.minimum(cells[places] + 1, len(sums)), weight[places])
        found[unit] = (sums - np.cumsum(held)[:-1]).max()
    return found


class ReleasedClassifier(LogisticRegression):
    """A classifier whose numbers are those of its release: public rows that helped to choose them
    are not needed to use them again.
    """

    has_released_numbers = True

    @classmethod
    def of(cls, release: Release, model: Any) -> Any:
        """The same estimator with the numbers of the release."""
        if "rows" not in release.parameters:  # made by an earlier version
            return model
        again = copy.copy(model)
        again.__class__ = cls
        again.release_ = release
        again.public = None
        again.classes = release.parameters["classes"]
        return again

    def _choose_tuning(self, person_weights: PersonWeights, recoding: Recoding) -> TuningChoice:
        given = self.release_.parameters
        return TuningChoice(
            self._read_mechanism(given, recoding),
            given["alpha"],
            given["stretch"],
            given["threshold"],
        )

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        plan = super()._make_plan(budgets, recoding)
        return replace(plan, parameters=self.release_.parameters)


def replay_logistic(made: Replayed) -> list[StageLoss]:
    """Return the stages of a classifier: each fit, each intercept that was bought, and what
    intervals need.
    """
    given = made.plan.parameters
    value: dict[str, Any] = made.release.value  # type: ignore[assignment]
    models = value["models"]
    if "steps" in given:
        return replay_descent(replace(made, model=made.model._make_descent()))
    if not all("fitted" in model for model in models.values()):  # made by an earlier version
        return [charge_whole_release(made)]
    recoding = Recoding.from_dict(given["features"])
    mechanism: NoisyObjective = made.model._read_mechanism(given, recoding)
    people: PersonWeights = made.model._make_weights(made.plan.budgets, recoding)
    problems = logistic_mechanism.Problems(made.rows, mechanism, people, made.plan.noise["rate"])
    fits = {name: np.array(model["fitted"]) for name, model in models.items()}
    names = [str(name) for name in given["classes"]]
    stages = []
    if mechanism.several:
        theta = np.concatenate([fits[name] for name in names])
        stages.append(_replay_softmax(made, problems, theta))
    else:
        for name, theta in fits.items():
            stages.append(_replay_two_classes(made, problems, theta, names.index(name)))
    if given["threshold"] > 0:
        stages += [
            _replay_threshold(made, problems, fits[name], model, recoding)
            for name, model in models.items()
        ]
    if made.plan.bought is not None:
        stages.append(charge_purchase(people.purchase_weights, made.plan.bought.share, made.kinds))
    fitted = sum(stage.name == "fit" for stage in stages)
    slack = np.where(people.row[made.kinds] > 0, people.slack * fitted, 0.0)
    stages.append(StageLoss("last digits of the solver", False, make_bound(slack)))
    return stages


def make_tilt_norm(mechanism: NoisyObjective, rate: float) -> ObjectiveNoise:
    """Return N such that the density of b is ∝ exp(−N(b)), for b function by function."""
    unit = rate / (2 * mechanism.doubt)
    width = mechanism.body.width
    if isinstance(mechanism.body, UnitBall):
        return ObjectiveNoise(lambda tilts: unit * np.sqrt(np.square(tilts).sum(axis=1)))
    alpha = mechanism.share

    def measure(tilts: Floats) -> Floats:
        columns = np.sqrt(
            np.square(tilts.reshape(len(tilts), mechanism.functions, width)).sum(axis=1)
        )
        total = np.zeros(len(tilts))
        if mechanism.body.intercept:
            total = alpha * columns[:, 0]
            columns = columns[:, 1:]
        if columns.shape[1]:
            total = total + (1 - alpha) * columns.max(axis=1)
        return np.asarray(unit / HALF * total)

    return ObjectiveNoise(measure)


def _replay_two_classes(
    made: Replayed, problems: logistic_mechanism.Problems, theta: Floats, positive: int
) -> StageLoss:
    terms = replace(problems._make_kernel(positive), theta=theta)
    assert isinstance(terms, LogisticTerms)
    row_weights = problems.person_weights.row
    rows, pull, bend = collect_terms(made, terms, row_weights)
    a = row_weights[made.kinds]
    moved = None
    if problems.mechanism.accountant == logistic_mechanism.LABELS:
        # A label that is taken out counts as so much of each class.
        moved = (a * ((pull > 0) - 1 / len(made.plan.parameters["classes"])))[:, None]
    stage = ObjectiveStage(
        rows,
        (a * pull)[:, None],
        np.sqrt(a * bend)[:, None, None],
        problems.mechanism.ridge,
        theta,
        make_tilt_norm(problems.mechanism, problems.rate),
        moved,
    )
    return StageLoss("fit", True, stage.compute_losses)


def _replay_softmax(
    made: Replayed, problems: logistic_mechanism.Problems, theta: Floats
) -> StageLoss:
    mechanism = problems.mechanism
    terms = replace(problems._make_kernel(0), theta=theta)
    assert isinstance(terms, SoftmaxTerms)
    row_weights = problems.person_weights.row
    rows, codes = made.fold(
        lambda batch: (terms.reader.matrix(batch), terms.label.codes(batch)), terms.columns
    )
    a = row_weights[made.kinds]
    rows = np.where(a[:, None] > 0, rows, 0.0)
    codes = np.where(a > 0, codes, 0).astype(np.int64)
    margins = rows @ theta.reshape(mechanism.functions, -1).T
    chances = np.exp(margins - margins.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    pulls = -chances
    pulls[np.arange(len(codes)), codes] += 1
    root = np.sqrt(chances)
    # diag(√P) − P√Pᵀ, whose product with its own transpose is diag(P) − PPᵀ
    bends = root[:, :, None] * np.eye(mechanism.functions) - chances[:, :, None] * root[:, None, :]
    stage = ObjectiveStage(
        rows,
        a[:, None] * pulls,
        np.sqrt(a)[:, None, None] * bends,
        np.tile(mechanism.ridge, mechanism.functions),
        theta,
        make_tilt_norm(mechanism, problems.rate),
    )
    return StageLoss("fit", True, stage.compute_losses)


def _replay_threshold(
    made: Replayed,
    problems: logistic_mechanism.Problems,
    theta: Floats,
    model: dict[str, Any],
    recoding: Recoding,
) -> StageLoss:
    given = made.plan.parameters
    intercept, slopes = problems.mechanism.body.to_original_units(theta * given["stretch"])
    intercepts, own = logistic_mechanism.list_intercepts(intercept, slopes)
    published, _ = recoding.to_encoded_units(
        float(model["intercept"]), np.array(list(model["coefficients"].values()))
    )
    which = int(np.argmin(np.abs(intercepts - published)))
    people = problems.person_weights
    rows = made.rows
    reader: Any = rows.features
    if isinstance(reader, UnitBallReader):
        reader = reader.inner
    label = rows.label
    columns = tuple(dict.fromkeys((label.column, *reader.columns)))
    first, positive = made.fold(
        lambda batch: (
            np.searchsorted(
                intercepts,
                -compute_predictions(round_to_grid(reader.matrix(batch)), slopes),
                side="right",
            ),
            label.codes(batch) == 1,
        ),
        columns,
    )
    weight = people.weights.row[made.kinds]
    first = np.where(weight > 0, first, 0).astype(np.int64)
    positive = np.where(weight > 0, positive, False).astype(np.int64)
    scale = people.find_threshold_scale(given["threshold"])
    penalty = int(np.ceil(logistic_mechanism.THRESHOLD_PENALTY * scale))
    held_back = np.where(np.arange(len(intercepts)) == own, 0, penalty)
    place = np.arange(len(intercepts))

    def count(codes: Integers, counted: AuditUnits) -> list[Any]:
        """Weight wrongly said to be of the second class, and wrongly not, for each intercept."""
        said = place >= first[codes][:, None]
        heavy = weight[codes][:, None]
        second = positive[codes][:, None] == 1
        return [
            counted.add(np.where(said & ~second, heavy, 0)),
            counted.add(np.where(~said & second, heavy, 0)),
        ]

    size = len(intercepts) + 1
    table = np.zeros((2, size), dtype=np.int64)
    np.add.at(table, (positive, first), weight)
    wrongly = np.cumsum(table[0])[:-1]
    missed = table[1].sum() - np.cumsum(table[1])[:-1]
    full = np.maximum(wrongly, missed) + held_back

    def compute(units: AuditUnits) -> Floats:
        some, inverse, few = units.distinguish(first, positive, made.kinds)
        said, not_said = count(some, few)
        without = np.maximum(wrongly - said, missed - not_said) + held_back
        found = laws.compute_choice_loss(full, without, which, scale)
        return np.asarray(found[inverse])

    return StageLoss("intercept", True, compute)


RIDGE = ReplayMethod(replay_ridge)
LOGISTIC = ReplayMethod(replay_logistic, prepare=ReleasedClassifier.of)
