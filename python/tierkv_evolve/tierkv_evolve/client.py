"""A client of ``tierkv evaluate --serve``: one long-lived process, lines of JSON, a deadline for each candidate.

A candidate that the evaluator does not answer in time costs only itself: the process is killed, a new one is
started, and whatever else was asked is asked again there. Where several were under way, nobody can tell which of
them stopped the process; each is asked once more, alone, before it counts as failed. All methods may be called
from several threads.
"""

from __future__ import annotations

import atexit
import copy
import hashlib
import json
import logging
import os
import shlex
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

Answer = dict[str, Any]

_log = logging.getLogger("tierkv_evolve")

#: Command that serves the evaluator, unless the caller or ``TIERKV_EVOLVE_COMMAND`` names another.
DEFAULT_COMMAND = ("tierkv", "evaluate", "--serve")

#: The baseline, which is simulated before the first candidate, may take so many deadlines.
BASELINE_DEADLINES = 10

#: The evaluator's own limit is this share of the deadline, so that it ends a candidate before it is killed.
OWN_SHARE = 0.8

#: Seconds that a new process may take until it answers at all.
START_S = 60.0

_STARTS_IN_A_ROW = 3
_LOOK_S = 0.25


class EvaluatorError(RuntimeError):
    """The evaluator cannot be run, or refuses a request. Never raised for a candidate that fails."""


class _NoAnswer(TimeoutError):
    def __init__(self, deadline_s: float, was_alone: bool) -> None:
        super().__init__(f"no answer within {deadline_s} s")
        self.was_alone = was_alone


class _Pending:
    def __init__(self, request: dict[str, Any], own_s: float) -> None:
        self.request = request
        self.own_s = own_s
        self.deadline = time.monotonic() + own_s
        self.done = threading.Event()
        self.response: dict[str, Any] | None = None
        self.failure: Exception | None = None


def default_command() -> list[str]:
    """``tierkv`` where it is on the PATH, else by npm in the checkout of tierkv in or above this folder."""
    if shutil.which(DEFAULT_COMMAND[0]) is None:
        for folder in (Path.cwd(), *Path.cwd().parents):
            try:
                name = json.loads((folder / "package.json").read_text(encoding="utf-8")).get("name")
            except (OSError, ValueError, AttributeError):
                continue
            if name == "tierkv" and (folder / "src" / "cli" / "main.ts").exists():
                return ["npm", "run", "--silent", "--prefix", str(folder), *DEFAULT_COMMAND[:1], "--", *DEFAULT_COMMAND[1:]]
    return list(DEFAULT_COMMAND)


class Client:
    """Evaluates policies in a process of its own.

    :param command: what serves the evaluator, as a list or one text; default ``TIERKV_EVOLVE_COMMAND``, then
        ``tierkv evaluate --serve``, in a checkout of tierkv by npm.
    :param deadline_s: seconds that one candidate may take, a start of the process and the baseline not counted.
        Keep it well below the framework's own time-out, which does not end what it times out.
    :param parallel: candidates that are evaluated at once. A candidate's time begins when it is its turn. Each
        is spread over the evaluator's threads already, so a few are enough.
    """

    def __init__(
        self, command: Sequence[str] | str | None = None, deadline_s: float = 60.0, parallel: int = 2
    ) -> None:
        command = command or os.environ.get("TIERKV_EVOLVE_COMMAND") or default_command()
        if not deadline_s > 0:
            raise ValueError(f"deadline_s is {deadline_s}. Give seconds above 0")
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        self.deadline_s = deadline_s
        self._parallel = parallel
        self._begin_anew()
        self._next_id = 0
        self._starts = 0
        self._is_ready = False
        self._cache: dict[str, Answer] = {}
        self._zero_metrics: dict[str, float] = {}
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        """Without a process: at first, and in a process that was forked, whose parent keeps the one there was."""
        self._lock = threading.RLock()
        self._turns = threading.BoundedSemaphore(self._parallel)
        self._alone = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._pending: dict[int, _Pending] = {}
        self._preparing = threading.Lock()
        #: Suites of which this process has simulated the baseline, and the seconds that it took.
        self._prepared: dict[str, float] = {}

    # -- what callers ask

    def evaluate(
        self,
        candidate: Mapping[str, str] | None = None,
        *,
        bundle: Mapping[str, Any] | None = None,
        suite: str = "train",
        frozen: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
    ) -> Answer:
        """Scores one candidate: a text for each slot, or a whole bundle.

        :param frozen: original texts by slot; an edit outside their marked blocks is refused.
        :return: ``status``, ``combined_score`` (1 is the baseline, 0 a failure), ``metrics`` (always all of
            them), ``per_scenario``, ``artifacts``, ``policy_hash``, and ``error`` where the candidate failed.
        """
        deadline_s = deadline_s or self.deadline_s
        params: dict[str, Any] = {"suite": suite}
        if bundle is not None:
            params["bundle"] = dict(bundle)
        else:
            params["candidate"] = dict(candidate or {})
        if frozen:
            params["frozen"] = dict(frozen)
        key = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()
        with self._lock:
            known = self._cache.get(key)
        if known is not None:
            return copy.deepcopy(known)
        params["limits"] = {"wallMs": max(1, int(1000 * deadline_s * OWN_SHARE))}
        try:
            answer = self._in_turn("evaluate", params, deadline_s)
        except TimeoutError:
            return self._timed_out(deadline_s)
        if answer["status"] == "timeout":
            _log.warning("a candidate has no score. %s", answer["error"]["message"])
        with self._lock:
            if not self._zero_metrics:
                self._zero_metrics = {name: 0.0 for name in answer["metrics"]}
            if answer["status"] != "timeout":  # says something about the machine, not about the policy
                self._cache[key] = answer
        return copy.deepcopy(answer)

    def baseline(self, suite: str = "train", deadline_s: float | None = None) -> Answer:
        """What candidates are compared with; its score is 1."""
        limit_s = deadline_s or BASELINE_DEADLINES * self.deadline_s
        limits = {"wallMs": max(1, int(1000 * limit_s))}
        try:
            answer = self.call("baseline", {"suite": suite, "limits": limits}, limit_s)
        except TimeoutError:
            raise EvaluatorError(
                f"the baseline on {suite} took longer than {limit_s:g} s, which is {BASELINE_DEADLINES} times "
                f"deadline_s. Raise deadline_s, or name a smaller plan with --plan in the command."
            ) from None
        if answer["status"] != "success":
            raise EvaluatorError(f"the baseline on {suite} has no score: {answer['error']['message']}")
        with self._lock:
            self._zero_metrics = {name: 0.0 for name in answer["metrics"]}
        return answer

    def validate(self, candidate: Mapping[str, str], frozen: Mapping[str, str] | None = None) -> Answer:
        """Whether the candidate compiles and keeps the contract of its slots; nothing is simulated."""
        params: dict[str, Any] = {"candidate": dict(candidate)}
        if frozen:
            params["frozen"] = dict(frozen)
        try:
            return self._in_turn("validate", params, self.deadline_s)
        except TimeoutError:
            return {"valid": False, "error": self._timed_out(self.deadline_s)["error"]}

    def describe(self, slots: Sequence[str] | None = None) -> Answer:
        """What a policy may read and do, as ``text`` for a prompt and as data."""
        return self.call("describe", {} if slots is None else {"slots": list(slots)}, self.deadline_s)

    def zero_metrics(self) -> dict[str, float]:
        """Every metric with 0: what a framework is told of a candidate that failed."""
        with self._lock:
            known = dict(self._zero_metrics)
        if known:
            return known
        self.baseline()
        with self._lock:
            return dict(self._zero_metrics)

    def call(self, method: str, params: Mapping[str, Any], deadline_s: float) -> Answer:
        """One request.

        :raises TimeoutError: no answer came in time; the process was killed.
        :raises EvaluatorError: the request is at fault, or no evaluator can be run.
        """
        pending = self._send(method, params, deadline_s)
        was_alone = True
        # the deadline moves: it counts from when the process was ready
        while not pending.done.wait(min(_LOOK_S, max(0.0, pending.deadline - time.monotonic()))):
            with self._lock:
                if pending.done.is_set():
                    break
                if time.monotonic() < pending.deadline:
                    continue
                self._pending.pop(pending.request["id"], None)
                was_alone = not self._pending
                self._restart()
            raise _NoAnswer(deadline_s, was_alone)
        if pending.failure is not None:
            raise pending.failure
        response = pending.response or {}
        if "error" in response:
            raise EvaluatorError(response["error"]["message"])
        return response["result"]

    def close(self) -> None:
        """Ends the process. The next call starts a new one."""
        with self._lock:
            process, self._process = self._process, None
            waiting, self._pending = list(self._pending.values()), {}
        if process is not None:
            _kill(process)
        for pending in waiting:
            pending.failure = EvaluatorError("the client was closed")
            pending.done.set()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the process

    def _in_turn(self, method: str, params: Mapping[str, Any], deadline_s: float) -> Answer:
        try:
            with self._turns:
                self._prepare(method, params)
                return self.call(method, params, deadline_s)
        except _NoAnswer as failure:
            if failure.was_alone:
                raise
        with self._alone:
            for _ in range(self._parallel):
                self._turns.acquire()
        try:
            self._prepare(method, params)
            return self.call(method, params, deadline_s)
        finally:
            for _ in range(self._parallel):
                self._turns.release()

    def _prepare(self, method: str, params: Mapping[str, Any]) -> None:
        """Simulates what candidates are compared with, once a process: its time is no candidate's."""
        suite = params.get("suite")
        if method != "evaluate" or suite in self._prepared:
            return
        with self._preparing:
            if suite in self._prepared:
                return
            began = time.monotonic()
            self.baseline(suite)
            self._prepared[suite] = time.monotonic() - began

    def _timed_out(self, deadline_s: float) -> Answer:
        message = (
            f"infrastructure_timeout: no answer within deadline_s, {deadline_s:g} s. A candidate that loops over less "
            f"is quicker; where the machine is busy or the plan is large, raise deadline_s "
            f"(TIERKV_EVOLVE_DEADLINE_S), or name a smaller plan with --plan in the command."
        )
        _log.warning("a candidate has no score. %s", message)
        return {
            "status": "timeout",
            "combined_score": 0.0,
            "metrics": self.zero_metrics(),
            "per_scenario": [],
            "artifacts": {"failure": message},
            "policy_hash": "",
            "error": {"kind": "infrastructure_timeout", "message": message},
        }

    def _send(self, method: str, params: Mapping[str, Any], deadline_s: float) -> _Pending:
        with self._lock:
            self._next_id += 1
            request = {"id": self._next_id, "method": method, "params": dict(params)}
            pending = _Pending(request, deadline_s)
            self._pending[self._next_id] = pending
            if self._process is None or self._process.poll() is not None:
                self._start()
            else:
                if not self._is_ready:
                    pending.deadline += START_S
                self._write_line(pending.request)
        return pending

    def _start(self) -> None:
        """Starts a process and asks it all that is open. Called with the lock held."""
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None,
                text=True,
                encoding="utf-8",
                bufsize=1,
                start_new_session=True,
            )
        except OSError as error:
            remedy = "Install tierkv, or set TIERKV_EVOLVE_COMMAND, as 'npx tierkv evaluate --serve'."
            self._fail_all(EvaluatorError(f"{self.command[0]} cannot be run: {error}. {remedy}"))
            return
        self._starts += 1
        self._is_ready = False
        reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        reader.start()
        self._write_line({"id": 0, "method": "status"})
        # a new process simulates the baseline again
        before, self._prepared = sum(self._prepared.values()), {}
        now = time.monotonic()
        for pending in list(self._pending.values()):
            pending.own_s += before
            pending.deadline = now + START_S + pending.own_s
            self._write_line(pending.request)

    def _write_line(self, request: Mapping[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except (BrokenPipeError, OSError, ValueError):
            pass  # the reader sees the end of the process and starts another

    def _restart(self) -> None:
        """Kills the process; what is still open gets its whole time again in the next one. Lock held."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
        if self._pending:
            self._start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                response = json.loads(line)
            except json.JSONDecodeError:
                continue
            with self._lock:
                self._starts = 0
                if process is self._process and not self._is_ready:
                    self._is_ready = True
                    now = time.monotonic()
                    for each in self._pending.values():
                        each.deadline = now + each.own_s
                pending = self._pending.pop(response.get("id"), None)
            if pending is not None:
                pending.response = response
                pending.done.set()
        process.wait()
        with self._lock:
            if self._process is not process:
                return  # it was killed on purpose
            self._process = None
            if not self._pending:
                return
            if self._starts >= _STARTS_IN_A_ROW:
                command = " ".join(self.command)
                self._fail_all(
                    EvaluatorError(f"the evaluator ends with code {process.returncode} at once: {command}")
                )
                return
            self._start()

    def _fail_all(self, error: Exception) -> None:
        waiting, self._pending = list(self._pending.values()), {}
        self._starts = 0
        for pending in waiting:
            pending.failure = error
            pending.done.set()


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, 9)
    except (OSError, AttributeError):
        process.kill()
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass
    process.wait()
