# SPDX-License-Identifier: Apache-2.0
"""The steps of ERM, how loud people are in them, and what they cost."""
