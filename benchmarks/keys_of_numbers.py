"""Keys that are any 64 bits, as accounts and devices have: `keys_of`."""

import numpy as np
import numpy.typing as npt

from tfps.layers.splitmix64 import GOLDEN


def keys_of(numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Another key for each number: multiples of an odd number, all 2^64 of which differ.

    Args:
        numbers: Of any integer dtype and shape.
    """
    return (numbers.astype(np.uint64) * np.uint64(GOLDEN)).view(np.int64)
