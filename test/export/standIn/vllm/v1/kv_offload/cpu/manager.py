"""A manager that calls a policy as the one of vLLM 0.33.0 does, written from its description (`facts.md` 4)."""

import enum
import importlib

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus


class LookupResult(enum.Enum):
    MISS = 0
    HIT = 1
    HIT_PENDING = 2


class Stored:
    def __init__(self, keys_to_store, evicted_keys):
        self.keys_to_store = keys_to_store
        self.evicted_keys = evicted_keys


class Access:
    def __init__(self):
        self.groups = {}
        self.seen = set()
        self.inserted = set()
        self.reused = set()
        self.missed = set()


class CPUOffloadingManager:
    def __init__(self, num_chunks, cache_policy, cache_policy_module_path):
        cls = getattr(importlib.import_module(cache_policy_module_path), cache_policy)
        assert issubclass(cls, CachePolicy)
        self._policy = cls(cache_capacity=num_chunks)
        self._free = list(range(num_chunks))[::-1]
        self._evictable = 0

    def on_new_request(self, context):
        context.set_state(Access())

    def lookup(self, key, context):
        chunk = self._policy.get(key)
        if chunk is None:
            return LookupResult.MISS
        return LookupResult.HIT if chunk.is_ready else LookupResult.HIT_PENDING

    def _record(self, keys, context, reused):
        access = context.get_state(Access)
        new = [key for key in keys if key not in access.seen]
        for key in new:
            access.groups.setdefault(key[-4:], []).append(key)
            access.seen.add(key)
        if new:
            self._policy.on_request_access(new, context)
        access.reused.update(key for key in reused if key not in access.inserted)

    def prepare_load(self, keys, context):
        for key in keys:
            chunk = self._policy.get(key)
            if chunk.ref_cnt == 0:
                self._policy.mark_non_evictable(key)
                self._evictable -= 1
            chunk.ref_cnt += 1
        self._record(keys, context, keys)

    def complete_load(self, keys, context):
        for key in keys:
            chunk = self._policy.get(key)
            chunk.ref_cnt -= 1
            if chunk.ref_cnt == 0:
                self._evictable += 1
                self._policy.mark_evictable(key)

    def prepare_store(self, keys, context):
        access = context.get_state(Access)
        to_store = [key for key in keys if self._policy.get(key) is None]
        ready = [key for key in keys if (chunk := self._policy.get(key)) is not None and chunk.is_ready]
        missed = [key for key in to_store if key not in access.missed]
        if missed:
            self._policy.on_store_miss(missed, context)
            access.missed.update(missed)
        self._record([key for key in keys if key in to_store or key in ready], context, ready)
        need = len(to_store) - len(self._free)
        evicted = []
        if need > 0:
            if need > self._evictable:
                return None
            victims = self._policy.evict(need, set(keys))
            if victims is None:
                return None
            self._evictable -= len(victims)
            for key, chunk in victims:
                self._free.append(chunk.chunk_id)
                evicted.append(key)
        for key in to_store:
            self._policy.insert(key, ChunkStatus(self._free.pop()), context)
        access.inserted.update(to_store)
        return Stored(to_store, evicted)

    def complete_store(self, keys, context, success=True):
        for key in keys:
            chunk = self._policy.get(key)
            if chunk is None or chunk.is_ready:
                continue
            if success:
                chunk.ref_cnt = 0
                self._evictable += 1
                self._policy.mark_evictable(key)
            else:
                self._policy.remove(key)
                self._free.append(chunk.chunk_id)

    def on_request_finished(self, context):
        access = context.get_state(Access)
        groups = tuple(
            tuple(sorted(keys, key=context.get_offload_key_position))
            for _, keys in sorted(access.groups.items())
        )
        self._policy.on_request_finished(groups, access.inserted - access.reused, access.reused, context)

    def reset_cache(self):
        self._policy.clear()
        self._evictable = 0
