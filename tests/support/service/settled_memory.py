"""Exempt from the garbage collector what a process has imported that others are copies of.

Each copy would otherwise look through all of it when it begins, and so make pages of memory of its
own. The process imports this module last.
"""

import gc

gc.collect()
gc.freeze()
