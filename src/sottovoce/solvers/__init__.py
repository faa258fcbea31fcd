# SPDX-License-Identifier: Apache-2.0
"""Solvers: pure functions on arrays, no privacy inside."""
