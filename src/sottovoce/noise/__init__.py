# SPDX-License-Identifier: Apache-2.0
"""The trusted kernel: the only place where randomness is drawn."""
