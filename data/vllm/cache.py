# What vLLM calls, and what a policy of tierkv is told of it. One visit is one request: it uses chunks that it finds and
# chunks that it stores, and lets all of them go when it ends, from the last to the first. A policy orders the chunks
# that no running request uses; of the others none is named before those are used up.


class Block:
    """A chunk that is resident."""

    __slots__ = ("key", "chunk", "parent", "tokens", "holders", "released", "entered", "idle", "gone")

    def __init__(self, key, chunk, parent, tokens):
        self.key = key
        self.chunk = chunk
        self.parent = parent  # the Block before it in its chain, or None
        self.tokens = tokens
        self.holders = 0  # running requests that use it
        self.released = 0  # number of its last release, in order of time
        self.entered = False  # whether the policy orders it
        self.idle = chunk.ref_cnt == 0
        self.gone = False


class Use:
    """The visit of one request, kept in its context."""

    def __init__(self, owner, generation, number):
        self.owner = owner
        self.generation = generation
        self.number = number
        self.blocks = {}
        self.finished = False
        self.before = {}  # key -> (key before it in its chain or None, tokens)
        self.seen = 0
        self.last = {}  # group -> (last key, its end)


class Cache(CachePolicy):
    """Chunks in the order of a policy of tierkv. A subclass names the policy in `make_policy`."""

    chunk_tokens = 16  # tokens of a chunk whose place in its prompt vLLM does not tell

    @staticmethod
    def now_us():
        return time.monotonic_ns() // 1000

    def make_policy(self):
        raise NotImplementedError

    def __init__(self, cache_capacity):
        super().__init__(cache_capacity)
        self.generation = 0
        self._reset()

    def _reset(self):
        self.blocks = {}
        self.generation += 1
        self.resident = 0  # chunks that the pool holds, those included that are stored next
        self._idle = {}  # key -> Block, in the order in which they became idle
        self._fresh = []
        self._visits = 0
        self._releases = 0
        self._policy = self.make_policy()

    # Requests.

    def _use_of(self, keys, context):
        use = context.get_state(Use)
        if use is None or use.owner is not self or use.generation != self.generation:
            self._visits += 1
            use = Use(self, self.generation, self._visits)
            context.set_state(use)
            self._chain(use, keys, context)
            found = 0
            for key in keys:
                block = self.blocks.get(key)
                if block is None or block.chunk.ref_cnt < 0:
                    break
                found += 1
            self._policy.begin(use.number, max(len(use.before), len(keys)), found)
        else:
            self._chain(use, keys, context)
        return use

    def _chain(self, use, keys, context):
        """Notes which key comes before which, as far as the context tells it, and else by the order of `keys`."""
        positions = getattr(context, "_offload_key_positions", None)
        if positions is None:
            known = [key for key in keys if key not in use.before]
        elif len(positions) == use.seen:
            return
        else:
            known = list(positions)[use.seen :]
            use.seen = len(positions)
        for key in known:
            group = key[-4:]
            before, start = use.last.get(group, (None, 0))
            end = context.get_offload_key_position(key)
            tokens = self.chunk_tokens if end is None else max(0, end - start)
            use.before[key] = (before, tokens)
            use.last[group] = (key, start + tokens)

    def _access(self, keys, context):
        self._settle()
        keys = list(keys)
        use = self._use_of(keys, context)
        if use.finished:
            return
        for key in keys:
            block = self.blocks.get(key)
            if block is None or block in use.blocks:
                continue
            use.blocks[block] = None
            block.holders += 1
            self._policy.touch(block, use.number)
            if block.entered:
                block.entered = False
                self._policy.leave(block)

    def _settle(self):
        """Tells the policy of chunks that were inserted since: all of one store count as resident before the first."""
        if not self._fresh:
            return
        self.resident = len(self.blocks)
        fresh, self._fresh = self._fresh, []
        for block, number in fresh:
            if not block.gone:
                self._policy.touch(block, number)

    def _forget(self, block):
        block.gone = True
        del self.blocks[block.key]
        self._idle.pop(block.key, None)
        self.resident -= 1
        self._policy.forgotten(block)

    def _enter(self, block):
        block.entered = True
        self._policy.enter(block)

    # What vLLM calls.

    def get(self, key):
        block = self.blocks.get(key)
        return None if block is None else block.chunk

    def insert(self, key, chunk, req_context):
        use = self._use_of([key], req_context)
        before, tokens = use.before.get(key, (None, self.chunk_tokens))
        block = self._policy.block_type(key, chunk, self.blocks.get(before), tokens)
        self.blocks[key] = block
        if block.idle:
            self._idle[key] = block
        if not use.finished:
            use.blocks[block] = None
            block.holders = 1
        self._fresh.append((block, use.number))
        if use.finished:
            self._settle()
            self._release(block)

    def remove(self, key):
        self._settle()
        block = self.blocks[key]
        self.resident = len(self.blocks)
        if block.entered:
            block.entered = False
            self._policy.leave(block)
        self._forget(block)

    def touch(self, keys, req_context):
        self._access(keys, req_context)

    def on_store_miss(self, keys, req_context):
        return

    def on_request_access(self, keys, req_context):
        self._access(keys, req_context)

    def on_request_finished(self, key_groups, insertion_only_keys, reused_keys, req_context):
        self._settle()
        use = req_context.get_state(Use)
        if use is None or use.owner is not self or use.generation != self.generation or use.finished:
            return
        use.finished = True
        blocks = list(use.blocks)
        positions = [req_context.get_offload_key_position(block.key) for block in blocks]
        if None not in positions:
            place = dict(zip(blocks, positions))
            blocks.sort(key=place.__getitem__)
        for block in reversed(blocks):
            if block.gone:
                continue
            block.holders -= 1
            if block.holders == 0:
                self._release(block)
        use.blocks = {}

    def _release(self, block):
        self._releases += 1
        block.released = self._releases
        block.holders = 0
        self._enter(block)

    def evict(self, n, protected):
        if n == 0:
            return []
        self._settle()
        if len(self._idle) - sum(1 for key in protected if key in self._idle) < n:
            return None
        evicted = []
        aside = []
        while len(evicted) < n:
            self.resident = self.cache_capacity
            block = self._policy.victim()
            if block is None:
                break
            block.entered = False
            self._policy.leave(block)
            if not block.idle or block.key in protected:
                aside.append(block)
                continue
            self._forget(block)
            evicted.append((block.key, block.chunk))
        if len(evicted) < n:
            # All that is left is used by a running request: its copy on the device outlives the one here.
            left = [b for b in self._idle.values() if b.key not in protected and b not in aside]
            for block in left[: n - len(evicted)]:
                self._forget(block)
                evicted.append((block.key, block.chunk))
        for block in aside:
            self._enter(block)
        return evicted

    def clear(self):
        self._reset()

    def mark_evictable(self, key):
        block = self.blocks[key]
        block.idle = True
        self._idle[key] = block

    def mark_non_evictable(self, key):
        block = self.blocks[key]
        block.idle = False
        self._idle.pop(key, None)


class Ranked:
    """Entered blocks by rank, the lowest first; among equals, the one that was released first."""

    def __init__(self):
        self._heap = []
        self._entry = {}
        self._count = 0

    def __len__(self):
        return len(self._entry)

    def enter(self, block, rank):
        self._count += 1
        entry = (rank, block.released, self._count, block)
        self._entry[block] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 64 + 2 * len(self._entry):
            self._heap = list(self._entry.values())
            heapq.heapify(self._heap)

    def leave(self, block):
        del self._entry[block]

    def first(self):
        heap = self._heap
        while heap and self._entry.get(heap[0][3]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][3] if heap else None


class RankedPolicy:
    """Gives each block one number as it is let go; the lowest goes first."""

    def __init__(self, cache):
        self.cache = cache
        self._ranked = Ranked()

    def rank_of(self, block):
        raise NotImplementedError

    def begin(self, number, asked, found):
        return

    def touch(self, block, number):
        return

    def enter(self, block):
        self._ranked.enter(block, self.rank_of(block))

    def leave(self, block):
        self._ranked.leave(block)

    def victim(self):
        return self._ranked.first()

    def forgotten(self, block):
        return
