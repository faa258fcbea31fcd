"""Those of scikit-learn's own checks that make sense with a budget; the others fit without one, or
want it all.
"""

from __future__ import annotations

import pytest
from sklearn.utils import estimator_checks

CHECKS = [
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
]
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
