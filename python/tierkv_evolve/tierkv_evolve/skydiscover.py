"""SkyDiscover: the evaluator of a benchmark directory.

``evaluate.sh`` of the container is one line::

    exec python -m tierkv_evolve.skydiscover "$1" "$2"

It prints one JSON object: ``status``, ``combined_score``, ``metrics`` and ``artifacts``. The exit code is 0
whatever becomes of the candidate, and 1 where the evaluator itself cannot be run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Sequence

from .client import Client, EvaluatorError

_SUITES = {"train": "train", "test": "validation", "validation": "validation"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tierkv_evolve.skydiscover", description=__doc__.splitlines()[0])
    parser.add_argument("solution", help="file of the candidate: a program, or the JSON of a policy or bundle")
    parser.add_argument("suite", nargs="?", default="train", choices=sorted(_SUITES))
    parser.add_argument("--slot", default="routing", help="slot of the candidate (default routing)")
    parser.add_argument("--initial", help="file that it began as: edits outside its marked block are refused")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds for a candidate (default 300)")
    parser.add_argument("--command", help="what serves the evaluator (default: tierkv evaluate --serve)")
    given = parser.parse_args(arguments)
    try:
        text = Path(given.solution).read_text(encoding="utf-8")
        frozen = {given.slot: Path(given.initial).read_text(encoding="utf-8")} if given.initial else {}
        with Client(given.command, given.deadline) as client:
            bundle = _bundle(text)
            candidate = None if bundle is not None else {given.slot: text}
            answer = client.evaluate(candidate, bundle=bundle, suite=_SUITES[given.suite], frozen=frozen)
    except (EvaluatorError, OSError) as error:
        print(json.dumps({"status": "error", "combined_score": 0.0, "metrics": {}, "artifacts": {"failure": str(error)}}))
        return 1
    print(
        json.dumps(
            {
                "status": answer["status"],
                "combined_score": answer["combined_score"],
                "metrics": answer["metrics"],
                "artifacts": answer["artifacts"],
            }
        )
    )
    return 0


def _bundle(text: str) -> dict | None:
    """The bundle of a JSON text; None for the text of one slot."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and "type" not in value else None


if __name__ == "__main__":
    sys.exit(main())
