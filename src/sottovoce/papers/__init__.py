# SPDX-License-Identifier: Apache-2.0
"""What the papers print, computed anew: their formulas as they stand, their tables, and where they
are wrong.
"""
