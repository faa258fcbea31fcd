# SPDX-License-Identifier: Apache-2.0
"""Solvers: pure functions on arrays, no privacy inside."""

from sottovoce.moved import OLD_PATHS as _OLD_PATHS

__path__.append(_OLD_PATHS)
