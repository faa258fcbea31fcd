# SPDX-License-Identifier: Apache-2.0
"""Buying privacy at truthful prices: how much ε from whom, for how much, before any data is read.

Market      sellers' reported costs and a buyer; allocate, within a budget, frontier
Allocation  what was bought from whom, at which payment, and why
prior       laws of costs: uniform, normal, exponential, lognormal, empirical, given
loss        what a seller loses by selling ε: linear, power, exponential, piecewise
tune        μ, σ and λ from public rows, before anybody reports
continuous  the rule without limits and without grids, for comparison with the paper
"""

from sottovoce.market import loss, prior
from sottovoce.market.allocation import Allocation, Frontier, Point
from sottovoce.market.loss import SellerLoss
from sottovoce.market.market import Market, constants
from sottovoce.market.optimiser import continuous
from sottovoce.market.prior import Prices, Prior, virtual_costs
from sottovoce.market.tuning import Tuning, convexity_threshold, narrow_bounds, tune
from sottovoce.moved import OLD_PATHS as _OLD_PATHS

__path__.append(_OLD_PATHS)

__all__ = [
    "Allocation",
    "Frontier",
    "Market",
    "Point",
    "Prices",
    "Prior",
    "SellerLoss",
    "Tuning",
    "constants",
    "continuous",
    "convexity_threshold",
    "loss",
    "narrow_bounds",
    "prior",
    "tune",
    "virtual_costs",
]
