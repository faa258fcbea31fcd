# SPDX-License-Identifier: Apache-2.0
"""Drawings that the command line and the web page share: audits, markets, statements, plans, as
HTML and SVG.
"""
