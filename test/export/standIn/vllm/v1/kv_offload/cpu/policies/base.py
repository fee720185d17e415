"""The interface of an eviction policy in vLLM 0.33.0, written from its description: names, arguments, which are needed."""

from abc import ABC, abstractmethod


class ChunkStatus:
    def __init__(self, chunk_id):
        self.ref_cnt = -1
        self.chunk_id = chunk_id

    @property
    def is_ready(self):
        return self.ref_cnt >= 0


class CachePolicy(ABC):
    def __init__(self, cache_capacity):
        self.cache_capacity = cache_capacity

    @abstractmethod
    def get(self, key): ...

    @abstractmethod
    def insert(self, key, chunk, req_context): ...

    @abstractmethod
    def remove(self, key): ...

    @abstractmethod
    def touch(self, keys, req_context): ...

    def on_store_miss(self, keys, req_context):
        self.touch(keys, req_context)

    def on_request_access(self, keys, req_context):
        return

    def on_request_finished(self, key_groups, insertion_only_keys, reused_keys, req_context):
        for keys in key_groups:
            self.touch(keys, req_context)

    @abstractmethod
    def evict(self, n, protected): ...

    @abstractmethod
    def clear(self): ...

    def mark_evictable(self, key):
        return

    def mark_non_evictable(self, key):
        return
