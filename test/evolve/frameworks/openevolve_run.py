"""OpenEvolve, the real one, offline over 16 iterations.

Arguments: output directory, seconds for a candidate, feature of the archive, command of the evaluator.
"""

import json
import logging
import os
import sys
from pathlib import Path

import scripted_llm
from programs import program, weight_of

out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
initial = out / "policy.star"
initial.write_text(program(0.1))
here = Path(__file__).parent
evaluator = out / "evaluator.py"
evaluator.write_text(
    "from tierkv_evolve.openevolve import configure, evaluate, evaluate_stage1, evaluate_stage2\n"
    f"configure(slot='routing', initial={str(initial)!r}, deadline_s={float(sys.argv[2])}, command={sys.argv[4:]!r})\n"
)


def main():
    from openevolve import run_evolution
    from openevolve.config import Config, LLMModelConfig

    logging.disable(logging.INFO)
    config = Config()
    config.random_seed = 42
    config.language = "python"
    config.checkpoint_interval = 16
    config.file_suffix = ".star"
    config.diff_based_evolution = False
    config.llm.models = [LLMModelConfig(name="scripted", init_client=scripted_llm.make, random_seed=42)]
    config.llm.evaluator_models = []
    config.database.feature_dimensions = ["complexity", sys.argv[3]]
    config.database.num_islands = 2
    config.evaluator.timeout = 120
    config.evaluator.parallel_evaluations = 2
    config.evaluator.cascade_thresholds = [0.5]
    result = run_evolution(str(initial), str(evaluator), config, iterations=16, output_dir=str(out / "run"), cleanup=False)
    programs = [
        json.loads(path.read_text()) for path in sorted((out / "run").glob("checkpoints/*/programs/*.json"))
    ]
    failed = [each for each in programs if each["metrics"].get("combined_score") == 0]
    scores = [each["metrics"]["combined_score"] for each in programs if each["code"] == initial.read_text()]
    report = {
        "firstScore": scores[0],
        "bestScore": result.best_score,
        "bestWeight": weight_of(result.best_code),
        "programs": len(programs),
        "failed": len(failed),
        "timeouts": sum("timeout" in each["metrics"] for each in programs),
        "metrics": sorted({name for each in programs for name in each["metrics"]}),
    }
    print("REPORT " + json.dumps(report))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    main()
