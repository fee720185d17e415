"""Many threads ask one client; some candidates hang, one stops the evaluator's process, one does not compile."""

import json
import multiprocessing
import sys
import threading

from programs import program
from tierkv_evolve import Client, EvaluatorError

command = sys.argv[1:]
client = Client(command, deadline_s=4.0, parallel=3)
candidates = {f"good {i}": program(i / 10) for i in range(8)}
candidates["hangs"] = program(0.5, "hang")
candidates["freezes"] = program(0.5, "freeze")
candidates["broken"] = "def score(:\n"
candidates["frozen"] = program(0.5).replace("[rate(instance)", "[2 * rate(instance)")
answers = {}


def ask(name, text):
    frozen = {"routing": program(0.1)} if name == "frozen" else None
    answers[name] = client.evaluate({"routing": text}, frozen=frozen)


threads = [threading.Thread(target=ask, args=item) for item in candidates.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
again = client.evaluate({"routing": candidates["good 3"]})


def in_child(queue):
    queue.put(client.evaluate({"routing": program(0.65)})["combined_score"])


fork = multiprocessing.get_context("fork")
queue = fork.Queue()
child = fork.Process(target=in_child, args=(queue,))
child.start()
forked = queue.get(timeout=60)
child.join()
after_fork = client.evaluate({"routing": program(0.66)})["combined_score"]
client.close()
try:
    Client([*command[:-1], "no-such-file.ts"], deadline_s=5.0).evaluate({"routing": program(0.5)})
    error = None
except EvaluatorError as failure:
    error = str(failure)
result = {
    "status": {name: answer["status"] for name, answer in answers.items()},
    "scores": {name: answer["combined_score"] for name, answer in answers.items()},
    "kinds": {name: answer["error"]["kind"] for name, answer in answers.items() if answer.get("error")},
    "metrics": {name: sorted(answer["metrics"]) for name, answer in answers.items()},
    "forked": forked,
    "afterFork": after_fork,
    "again": again == answers["good 3"],
    "noEvaluator": error,
}
json.dump(result, sys.stdout)
