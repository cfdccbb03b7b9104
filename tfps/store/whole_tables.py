"""Which tables one process may hold whole, beside all else that it does."""

from tfps.store.layout import StoreLayout

WHOLE_BYTES = 256 << 20  # of all tables together that are held whole


def groups_in_slices(layout: StoreLayout, limit: int = WHOLE_BYTES) -> tuple[int, ...]:
    """Indices of the groups that no process may hold whole: small ones may be, while they fit.

    Args:
        layout: Where the groups lie.
        limit: Bytes of all tables that are held whole.
    """
    sizes = [group.layout.total_rows * group.layout.row_bytes(0) for group in layout.groups]
    held, sliced = 0, []
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        held += sizes[index]
        if held > limit:
            sliced.append(index)
    return tuple(sorted(sliced))
