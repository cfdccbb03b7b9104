"""Pictures of what it costs to be large; needs matplotlib. See `benchmarks.scale`."""

import pathlib

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt


def draw(found: dict, before: dict, directory: pathlib.Path) -> list[pathlib.Path]:
    """Draws each measure, one panel per figure, what was before beside what is now.

    Returns:
        The PNG files.
    """
    files = []
    for name, rows in found.items():
        earlier = {row["what"]: row["by_tasks"] for row in before.get(name, [])}
        figure, panels = plt.subplots(1, len(rows), figsize=(4.5 * len(rows), 4), squeeze=False)
        for axes, row in zip(panels[0], rows, strict=True):
            lines = {"before": earlier.get(row["what"], {}), "now": row["by_tasks"]}
            for label, by_tasks in lines.items():
                if by_tasks:
                    xs, ys = list(map(int, by_tasks)), list(by_tasks.values())
                    axes.plot(xs, ys, marker="o", label=label)
            axes.set_xscale("log")
            axes.set_yscale("log" if min(row["by_tasks"].values()) > 0 else "linear")
            title = row["what"] + (f", {row['unit']}" if row["unit"] else "")
            axes.set_title(title, fontsize="small")
            axes.set_xlabel("tasks")
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")
        figure.tight_layout()
        files.append(directory / f"scale_{name}.png")
        figure.savefig(files[-1], dpi=110)
        plt.close(figure)
    return files
