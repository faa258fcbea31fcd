# SPDX-License-Identifier: Apache-2.0
"""The kinds of engine; each is found by name through sottovoce.data.engine."""
