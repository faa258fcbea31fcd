# SPDX-License-Identifier: Apache-2.0
"""What each person really lost to a release: exactly for the curator, as a bound from public numbers for themselves.

for the curator, confidential    per_instance, compose, pdp_to_dp; GaussianOutput and GaussianObjective to describe
                                 mechanisms that this library does not run
for everybody                    mine, bounds, histogram
the mathematics itself           gaussian_epsilon, posterior_epsilon and their log_delta, leave_one_out, group,
                                 generalisation: pure functions of numbers (docs/theory/per-instance.md)
"""

from sottovoce.audit.composition import Composed, compose, pdp_to_dp
from sottovoce.audit.instance import PerInstance, per_instance
from sottovoce.audit.mechanisms import GaussianObjective, GaussianOutput
from sottovoce.audit.public import Mine, bounds, histogram, mine
from sottovoce.solvers.leverages import fit as leave_one_out
from sottovoce.solvers.profiles import gaussian_epsilon, gaussian_log_delta, posterior_epsilon, posterior_log_delta
from sottovoce.solvers.renyi import generalisation, group

__all__ = [
    "Composed",
    "GaussianObjective",
    "GaussianOutput",
    "Mine",
    "PerInstance",
    "bounds",
    "compose",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "generalisation",
    "group",
    "histogram",
    "leave_one_out",
    "mine",
    "pdp_to_dp",
    "per_instance",
    "posterior_epsilon",
    "posterior_log_delta",
]
