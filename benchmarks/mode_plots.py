"""Pictures of AUC by mode: `python -m benchmarks.mode_plots results.jsonl --output=docs`.

Reads what `benchmarks.modes` has written; needs matplotlib, nothing else.
"""

import argparse
import json
import pathlib
import statistics

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="directory")
    flags = parser.parse_args()
    runs = [json.loads(line) for line in flags.results.read_text().splitlines()]
    runs = [run for run in runs if run["points"] and not run["slowed"]]
    for config in dict.fromkeys(run["config"] for run in runs):
        figure, panels = plt.subplots(1, 2, figsize=(12, 4.5), sharey=True)
        mine = [run for run in runs if run["config"] == config]
        names = {id(run): " ".join([run["mode"], *run["set"]]) for run in mine}
        for mode in dict.fromkeys(names.values()):
            of_mode = [run["points"] for run in mine if names[id(run)] == mode]
            medians = [
                [statistics.median(values) for values in zip(*points, strict=True)]
                for points in zip(*of_mode, strict=True)
            ]
            for axes, column in zip(panels, (0, 1), strict=True):
                xs, ys = [point[column] for point in medians], [point[2] for point in medians]
                axes.plot(xs, ys, marker="o", label=f"{mode} ({len(of_mode)} seeds)")
        for axes, label in zip(panels, ("records", "seconds of training"), strict=True):
            axes.set_xlabel(label)
            axes.grid(alpha=0.3)
        panels[0].set_ylabel("AUC")
        panels[0].legend(fontsize="small")
        name = pathlib.Path(config).stem
        figure.suptitle(f"{name}: AUC after each epoch, medians")
        figure.tight_layout()
        figure.savefig(flags.output / f"modes_{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    main()
