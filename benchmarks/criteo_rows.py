"""Writes rows as Criteo ships them, to measure `trainer.prepare`.

    python -m benchmarks.criteo_rows --rows=500000 --output=DIR/rows.tsv

A label, 13 counts and 26 categoricals of 8 hexadecimal digits, tab-separated; about as many cells
are empty as in the real data. Values are drawn, so a cache of categoricals does not flatter.
"""

import argparse

import numpy as np

_BLOCK = 50_000
_EMPTY_COUNTS = 0.12
_EMPTY_CATEGORICALS = 0.12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--output", required=True, help="file to write")
    flags = parser.parse_args()
    generator = np.random.default_rng(0)
    with open(flags.output, "w") as file:
        for start in range(0, flags.rows, _BLOCK):
            file.writelines(_rows(generator, min(_BLOCK, flags.rows - start)))


def _rows(generator: np.random.Generator, count: int) -> list[str]:
    labels = generator.integers(0, 2, count).tolist()
    counts = generator.geometric(0.02, (count, 13)).tolist()
    no_count = (generator.random((count, 13)) < _EMPTY_COUNTS).tolist()
    ids = generator.integers(0, 1 << 32, (count, 26)).tolist()
    no_id = (generator.random((count, 26)) < _EMPTY_CATEGORICALS).tolist()
    rows = []
    for row in range(count):
        numbers = [
            "" if empty else str(n) for n, empty in zip(counts[row], no_count[row], strict=True)
        ]
        digits = [
            "" if empty else f"{n:08x}" for n, empty in zip(ids[row], no_id[row], strict=True)
        ]
        rows.append("\t".join((str(labels[row]), *numbers, *digits)) + "\n")
    return rows


if __name__ == "__main__":
    main()
