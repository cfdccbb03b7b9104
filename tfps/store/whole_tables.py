"""Which tables one process may hold whole, beside all else that it does."""

import tensorflow as tf

from tfps.store.keyed.layout import KeyedLayout
from tfps.store.layout import StoreLayout

WHOLE_BYTES = 256 << 20  # of all tables together that are held whole


def groups_in_slices(layout: StoreLayout, limit: int = WHOLE_BYTES) -> tuple[int, ...]:
    """Indices of the groups that no process may hold whole: small ones may be, while they fit.

    Tables without vocabularies are never held whole.

    Args:
        limit: Bytes of all tables that are held whole.
    """
    layouts = [group.layout for group in layout.groups]
    sizes = [each.total_rows * each.dim * tf.float32.size for each in layouts]
    has_keys = [index for index, each in enumerate(layouts) if isinstance(each, KeyedLayout)]
    held, sliced = 0, list(has_keys)
    for index in sorted(set(range(len(sizes))) - set(has_keys), key=sizes.__getitem__):
        held += sizes[index]
        if held > limit:
            sliced.append(index)
    return tuple(sorted(sliced))
