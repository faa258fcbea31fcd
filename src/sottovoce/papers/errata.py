# SPDX-License-Identifier: Apache-2.0
"""Errata of the papers, as a page: ``python -m sottovoce.papers.errata > docs/theory/errata.md``;
and as tables.

Every number in its tables is computed, and a test holds docs/theory/errata.md against what this
file makes. For `sottovoce reproduce` the same tables are an experiment of each paper, such as
instance/errata.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from string import ascii_lowercase
from types import ModuleType

from sottovoce.papers import instance_claims, other_claims
from sottovoce.papers.instance_claims import Erratum, describe_cause
from sottovoce.papers.registry import Task
from sottovoce.papers.results import Outcome, Reason, ResultColumn, ResultTable

#: Significant digits of a number, and of a δ that only shows how far off an ε is.
DIGITS = 5
ROUGHLY = 3
#: A smaller δ is not worth its digits.
TINY = 1e-99

#: A line «name» stands for the table that the function of this name in instance_claims.py or
#: other_claims.py makes.
PAGE = """\
# What the papers got wrong

*Where a published formula, table or claim is wrong, by how much, and what is true.* Each line has what is printed,
what is true, and the command that shows it. Code: `src/sottovoce/papers/instance_printed.py` (formulas as they are
printed, under names that say so), `src/sottovoce/papers/instance_exact.py` (what is true),
`src/sottovoce/papers/instance_claims.py` and `src/sottovoce/papers/other_claims.py` (the
tables). This page is made by `python -m sottovoce.papers.errata`; how to run a command is in the
[guide](../guide/reproduce.md).

## Per-instance Differential Privacy

Numbers of equations are the paper's own. Neighbours differ by one record z = (x, y), δ = 10⁻⁶ unless a line says
something else, and γ and λ are the temperature and the ridge of the posterior, with density ∝ exp(−γ/2·(‖y − Xθ‖² +
λ‖θ‖²)). Where the printed ε or δ is the smaller one, somebody was promised more than they got; "true δ" is the δ that
holds at the printed ε.

### Gaussian noise

The noise has standard deviation 1/√γ in the norm of A, so a record that moves the estimate by Δ is √γ·Δ standard
deviations away. Lemma 4 prints γ for √γ and drops the 2 of √(2·log(1.25/δ)); (3) has no γ at all. Even the classical
formula, which they abbreviate, holds up to ε = 1 only. γ = 1/16, or σ = 4, is the setting of the paper's Figure 1.

«gaussian_noise»

### One posterior sample

(7) and (8) are printed as equal. They belong to the loss under two different laws, (7) without and (8) with the
record, and pDP needs both. The law without the record is always the worse one. The tail behind (7) and (8) is too
light (see [steps of proofs](#steps-of-proofs)). In (8) the two terms between the bars must be added: for μ' = ½, γ =
1, e² = log 2 they cancel to 0. Remark 15 simplifies (7) with the residual of the wrong fit.

«theorem_14»

### Everybody, and all data sets

The last term of (9) and (10) must not contain γ: the two covariances differ by a factor that no temperature changes.
So ε does not vanish with γ, and what is printed is too small without limit. (10) is a claim of differential privacy;
one data set refutes it.

«proposition_16»

### Steps of proofs

A tail under p alone does not bound the loss under p' (Lemma 24), and a normal tail is e^(−z²/2), not e^(−z²)
(Theorem 14). The sign in Lemma 13 does no harm, because only norms are used.

«steps_of_proofs»

### AdaOPS, step by step

- λ_n = min{0, …} is never positive: Algorithm 1 does not regularise, it can only take away. The proof reads as if max
  were there. The other lines are for max.
- The noise on λ_min is too small for (ε/2, δ/2) from about ε = ½ on.
- The margin in λ_n is √log(4/δ) standard deviations. The failure that it leaves is a third δ/2 which nobody counts.
- (15) loses the 1 of 1 + ‖θ̂‖; 1 + √(κd) ≤ √(2κd) needs κd ≥ 5.83.
- In the last display a factor √(1/8) = 0.354 became 1/4, and Theorem 14 is used as printed. So even with κd ≥ 5.83 the
  sample exceeds its ε/2.

«ada_ops_steps»

### AdaOPS, as a whole

Wrong steps do not make a wrong theorem, so the δ of what is released is computed exactly, for one column: closed
forms given λ̃, and a quadrature over λ̃. Data are rows (c, 1), the record is (1, −1), and κ is as Algorithm 1 allows.

- The proof covers the pair (λ̃, θ̃). With a public n, the same for both neighbours, it breaks the promise at large ε. (In
  the first two lines n is that of the smaller set, in the third that of the larger.)
- With records added and removed as the paper defines it, n differs between neighbours, λ_n and γ_n with it, and the
  promise breaks at ε = 1.5 already.
- θ̃ alone, which is what Algorithm 1 outputs, keeps the promise in the first five lines, by far. In the last it does
  not: there κ is below 1, which Algorithm 1 allows although κ is the largest acceptable condition number.

«ada_ops_releases»

Among data of this kind with κ ≥ 1, a search found no failure at ε = 1, and with a public n none at ε = 11. That
proves nothing about others. `sv.AdaptivePosteriorSample` is another algorithm, with a proof.

### Accuracy

The sample's own variance is tr(H⁻¹)/γ, without σ²: E‖θ̃ − θ₀‖² = σ²·tr(H⁻¹XᵀXH⁻¹) + tr(H⁻¹)/γ + λ²‖H⁻¹θ₀‖², and the
factor of efficiency is 1 + 1/(γσ²), not 1 + 1/γ. θ̂ minimises F with λ/2 (printed: λ), and the excess is d/(2γ). The
exact means below come from runs of the estimator at points that integrate quadratics exactly, not from these
formulas.

«utility»

### Groups and generalisation

In the second line of group privacy the products run over the records that come later: Σ_i δ_i·Π_{j>i} e^(ε_j). In
Proposition 11, and in the proof of Proposition 9, ε(Z, z')·δ(Z, z'') must be e^(ε(Z, z'))·δ(Z, z''); the bound is
then 0.55 in the example.

«groups_and_generalisation»

### Slips that change no number

- Lemma 20 (Woodbury) lacks a V before the last A⁻¹. (6) has γ where Theorem 14 has γ/2.
- Fact 5 takes the smaller of one probability and itself; it means both data sets. Fact 6.2 leaves out k·ε(e^ε − 1).
- After (4), A = XᵀX gives the *root* of a leverage. Corollary 12 assumes E e^(2ε) ≤ 1, which leaves ε = 0 only.
- Proposition 16 says sup|y − xᵀθ̂| = 1 + √(n/λ), its proof 1 + ½√(n/λ). The latter is right, for λ ≤ n.
- "The mean value theorem" in the proof of Lemma 13 is false for maps to vectors; it is not needed.
- Condition (d) has XXᵀ for XᵀX, "λ_min = Ω(d/n)" means n/d, Proposition 17 has 1 + γ for 1 + 1/(γσ²), and "nε² = o(1)"
  means that its inverse is.

## Personalized Differential Privacy for Ridge Regression

Its theorems on privacy are right; its B must be a promise, and must not be computed from data. Outside its proof lies
the scaling of columns by their own smallest and largest value.

### Misprints

Table 11 has six wrong exponents in the line λ = 1, of which two are closed forms on a draw like the authors'; the
other four are in the command's output. Table 14 has two in the line λ = 0.01. Table 3 repeats a number of another
line, and Table 9's caption names a profile that its numbers are not from.

«ridge_misprints»

### Claims

Labels with Gaussian noise are not bounded. Sampling people is the paper's rival, from *Conservative or Liberal?*;
with noise that follows the number sampled it is not private where a record is replaced ([baselines](baselines.md)).

«ridge_claims»

## Striking a Balance

### Privacy, truth and a minimum

Weights, noise and model minimise one objective on the private rows; the proof fixes weights and noise first. A joint
minimum jumps, so there are outputs of one data set that its neighbour never has: no ε holds with a δ below the number
in the first line, which is computed and not sampled. Payments Ψ·ε are right on average only. (34) has no λ, and
2bᵀw/η + ½λ‖w‖² is not bounded as η → 0: a σ/η does not outweigh it
([market](market.md#what-the-published-mechanism-gets-wrong)).

«market_claims»

### Constants and steps

The bound's constants take a logarithm to base 2 where e is right, and more. (29), the last line of a proof, drops the
2 of (12), and what it claims cannot be reached. The charge 2·log(1 + k/(mλ)) is in the paper's proof and dropped in
its promise. {Σe^z = 1} is not convex, so Theorem 4.1 does not speak about it.

«market_constants»

- Costs are printed as uniform in [e⁻⁴, 5e⁻⁴]; 10⁻⁴ is meant.

## Smoothly Bounding User Contributions in Differential Privacy

Theorem 2 has a family in which limiting rows costs up to 3/2 of the best weights; more is possible, and with
[personal budgets](weights.md#sample-limiting) there is no limit at all. The noise of Theorem 6 is enough, and more
than enough for people with several rows: what counts is the worst of all signs ([labels](labels.md)). Theorem 4 rests
on an algorithm whose noise is proved for small ε. Table 2 has ε = 30 to 50; if its noise is that of the algorithm,
somebody who sees the steps learns more.

«users_gaps»

- The experiments take σ² from least squares on the labels that are to be protected.

## What the tests check

- `tests/experiments/test_errata.py`: this page is what the code makes; printed and exact numbers against digits found
  beforehand; formulas as printed against the paper's at round arguments; means against simulation and against the
  formulas above; claims about markets, samples and weights against draws and other formulas; every command has a name.
- `tests/experiments/test_joint.py`: the quadrature at several resolutions, against a million simulated releases, and
  against the library's profile where they must agree.

## Literature

- Y.-X. Wang: *Per-instance Differential Privacy*, Journal of Privacy and Confidentiality 9(1), 2019 (arXiv:1707.07708).
- B. Balle, Y.-X. Wang: *Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
  Denoising*, ICML 2018 (the exact δ of Gaussian noise).
- *Personalized Differential Privacy for Ridge Regression*, arXiv 2401.17127.
- *Striking a Balance: An Optimal Mechanism Design for Heterogenous Differentially Private Data Acquisition for Logistic
  Regression*, under review.
- A. Epasto, M. Mahdian, J. Mao, V. Mirrokni, L. Ren: *Smoothly Bounding User Contributions in Differential Privacy*,
  NeurIPS 2020.
- Z. Jorgensen, T. Yu, G. Cormode: *Conservative or Liberal? Personalized Differential Privacy*, ICDE 2015.
"""
TABLE = re.compile(r"^«(\w+)»$", re.MULTILINE)
#: A table with the heading that it is under.
HEADED = re.compile(r"^#+ ([^\n]+)\n(?:(?!#)[^\n]*\n)*?«(\w+)»$", re.MULTILINE)
#: The paper that a table is about, by the name under which its experiments are called.
PAPER_OF = {
    name: next(
        (paper for paper in ("ridge", "market", "users") if name.startswith(paper)), "instance"
    )
    for name in TABLE.findall(PAGE)
}


def compute_errata() -> dict[str, list[Erratum]]:
    """Returns every erratum, in the order of the page, by the function that computes it."""
    return {name: compute_table(name) for name in TABLE.findall(PAGE)}


@cache
def compute_table(name: str) -> list[Erratum]:
    """Returns the lines of one table."""
    if hasattr(instance_claims, name):
        home: ModuleType = instance_claims
    else:
        home = other_claims
    found: list[Erratum] = getattr(home, name)()
    return found


def make_errata_page() -> str:
    """Returns the page as Markdown."""
    found = compute_errata()
    return TABLE.sub(lambda match: _write_table(found[match[1]]), PAGE)


def _write_table(lines: list[Erratum]) -> str:
    with_delta = any(line.true_delta is not None for line in lines)
    with_formula = any(line.formula for line in lines)
    optional = {"true δ": with_delta, "printed by": with_formula}
    names = [
        "where",
        "setting",
        "quantity",
        "printed",
        "exact",
        "true δ",
        "printed by",
        "`sottovoce reproduce`",
    ]
    kept = [place for place, name in enumerate(names) if optional.get(name, True)]
    rows = [[word.replace("|", r"\|") for word in _write_cells(line)] for line in lines]
    picked = ([words[place] for place in kept] for words in (names, ["---"] * len(names), *rows))
    return "\n".join(f"| {' | '.join(words)} |" for words in picked)


def _write_cells(line: Erratum) -> list[str]:
    if line.true_delta is None:
        delta = ""
    else:
        delta = format_digits(line.true_delta, ROUGHLY)
    numbers = [format_digits(line.printed), format_digits(line.exact), delta]
    return [
        line.place,
        line.setting,
        line.quantity,
        *numbers,
        f"`{line.formula}`",
        f"`{line.command}`",
    ]


def outcome(task: Task) -> Outcome:
    """The errata of one paper as an experiment; which paper, the name says."""
    titles = {match[2]: match[1] for match in HEADED.finditer(PAGE)}
    names = [name for name in titles if PAPER_OF[name] == task.name.partition("/")[0]]
    found = {name: compute_table(name) for name in names}
    tables = tuple(_compare_errata(titles[name], lines) for name, lines in found.items())
    settings = [
        f"{label}: {one.quantity} for {one.setting}."
        for lines in found.values()
        for label, one in _label_errata(lines)
    ]
    return Outcome(task.name, task.size, tables, (), tuple(settings))


def _label_errata(found: list[Erratum]) -> list[tuple[str, Erratum]]:
    """Returns each erratum with a label of its own: its place in the paper, and a letter where it
    has several.
    """
    places = [one.place for one in found]
    letters = [f" {ascii_lowercase[places[:at].count(place)]}" for at, place in enumerate(places)]
    return [
        (one.place + letter * (places.count(one.place) > 1), one)
        for one, letter in zip(found, letters, strict=True)
    ]


def _compare_errata(title: str, found: list[Erratum]) -> ResultTable:
    lines = _label_errata(found)
    column = ResultColumn(
        "exact", tuple(one.exact for one in found), tuple(one.printed for one in found)
    )
    deltas = ResultColumn("true δ at the printed ε", tuple(one.true_delta for one in found))
    reasons = tuple(Reason("exact", _explain_erratum(one), (label,)) for label, one in lines)
    if any(deltas.ours):
        columns: tuple[ResultColumn, ...] = (column, deltas)
    else:
        columns = (column,)
    return ResultTable(title, "where", tuple(label for label, _ in lines), columns, reasons)


def _explain_erratum(one: Erratum) -> str:
    if one.formula:
        return f"Print is wrong: {describe_cause(one.formula)}"
    return f"Print is wrong or loose; see {one.command}."


def format_digits(value: float, significant: int = DIGITS) -> str:
    """Returns a number with so many significant digits.

    >>> [format_digits(value) for value in (2436.87079, 1.27684e7, -1 / 3, 2.6e-309)]
    ['2436.9', '1.2768e7', '−0.33333', 'below 1e-99']
    """
    if 0 < value < TINY:
        return f"below {TINY:g}"
    mantissa, _, exponent = f"{abs(value):.{significant}g}".partition("e")
    return ("−" if value < 0 else "") + (f"{mantissa}e{int(exponent)}" if exponent else mantissa)


if __name__ == "__main__":
    sys.stdout.buffer.write(make_errata_page().encode("utf-8"))
