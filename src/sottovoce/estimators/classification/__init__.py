# SPDX-License-Identifier: Apache-2.0
"""What LogisticRegression settles, charges and fits."""
