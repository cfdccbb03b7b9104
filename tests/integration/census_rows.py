"""Rows in the layout of the census data, drawn at random with a signal that can be learnt."""

import math
import random

from configs.census import BUCKETS, COLUMNS, VOCABULARIES


def census_rows(count: int, seed: int) -> bytes:
    """Rows of `adult.data`."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        row = {name: str(draw.randint(0, 99)) for name in COLUMNS}
        row |= {name: draw.choice(words) for name, words in VOCABULARIES.items()}
        row |= {name: str(draw.choice(bounds)) for name, bounds in BUCKETS.items()}
        chance = 1 / (1 + math.exp(-2.0 + 0.5 * len(row["occupation"]) / 2 - int(row["age"]) / 20))
        row["income"] = ">50K" if draw.random() < chance else "<=50K"
        lines.append(", ".join(row[name] for name in COLUMNS))
    return ("\n".join(lines) + "\n").encode()
