"""OpenEvolve: an evaluator file of two lines.

::

    from tierkv_evolve.openevolve import configure, evaluate, evaluate_stage1, evaluate_stage2
    configure(slot="routing", initial="policy.star")

The candidate is the text of one slot, a Starlark program or the JSON of a policy. Stage 1 of the cascade
compiles it and checks its contract, stage 2 simulates the train suite. Every answer carries all metrics, so
that any of them can be a feature dimension, and texts for the next prompt as artifacts. The deadline of a
candidate has to be well below ``evaluator.timeout`` of OpenEvolve: a time-out there blocks a place for good.
An initial candidate without a score ends the run before it begins: every score would be 0.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Sequence

from .client import Answer, Client, EvaluatorError

#: Set once the initial candidate has a score; processes that OpenEvolve starts inherit it.
_CHECKED = "TIERKV_EVOLVE_CHECKED"


class _Settings:
    slot: str = os.environ.get("TIERKV_EVOLVE_SLOT", "routing")
    suite: str = "train"
    initial: str | None = os.environ.get("TIERKV_EVOLVE_INITIAL")
    deadline_s: float = float(os.environ.get("TIERKV_EVOLVE_DEADLINE_S", "60"))
    command: Sequence[str] | str | None = None
    client: Client | None = None


def configure(
    *,
    slot: str | None = None,
    initial: str | os.PathLike[str] | None = None,
    deadline_s: float | None = None,
    command: Sequence[str] | str | None = None,
) -> None:
    """Says which slot is evolved, and from which file; edits outside its marked block are then refused.

    The initial candidate is evaluated at once. It may be called again with the same: OpenEvolve runs the
    evaluator file anew in each of its processes.

    :raises EvaluatorError: the initial candidate has no score, or no evaluator can be run.
    """
    _Settings.slot = slot or _Settings.slot
    _Settings.initial = str(initial) if initial is not None else _Settings.initial
    if deadline_s is not None:
        _Settings.deadline_s = deadline_s
    if command is not None and command != _Settings.command:
        _Settings.command = command
        if _Settings.client is not None:
            _Settings.client.close()
            _Settings.client = None
    if _Settings.initial is not None:
        _check_initial(_Settings.initial)


def _check_initial(initial: str) -> None:
    text = Path(initial).read_text(encoding="utf-8")
    asked = json.dumps([text, _Settings.slot, _Settings.suite, client().command])
    known = hashlib.sha256(asked.encode()).hexdigest()
    if os.environ.get(_CHECKED) == known:
        return
    answer = client().evaluate({_Settings.slot: text}, suite=_Settings.suite, frozen=_frozen())
    if answer["status"] != "success":
        raise EvaluatorError(f"the initial candidate {initial} has no score. {answer['error']['message']}")
    os.environ[_CHECKED] = known


def client() -> Client:
    """The evaluator of this process; it outlives the evaluator file."""
    if _Settings.client is None:
        _Settings.client = Client(_Settings.command, _Settings.deadline_s)
    _Settings.client.deadline_s = _Settings.deadline_s
    return _Settings.client


def _frozen() -> dict[str, str]:
    if _Settings.initial is None:
        return {}
    return {_Settings.slot: Path(_Settings.initial).read_text(encoding="utf-8")}


def _result(answer: Answer) -> Any:
    from openevolve.evaluation_result import EvaluationResult

    metrics = {name: float(value) for name, value in answer["metrics"].items()}
    metrics["combined_score"] = float(answer["combined_score"])
    return EvaluationResult(metrics=metrics, artifacts=dict(answer["artifacts"]))


def evaluate(program_path: str) -> Any:
    """Simulates the train suite."""
    source = Path(program_path).read_text(encoding="utf-8")
    return _result(client().evaluate({_Settings.slot: source}, suite=_Settings.suite, frozen=_frozen()))


def evaluate_stage1(program_path: str) -> Any:
    """Compiles and checks the contract. 1 where stage 2 is worth while, 0 else; all metrics either way."""
    source = Path(program_path).read_text(encoding="utf-8")
    verdict = client().validate({_Settings.slot: source}, frozen=_frozen())
    metrics = {**client().zero_metrics()}
    artifacts = {}
    if not verdict["valid"]:
        artifacts["failure"] = verdict["error"]["message"]
    score = 1.0 if verdict["valid"] else 0.0
    return _result({"metrics": metrics, "combined_score": score, "artifacts": artifacts})


evaluate_stage2 = evaluate
