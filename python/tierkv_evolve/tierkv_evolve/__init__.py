"""Connects evolutionary frameworks to the policy evaluator of tierkv.

``client`` talks to the evaluator. ``openevolve``, ``gepa`` and ``skydiscover`` are thin shims over it, each of
which imports its framework only when it is used.
"""

from .client import Answer, Client, EvaluatorError

__all__ = ["Answer", "Client", "EvaluatorError"]
