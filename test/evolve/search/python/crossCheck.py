"""Answers of the search packages of PyPI: cmaes, pymoo, ribs. Reads one JSON task, writes one JSON answer."""

import json
import sys

import numpy as np


def cma(task):
    """Feeds given points to CMA and says where its distribution stands after each generation."""
    from cmaes import CMA

    optimizer = CMA(mean=np.array(task["mean"]), sigma=task["sigma"], population_size=task["population"])
    states = []
    for generation in task["generations"]:
        optimizer.tell([(np.array(x), -value) for x, value in zip(generation["points"], generation["values"])])
        states.append({"mean": optimizer.mean.tolist(), "sigma": float(optimizer._sigma), "covariance": optimizer._C.tolist()})
    return states


def cma_evaluations(task):
    """Evaluations that CMA needs to a target, for each seed."""
    from cmaes import CMA

    needed = []
    for seed in task["seeds"]:
        n = task["dimensions"]
        bounds = np.array([[0.0, 1.0]] * n)
        optimizer = CMA(mean=np.full(n, 0.8), sigma=0.2, bounds=bounds, seed=seed, population_size=task["population"])
        count = 0
        best = -np.inf
        while count < task["most"] and best < task["target"]:
            solutions = []
            for _ in range(optimizer.population_size):
                x = optimizer.ask()
                value = problem(task["problem"], x)
                best = max(best, value)
                solutions.append((x, -value))
                count += 1
            optimizer.tell(solutions)
        needed.append(count)
    return needed


def problem(name, x):
    z = (np.asarray(x) - 0.3) * 10
    if name == "sphere":
        return -float(np.sum(z**2))
    if name == "ellipsoid":
        return -float(np.sum(10.0 ** (3 * np.arange(len(z)) / (len(z) - 1)) * z**2))
    raise ValueError(name)


def ranks(task):
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    fronts = NonDominatedSorting().do(-np.array(task["points"]))
    result = [0] * len(task["points"])
    for rank, front in enumerate(fronts):
        for i in front:
            result[int(i)] = rank
    return result


def hypervolume(task):
    from pymoo.indicators.hv import HV

    indicator = HV(ref_point=-np.array(task["reference"]))
    return [float(indicator(-np.array(points))) for points in task["fronts"]]


def archive(task):
    """The elites of a grid archive after a list of offers."""
    from ribs.archives import GridArchive

    grid = GridArchive(solution_dim=1, dims=task["bins"], ranges=[tuple(r) for r in task["ranges"]])
    for i, (measures, score) in enumerate(zip(task["measures"], task["scores"])):
        grid.add_single(np.array([float(i)]), score, np.array(measures))
    data = grid.data(["solution", "objective"], return_type="dict")
    return {
        "elites": sorted(int(s[0]) for s in data["solution"]),
        "qd": float(sum(data["objective"])),
        "coverage": len(data["objective"]),
    }


tasks = {
    "cma": cma,
    "cmaEvaluations": cma_evaluations,
    "ranks": ranks,
    "hypervolume": hypervolume,
    "archive": archive,
}
request = json.load(sys.stdin)
json.dump(tasks[request["task"]](request), sys.stdout)
