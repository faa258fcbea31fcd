# SPDX-License-Identifier: Apache-2.0
"""diffprivlib's mean and median of saved rows, as JSON; run by mean_and_quantile.py in an
environment of its own.
"""

import json
import sys
import warnings
from time import perf_counter

import numpy as np

warnings.simplefilter("ignore")  # diffprivlib warns about each new version of NumPy
from diffprivlib import tools  # noqa: E402

ROUNDS = 5


def best(compute):
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        compute()
        times.append(perf_counter() - start)
    return min(times)


values = np.load(sys.argv[1])
bounds = (float(sys.argv[2]), float(sys.argv[3]))
print(
    json.dumps(
        {
            "mean": best(lambda: tools.mean(values, epsilon=1.0, bounds=bounds)),
            "median": best(lambda: tools.median(values, epsilon=1.0, bounds=bounds)),
        }
    )
)
