"""Drives a manager of vLLM with an exported policy: reads {capacity, policy, module, ops} from stdin, writes evictions.

    python3 driver.py FOLDER_OF_VLLM FOLDER_OF_MODULE

An op is [kind, request, nowUs, ids]: "open" looks the ids up and loads the leading ones that are there, "store" offers
ids, "end" finishes the request. The answer has a list for each op: found ids of an open, evicted ids of a store.
"""

import importlib.abc
import importlib.machinery
import json
import sys
import types

for path in sys.argv[1:3]:
    sys.path.insert(0, path)


class Anything(types.ModuleType):
    """Stands for a module that the manager imports and that no decision reads."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "init_logger":
            return lambda *_: types.SimpleNamespace(**{k: lambda *_: None for k in ("info", "warning", "warning_once")})
        return type(name, (), {})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch and whatever of vllm lies outside of the folder that the wheel was unzipped from."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("vllm."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        return


sys.meta_path.append(Absent())

from vllm.v1.kv_offload.base import ReqContext, make_offload_key  # noqa: E402
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager, LookupResult  # noqa: E402

task = json.load(sys.stdin)
manager = CPUOffloadingManager(task["capacity"], task["policy"], task["module"])
cache = manager._policy
now = 0
cache.now_us = lambda: now


def key_of(i):
    return make_offload_key(i.to_bytes(16, "big"), 0)


def id_of(key):
    return int.from_bytes(key[:16], "big")


running = {}
answers = []
for kind, request, now, ids in task["ops"]:
    if kind == "open":
        context = running[request] = ReqContext(str(request))
        keys = [key_of(i) for i in ids]
        for at, key in enumerate(keys):
            context.set_offload_key_position(key, (at + 1) * task["tokens"])
        manager.on_new_request(context)
        found = 0
        while found < len(keys) and manager.lookup(keys[found], context) is LookupResult.HIT:
            found += 1
        if found > 0:
            manager.prepare_load(keys[:found], context)
            manager.complete_load(keys[:found], context)
        answers.append(ids[:found])
    elif kind == "store":
        stored = manager.prepare_store([key_of(i) for i in ids], running[request])
        if stored is None:
            answers.append(None)
            continue
        manager.complete_store(stored.keys_to_store, running[request])
        answers.append([id_of(key) for key in stored.evicted_keys])
    else:
        manager.on_request_finished(running.pop(request))
        answers.append([])
json.dump(answers, sys.stdout)
