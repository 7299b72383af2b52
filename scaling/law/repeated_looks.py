"""Intervals that hold however often one looks at them: a study is watched while its runs go on, or stopped by what it
shows.

Of 95% intervals computed after every run, far more than 5% of studies have one that misses. The mixture of Student's
likelihood ratio over a normal prior of the quantity is a martingale where the law is linear and errors are normal
(Lindon, Ham, Tingley and Bojinov 2022, arXiv 2210.08589, after Robbins 1970), so that

    |estimate - truth| ≤ error √(ν (1 - A) / (A - r)),  A = (α² r)^(1/(ν + 1)),  r = φ / (φ + z)

holds at all looks together with probability 1 - α. ν are the degrees of freedom, z is the information that the runs
carry about the quantity, φ that of the prior. φ is a tenth of the information that the finished study will have: the
interval is then about as narrow as it can be at its end, and open at first, when there is little to know.

The root is a quantile of Student's t at another level. With this level all that widens an interval (curvature, unequal
errors, shared errors) applies as at any other.
"""

from __future__ import annotations

import numpy as np

PRIOR = 0.1
"""The prior's information over that of the finished study."""


def level_at_a_look(level: float, freedom: float, fraction: float) -> float | None:
    """The level at which to compute an interval so that all looks together hold at `level`; None while it is open.

    `fraction` is the information about the quantity at this look over that of the finished study.
    """
    from scipy.special import stdtr

    if freedom < 1 or not fraction > 0:
        return None
    kept = PRIOR / (PRIOR + fraction)
    limit = float(np.exp(np.log((1.0 - level) ** 2 * kept) / (freedom + 1.0)))
    if limit <= kept:
        return None
    quantile = float(np.sqrt(freedom * (1.0 - limit) / (limit - kept)))
    return float(1.0 - 2.0 * stdtr(freedom, -quantile))
