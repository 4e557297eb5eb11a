"""pass@k and pass^k: drawing k of the n answers to a problem, of which `correct` are correct.

Both are averages over all ways to choose k of n, so that more answers make them sharper and not different.
"""

from math import comb


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the probability that at least one of k answers is correct.

    >>> pass_at_k(5, 2, 1), round(pass_at_k(5, 2, 2), 4), pass_at_k(5, 4, 2)
    (0.4, 0.7, 1.0)
    """
    return 1.0 - comb(n - correct, k) / comb(n, k)


def pass_all_k(n: int, correct: int, k: int) -> float:
    """Return the probability that all of k answers are correct: pass^k.

    >>> pass_all_k(4, 3, 2)
    0.5
    """
    return comb(correct, k) / comb(n, k)
