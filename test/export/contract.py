"""What vLLM may ask of a policy beside the ordinary: python3 contract.py FOLDER_OF_VLLM FOLDER_OF_MODULE."""

import sys

sys.path[:0] = sys.argv[1:3]

from tierkv_hazard import TierkvHazard  # noqa: E402
from vllm.v1.kv_offload.base import ReqContext, make_offload_key  # noqa: E402
from vllm.v1.kv_offload.cpu.policies.base import ChunkStatus  # noqa: E402

cache = TierkvHazard(cache_capacity=4)
keys = [make_offload_key(i.to_bytes(16, "big"), 0) for i in range(8)]


def store(context, some):
    cache.on_store_miss(some, context)
    cache.on_request_access(some, context)
    for key in some:
        cache.insert(key, ChunkStatus(0), context)


def ready(some):
    for key in some:
        cache.get(key).ref_cnt = 0
        cache.mark_evictable(key)


# no positions are told: chunks follow one another in the order in which they are seen
first = ReqContext("first")
store(first, keys[:4])
assert cache.evict(1, set()) is None, "nothing is evicted that is not ready"
ready(keys[:3])
cache.remove(keys[3])  # its store failed
assert cache.get(keys[3]) is None
cache.on_request_finished((tuple(keys[:3]),), set(keys[:3]), set(), first)
cache.on_request_finished((tuple(keys[:3]),), set(keys[:3]), set(), first)

assert cache.evict(3, {keys[0]}) is None, "evict is all or nothing"
assert all(cache.get(key) is not None for key in keys[:3])

cache.get(keys[2]).ref_cnt = 1
cache.mark_non_evictable(keys[2])
assert [key for key, _ in cache.evict(1, {keys[1]})] == [keys[0]], "neither pinned nor protected"
cache.get(keys[2]).ref_cnt = 0
cache.mark_evictable(keys[2])
assert [key for key, _ in cache.evict(2, set())] == [keys[2], keys[1]], "the end of a chain goes first"

# of a running request when nothing else is left
second = ReqContext("second")
store(second, keys[4:6])
ready(keys[4:6])
assert len(cache.evict(1, set())) == 1
cache.on_request_finished((tuple(keys[4:6]),), set(), set(), second)
assert len(cache.evict(1, set())) == 1

third = ReqContext("third")
store(third, keys[6:8])
cache.clear()
assert cache.get(keys[6]) is None
cache.on_request_finished((tuple(keys[6:8]),), set(keys[6:8]), set(), third)
store(ReqContext("fourth"), keys[6:8])
print("kept")
