"""GEPA: an adapter for ``gepa.optimize``, and evaluators for ``optimize_anything``.

::

    adapter = TierKVAdapter(Client())
    gepa.optimize(seed_candidate={"routing": text}, trainset=adapter.scenarios("train"),
                  valset=adapter.scenarios("validation"), adapter=adapter, reflection_lm=lm,
                  frontier_type="hybrid", max_metric_calls=200)

A component is a slot of the policy bundle. An example is one case of a suite: a workload, a model of time and
a seed. All cases of a candidate come from one simulation run of the suite, so asking for one more is free.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence

from .client import Answer, Client, EvaluatorError

Scenario = dict[str, str]


def _utility(combined: float) -> float:
    """From the evaluator's score, of which 1 is the baseline, to one below 1, of which 0.5 is the baseline.

    GEPA takes 1 for perfect and asks for nothing better.
    """
    return combined / (1.0 + combined)


def _utility_of_gain(gain: float) -> float:
    return _utility(1.0 + gain if gain >= 0 else 1.0 / (1.0 - gain))


class TierKVAdapter:
    """What GEPA calls. It raises where the first candidate, the seed, has no score, and never for a later one."""

    propose_new_texts = None

    def __init__(self, client: Client, frozen: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.frozen = dict(frozen or {})
        self._has_scored = False

    def scenarios(self, suite: str = "train") -> list[Scenario]:
        """The cases of a suite, as examples."""
        answer = self.client.baseline(suite)
        return [{"suite": suite, "case": each["id"]} for each in answer["per_scenario"]]

    def _answers(self, batch: Sequence[Scenario], candidate: Mapping[str, str]) -> dict[str, Answer]:
        suites = dict.fromkeys(each["suite"] for each in batch)
        answers = {suite: self.client.evaluate(candidate, suite=suite, frozen=self.frozen) for suite in suites}
        if not self._has_scored:
            refuse_failed_seed(answers.values())
            self._has_scored = True
        return answers

    def evaluate(
        self, batch: list[Scenario], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        from gepa.core.adapter import EvaluationBatch

        answers = self._answers(batch, candidate)
        rows = [_row(answers[each["suite"]], each) for each in batch]
        return EvaluationBatch(
            outputs=rows,
            scores=[row["score"] for row in rows],
            trajectories=rows if capture_traces else None,
            objective_scores=[row["objectives"] for row in rows],
        )

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        rows = eval_batch.trajectories or []
        return {component: [_record(row) for row in rows] for component in components_to_update}


def refuse_failed_seed(answers: Iterable[Answer]) -> None:
    """A search from a seed without a score would have nothing to compare with."""
    for answer in answers:
        if answer["status"] != "success":
            raise EvaluatorError(f"the seed candidate has no score. {answer['error']['message']}")


def _objective_names(answer: Answer) -> list[str]:
    return [name[len("gain_") :] for name in answer["metrics"] if name.startswith("gain_")]


def _row(answer: Answer, scenario: Scenario) -> dict[str, Any]:
    found = next((each for each in answer["per_scenario"] if each["id"] == scenario["case"]), None)
    gains = found["objectives"] if found else dict.fromkeys(_objective_names(answer), None)
    return {
        "case": scenario["case"],
        "score": _utility(found["score"]) if found else 0.0,
        "objectives": {name: 0.0 if gain is None else _utility_of_gain(gain) for name, gain in gains.items()},
        "feedback": "\n\n".join(str(text) for text in answer["artifacts"].values()),
    }


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    objectives = ", ".join(f"{name} {value:.3f}" for name, value in row["objectives"].items())
    return {
        "Inputs": {"case": row["case"]},
        "Generated Outputs": f"score {row['score']:.4f}, where 0.5 is the baseline ({objectives})",
        "Feedback": row["feedback"],
    }


class AnythingEvaluator:
    """Evaluators for ``optimize_anything``: pass the object as ``evaluator``, ``batch`` as ``batch_evaluator``.

    :param slot: where the candidate is one text and not a dict of components.
    """

    def __init__(self, client: Client, slot: str = "routing", frozen: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.slot = slot
        self.frozen = dict(frozen or {})
        self._has_scored = False

    def __call__(self, candidate: Any, example: Scenario | None = None) -> tuple[float, dict[str, Any]]:
        texts = {self.slot: candidate} if isinstance(candidate, str) else dict(candidate)
        suite = "train" if example is None else example["suite"]
        answer = self.client.evaluate(texts, suite=suite, frozen=self.frozen)
        if not self._has_scored:
            refuse_failed_seed([answer])
            self._has_scored = True
        if example is None:
            score = _utility(answer["combined_score"])
            gains = {name: answer["metrics"][f"gain_{name}"] for name in _objective_names(answer)}
            scores = {name: _utility_of_gain(gain) for name, gain in gains.items()}
        else:
            row = _row(answer, example)
            score, scores = row["score"], row["objectives"]
        if answer["status"] != "success":
            scores = dict.fromkeys(scores, 0.0)
        feedback = "\n\n".join(str(text) for text in answer["artifacts"].values())
        info: dict[str, Any] = {"scores": scores, "Feedback": feedback}
        if answer.get("error"):
            info["Error"] = answer["error"]["message"]
        if example is not None:
            info["Input"] = example["case"]
        return float(score), info

    def batch(self, pairs: Sequence[tuple[Any, Scenario | None]]) -> list[tuple[float, dict[str, Any]]]:
        """All pairs of a stage at once, several candidates side by side."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=min(8, max(1, len(pairs)))) as pool:
            return list(pool.map(lambda pair: self(*pair), pairs))
