# SPDX-License-Identifier: Apache-2.0
"""The same verbs as pages on the local machine, for the curator and for each person. Needs the
extra `web`.
"""
