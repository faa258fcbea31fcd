# SPDX-License-Identifier: Apache-2.0
"""Errata of the papers, as a page: ``python -m sottovoce.experiments.errata > docs/theory/errata.md``.

Every number in its tables is computed, and a test holds docs/theory/errata.md against what this file makes.
"""

from __future__ import annotations

import re
import sys

from sottovoce.experiments import counterexamples
from sottovoce.experiments.counterexamples import Erratum

#: Significant digits of a number, and of a δ that only shows how far off an ε is.
DIGITS, ROUGHLY = 5, 3
#: A smaller δ is not worth its digits.
TINY = 1e-99

#: A line «name» stands for the table that the function of this name in counterexamples.py makes.
PAGE = """\
# Errata

*Where a published formula is wrong, by how much, and what is true.* Code: `src/sottovoce/experiments/as_printed.py`
(the formulas as they are printed, under names that say so), `src/sottovoce/experiments/exact.py` and
`src/sottovoce/experiments/joint.py` (what is true), `src/sottovoce/experiments/counterexamples.py` (the tables). This
page is made by `python -m sottovoce.experiments.errata`.

The paper is *Per-instance Differential Privacy*; numbers of equations are its own. Neighbours differ by one record
z = (x, y), δ = 10⁻⁶ unless a line says something else, and γ and λ are the temperature and the ridge of the posterior,
with density ∝ exp(−γ/2·(‖y − Xθ‖² + λ‖θ‖²)). Where the printed ε or δ is the smaller one, somebody was promised more
than they got; "true δ" is the δ that holds at the printed ε.

## Gaussian noise

The noise has standard deviation 1/√γ in the norm of A, so a record that moves the estimate by Δ is √γ·Δ standard
deviations away. Lemma 4 prints γ for √γ and drops the 2 of √(2·log(1.25/δ)); (3) has no γ at all. Even the classical
formula, which they abbreviate, holds up to ε = 1 only. γ = 1/16, or σ = 4, is the setting of the paper's Figure 1.

«gaussian_noise»

## One posterior sample

(7) and (8) are printed as equal. They belong to the loss under two different laws, (7) without and (8) with the record,
and pDP needs both. The law without the record is always the worse one. The tail behind (7) and (8) is too light
(see [steps of proofs](#steps-of-proofs)). In (8) the two terms between the bars must be added: for μ' = ½, γ = 1,
e² = log 2 they cancel to 0. Remark 15 simplifies (7) with the residual of the wrong fit.

«theorem_14»

## Everybody, and all data sets

The last term of (9) and (10) must not contain γ: the two covariances differ by a factor that no temperature changes.
So ε does not vanish with γ, and what is printed is too small without limit. (10) is a claim of differential privacy;
one data set refutes it.

«proposition_16»

## Steps of proofs

A tail under p alone does not bound the loss under p' (Lemma 24), and a normal tail is e^(−z²/2), not e^(−z²)
(Theorem 14). The sign in Lemma 13 does no harm, because only norms are used.

«steps_of_proofs»

## AdaOPS, step by step

- λ_n = min{0, …} is never positive: Algorithm 1 does not regularise, it can only take away. The proof reads as if max
  were there. The other lines are for max.
- The noise on λ_min is too small for (ε/2, δ/2) from about ε = ½ on.
- The margin in λ_n is √log(4/δ) standard deviations. The failure that it leaves is a third δ/2 which nobody counts.
- (15) loses the 1 of 1 + ‖θ̂‖; 1 + √(κd) ≤ √(2κd) needs κd ≥ 5.83.
- In the last display a factor √(1/8) = 0.354 became 1/4, and Theorem 14 is used as printed. So even with κd ≥ 5.83 the
  sample exceeds its ε/2.

«ada_ops_steps»

## AdaOPS, as a whole

Wrong steps do not make a wrong theorem, so the δ of what is released is computed exactly, for one column: closed forms
given λ̃, and a quadrature over λ̃. Data are rows (c, 1), the record is (1, −1), and κ is as Algorithm 1 allows.

- The proof covers the pair (λ̃, θ̃). With a public n, the same for both neighbours, it breaks the promise at large ε. (In
  the first two lines n is that of the smaller set, in the third that of the larger.)
- With records added and removed as the paper defines it, n differs between neighbours, λ_n and γ_n with it, and the
  promise breaks at ε = 1.5 already.
- θ̃ alone, which is what Algorithm 1 outputs, keeps the promise in the first five lines, by far. In the last it does
  not: there κ is below 1, which Algorithm 1 allows although κ is the largest acceptable condition number.

«ada_ops_releases»

Among data of this kind with κ ≥ 1, a search found no failure at ε = 1, and with a public n none at ε = 11. That proves
nothing about others. `sv.AdaptivePosteriorSample` is another algorithm, with a proof.

## Accuracy

The sample's own variance is tr(H⁻¹)/γ, without σ²: E‖θ̃ − θ₀‖² = σ²·tr(H⁻¹XᵀXH⁻¹) + tr(H⁻¹)/γ + λ²‖H⁻¹θ₀‖², and the
factor of efficiency is 1 + 1/(γσ²), not 1 + 1/γ. θ̂ minimises F with λ/2 (printed: λ), and the excess is d/(2γ). The
exact means below come from runs of the estimator at points that integrate quadratics exactly, not from these formulas.

«utility»

## Groups and generalisation

In the second line of group privacy the products run over the records that come later: Σ_i δ_i·Π_{j>i} e^(ε_j). In
Proposition 11, and in the proof of Proposition 9, ε(Z, z')·δ(Z, z'') must be e^(ε(Z, z'))·δ(Z, z''); the bound is then
0.55 in the example.

«groups_and_generalisation»

## Slips that change no number

- Lemma 20 (Woodbury) lacks a V before the last A⁻¹. (6) has γ where Theorem 14 has γ/2.
- Fact 5 takes the smaller of one probability and itself; it means both data sets. Fact 6.2 leaves out k·ε(e^ε − 1).
- After (4), A = XᵀX gives the *root* of a leverage. Corollary 12 assumes E e^(2ε) ≤ 1, which leaves ε = 0 only.
- Proposition 16 says sup|y − xᵀθ̂| = 1 + √(n/λ), its proof 1 + ½√(n/λ). The latter is right, for λ ≤ n.
- "The mean value theorem" in the proof of Lemma 13 is false for maps to vectors; it is not needed.
- Condition (d) has XXᵀ for XᵀX, "λ_min = Ω(d/n)" means n/d, Proposition 17 has 1 + γ for 1 + 1/(γσ²), and "nε² = o(1)"
  means that its inverse is.

## What the tests check

- `tests/experiments/test_errata.py`: this page is what the code makes; printed and exact numbers against digits found
  beforehand; formulas as printed against the paper's at round arguments; means against simulation and against the
  formulas above.
- `tests/experiments/test_joint.py`: the quadrature at several resolutions, against a million simulated releases, and
  against the library's profile where they must agree.

## Literature

- Y.-X. Wang: *Per-instance Differential Privacy*, Journal of Privacy and Confidentiality 9(1), 2019 (arXiv:1707.07708).
- B. Balle, Y.-X. Wang: *Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
  Denoising*, ICML 2018 (the exact δ of Gaussian noise).
"""
TABLE = re.compile(r"^«(\w+)»$", re.MULTILINE)


def errata() -> dict[str, list[Erratum]]:
    """Returns every erratum, in the order of the page, by the function that computes it."""
    return {name: getattr(counterexamples, name)() for name in TABLE.findall(PAGE)}


def errata_page() -> str:
    """Returns the page as Markdown."""
    found = errata()
    return TABLE.sub(lambda match: _table(found[match[1]]), PAGE)


def _table(lines: list[Erratum]) -> str:
    with_delta = any(line.true_delta is not None for line in lines)
    names = ["where", "setting", "quantity", "printed", "exact", *["true δ"] * with_delta, "printed by"]
    rows = [[word.replace("|", r"\|") for word in _words(line, with_delta)] for line in lines]
    return "\n".join(f"| {' | '.join(words)} |" for words in (names, ["---"] * len(names), *rows))


def _words(line: Erratum, with_delta: bool) -> list[str]:
    delta = "" if line.true_delta is None else digits(line.true_delta, ROUGHLY)
    numbers = [digits(line.printed), digits(line.exact), *[delta] * with_delta]
    return [line.place, line.setting, line.quantity, *numbers, f"`{line.formula}`"]


def digits(value: float, significant: int = DIGITS) -> str:
    """Returns a number with so many significant digits.

    >>> digits(2436.87079), digits(1.27684e7), digits(-1 / 3), digits(2.6e-309)
    ('2436.9', '1.2768e7', '−0.33333', 'below 1e-99')
    """
    if 0 < value < TINY:
        return f"below {TINY:g}"
    mantissa, _, exponent = f"{abs(value):.{significant}g}".partition("e")
    return ("−" if value < 0 else "") + (f"{mantissa}e{int(exponent)}" if exponent else mantissa)


if __name__ == "__main__":
    sys.stdout.buffer.write(errata_page().encode("utf-8"))
