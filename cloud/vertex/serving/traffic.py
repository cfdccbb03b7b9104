"""How an endpoint's traffic is divided: percents by the id of a deployed model.

A split adds up to 100, or is empty where nothing is served. What a deployed model gives up, or gets
back, is shared out by what the others have.
"""

from collections.abc import Mapping

Split = dict[str, int]
WHOLE = 100


def is_split(split: Mapping[str, int]) -> bool:
    """Whether percents are a split."""
    values = split.values()
    return not split or (sum(values) == WHOLE and all(0 <= value <= WHOLE for value in values))


def scaled(split: Mapping[str, int], total: int) -> Split:
    """Percents in the same proportions, as near as whole numbers come.

    Args:
        split: Percents, any of which may be zero, not all.

    Returns:
        Percents of the same deployed models, of which none without traffic gets some.
    """
    before = sum(split.values())
    if not before:
        raise ValueError("there is no traffic to divide")
    found = {name: share * total // before for name, share in split.items()}
    # What is left by rounding down goes to the largest remainders, one each.
    order = sorted(split, key=lambda name: (-(split[name] * total % before), name))
    for name in order[: total - sum(found.values())]:
        found[name] += 1
    return found


def joined(split: Mapping[str, int], newcomer: str, share: int) -> Split:
    """A split with one more deployed model.

    Args:
        split: The split before; may be empty.
        share: Its percents, 1 to 100.

    Returns:
        The split with it. What the others have keeps its proportions.
    """
    if not 0 < share <= WHOLE:
        raise ValueError(f"{share} is no share of {WHOLE} percent")
    if not any(split.values()):
        if share != WHOLE:
            raise ValueError("nothing else takes the rest of the traffic")
        return {**dict.fromkeys(split, 0), newcomer: WHOLE}
    return {**scaled(split, WHOLE - share), newcomer: share}


def left(split: Mapping[str, int], leaver: str) -> Split:
    """A split without one of its deployed models.

    Args:
        leaver: Id of the deployed model, which need not be in it.

    Returns:
        The split of the others, which share out what it had; empty if none of them has traffic.
    """
    others = {name: share for name, share in split.items() if name != leaver}
    return scaled(others, WHOLE) if any(others.values()) else {}


def shown(split: Mapping[str, int]) -> str:
    """A split for people."""
    return ", ".join(f"{share} % {name}" for name, share in split.items() if share) or "none"
