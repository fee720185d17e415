"""Plots what ``tierkv evolve --out DIR`` left in DIR: fitness, archive, Pareto front, and the winner's ancestry.

    python plot_search.py DIR [picture.png]

Needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LOWEST = -0.3  # what scores far below the presets is drawn here


def read(folder: Path) -> tuple[dict, list[dict], dict]:
    state = json.loads((folder / "state.json").read_text())
    lineage = [json.loads(line) for line in (folder / "lineage.jsonl").read_text().splitlines()]
    report = json.loads((folder / "report.json").read_text())
    return state, [each for each in lineage if "error" not in each], report


def plot_fitness(axes, state: dict, lineage: list[dict]) -> None:
    for origin in sorted({each["origin"] for each in lineage}):
        points = [each for each in lineage if each["origin"] == origin]
        scores = [max(LOWEST, each["score"]) for each in points]
        axes.scatter([each["generation"] for each in points], scores, s=9, alpha=0.5, label=origin)
    history = state["history"]
    axes.step([h["generation"] for h in history], [h["best"] for h in history], where="post", color="black")
    axes.set(xlabel="generation", ylabel="lead over the best preset, train", title="Fitness")
    axes.legend(fontsize=7)


def plot_archive(axes, state: dict) -> None:
    across, up = (state["archive"]["axes"] * 2)[:2]
    grid = [[float("nan")] * across["bins"] for _ in range(up["bins"])]
    for island in state["archive"]["islands"]:
        for cell, elite in island.items():
            i, j = ([int(part) for part in cell.split("/")] + [0])[:2]
            score = max(LOWEST, elite["score"])
            if not score <= grid[j][i]:
                grid[j][i] = score
    extent = (across["min"], across["max"], up["min"], up["max"])
    image = axes.imshow(grid, origin="lower", aspect="auto", extent=extent)
    axes.set(xlabel=across["name"], ylabel=up["name"], title="Best policy of each cell")
    axes.figure.colorbar(image, ax=axes)


def plot_front(axes, state: dict, lineage: list[dict]) -> None:
    names = state["objectiveNames"]
    front = set(state["front"])
    second = 1 if len(names) > 1 else 0
    for kept, label in ((False, "others"), (True, "Pareto population")):
        points = [each for each in lineage if (each["id"] in front) == kept]
        x = [max(LOWEST, each["objectives"][0]) for each in points]
        y = [max(LOWEST, each["objectives"][second]) for each in points]
        axes.scatter(x, y, s=12, alpha=0.7, label=label)
    axes.set(xlabel=names[0], ylabel=names[second], title="Objectives, as gains")
    axes.legend(fontsize=7)


def plot_ancestry(axes, lineage: list[dict], report: dict) -> None:
    by_id = {each["id"]: each for each in lineage}
    line = []
    at = by_id.get(report["winner"]["id"])
    while at is not None:
        line.append(at)
        at = by_id.get(at["parents"][0]) if at["parents"] else None
    line.reverse()
    axes.plot(range(len(line)), [max(LOWEST, each["score"]) for each in line], marker="o")
    axes.set_xticks(range(len(line)), [each["origin"] for each in line], rotation=60, fontsize=7)
    axes.set(ylabel="lead, train", title="Ancestors of the winner")


def main(folder: str, picture: str | None = None) -> None:
    state, lineage, report = read(Path(folder))
    figure, axes = plt.subplots(2, 2, figsize=(11, 8))
    plot_fitness(axes[0][0], state, lineage)
    plot_archive(axes[0][1], state)
    plot_front(axes[1][0], state, lineage)
    plot_ancestry(axes[1][1], lineage, report)
    figure.tight_layout()
    target = picture or str(Path(folder) / "search.png")
    figure.savefig(target, dpi=120)
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
