# SPDX-License-Identifier: Apache-2.0
"""From data, wherever they live, to budgets, rows and exact sums over rows."""

from sottovoce.moved import OLD_PATHS as _OLD_PATHS

__path__.append(_OLD_PATHS)
