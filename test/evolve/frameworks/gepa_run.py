"""GEPA, the real one, offline: gepa.optimize and optimize_anything. Arguments: seconds for a candidate, evaluations,
and the command of the evaluator.
"""

import json
import re
import sys
import warnings

import gepa
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything
from programs import program, weight_of
from tierkv_evolve import Client
from tierkv_evolve.gepa import AnythingEvaluator, TierKVAdapter

warnings.filterwarnings("ignore")
calls = {"count": 0}


def scripted_lm(prompt):
    """Raises the weight that it is shown; the third text does not compile, the fifth hangs."""
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    calls["count"] += 1
    step = (0.05, 0.4, 0.15)[calls["count"] % 3]
    source = program(min(0.95, weight_of(text) + step), "hang" if calls["count"] == 5 else "")
    if calls["count"] == 3:
        source = re.sub(r"def rate\(instance\)", "def rate(instance", source)
    return f"```\n{source}```"


client = Client(sys.argv[3:], deadline_s=float(sys.argv[1]))
adapter = TierKVAdapter(client)
seed = program(0.1)
first = client.evaluate({"routing": seed})["combined_score"]
result = gepa.optimize(
    seed_candidate={"routing": seed},
    trainset=adapter.scenarios("train"),
    valset=adapter.scenarios("validation"),
    adapter=adapter,
    reflection_lm=scripted_lm,
    frontier_type="hybrid",
    max_metric_calls=int(sys.argv[2]),
    seed=0,
    display_progress_bar=False,
)
best = client.evaluate(result.best_candidate)["combined_score"]
proposals = calls["count"]
calls["count"] = 0
evaluator = AnythingEvaluator(client)
anything = optimize_anything(
    seed_candidate=seed,
    evaluator=evaluator,
    batch_evaluator=evaluator.batch,
    dataset=adapter.scenarios("train"),
    objective="Raise the score of the routing policy.",
    config=GEPAConfig(
        engine=EngineConfig(max_metric_calls=60, seed=0, max_workers=2),
        reflection=ReflectionConfig(reflection_lm=scripted_lm),
    ),
)
candidate = anything.best_candidate
candidate = candidate if isinstance(candidate, str) else next(iter(candidate.values()))
report = {
    "first": first,
    "best": best,
    "proposals": proposals,
    "candidates": len(result.candidates),
    "anything": client.evaluate({"routing": candidate})["combined_score"],
}
client.close()
print("REPORT " + json.dumps(report))
