# SPDX-License-Identifier: Apache-2.0
"""The methods of Ridge, and the sums that they share."""
