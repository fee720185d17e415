"""What frameworks are told of an initial candidate without a score. Arguments: a folder, the command of the evaluator."""

import json
import os
import sys
from pathlib import Path

from programs import program
from tierkv_evolve import Client, EvaluatorError
from tierkv_evolve.client import default_command
from tierkv_evolve.gepa import AnythingEvaluator, TierKVAdapter
from tierkv_evolve.openevolve import client, configure

folder = Path(sys.argv[1])
command = sys.argv[2:]
texts = {"good": program(0.3), "broken": "def score(:\n", "hangs": program(0.5, "hang")}
found = {}


def told(act):
    try:
        act()
    except (EvaluatorError, ValueError) as error:
        return str(error)
    return None


for name, text in texts.items():
    file = folder / f"{name}.star"
    file.write_text(text)
    found[name] = told(lambda: configure(slot="routing", initial=file, deadline_s=3.0, command=command))
    found[f"{name} checked"] = os.environ.pop("TIERKV_EVOLVE_CHECKED", None) is not None
    with Client(command, deadline_s=3.0) as own:
        seed = {"routing": text}
        example = {"suite": "train", "case": "flat/1"}
        found[f"{name} gepa"] = told(lambda: TierKVAdapter(own)._answers([example], seed))
        found[f"{name} anything"] = told(lambda: AnythingEvaluator(own)(seed))
client().close()
found["absent"] = told(
    lambda: configure(slot="routing", initial=folder / "good.star", command=["no-such-program-here"])
)
found["no time"] = told(lambda: Client(command, deadline_s=0))
os.environ["PATH"] = str(folder)
os.chdir(folder)
found["outside"] = default_command()
os.chdir(Path(__file__).parent)
found["checkout"] = default_command()
json.dump(found, sys.stdout)
