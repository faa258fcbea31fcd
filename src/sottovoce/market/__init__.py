# SPDX-License-Identifier: Apache-2.0
"""Buying privacy at truthful prices: how much ε from whom, for how much, before any data is read.

Market      sellers' reported costs and a buyer; allocate, within a budget, frontier
Allocation  what was bought from whom, at which payment, and why
prior       laws of costs: uniform, normal, exponential, lognormal, empirical, given
continuous  the rule without limits and without grids, for comparison with the paper
"""

from sottovoce.market import prior
from sottovoce.market.allocation import Allocation, Frontier, Point
from sottovoce.market.market import Market, constants
from sottovoce.market.optimiser import continuous
from sottovoce.market.prior import Prices, Prior, virtual_costs
from sottovoce.moved import OLD_PATHS as _OLD_PATHS

__path__.append(_OLD_PATHS)

__all__ = [
    "Allocation",
    "Frontier",
    "Market",
    "Point",
    "Prices",
    "Prior",
    "constants",
    "continuous",
    "prior",
    "virtual_costs",
]
