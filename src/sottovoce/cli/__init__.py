# SPDX-License-Identifier: Apache-2.0
"""The same verbs at a terminal: plan, release, explain, predict, schema, demo."""
