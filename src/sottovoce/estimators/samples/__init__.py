# SPDX-License-Identifier: Apache-2.0
"""What posterior samples share: the way into the ball, accounts, weights, the draw."""
