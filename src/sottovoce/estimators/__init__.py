# SPDX-License-Identifier: Apache-2.0
"""The questions that can be asked, one a file."""
