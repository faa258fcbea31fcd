# SPDX-License-Identifier: Apache-2.0
"""The trusted kernel: the only place where randomness is drawn."""

from sottovoce.moved import OLD_PATHS as _OLD_PATHS

__path__.append(_OLD_PATHS)
