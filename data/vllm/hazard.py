# The hazard policy of tierkv: each use of a chain teaches how soon blocks of its kind return, and the leaf with the
# fewest expected returns per time of holding goes first. A guard keeps it from staying behind LRU. The arithmetic is
# that of tierkv's own, operation by operation, so that both evict the same blocks.

BUCKETS = 32
BUCKET_START_US = [
    0.0, 500e3, 707_107.0, 1e6, 1_414_214.0, 2e6, 2_828_427.0, 4e6, 5_656_854.0, 8e6, 11_313_709.0, 16e6,
    22_627_417.0, 32e6, 45_254_834.0, 64e6, 90_509_668.0, 128e6, 181_019_336.0, 256e6, 362_038_672.0, 512e6,
    724_077_344.0, 1024e6, 1_448_154_688.0, 2048e6, 2_896_309_376.0, 4096e6, 5_792_618_751.0, 8192e6,
    11_585_237_503.0, 16_384e6, 23_170_475_006.0,
]  # fmt: skip


def bucket_of(age_us):
    return max(0, bisect.bisect_right(BUCKET_START_US, age_us, 0, BUCKETS) - 1)


# Classes: part of the request, uses of the block, pace of its chain, new tokens of the request.

LAST, NEW, KNOWN = 0, 1, 2
USES, PACES, NEW_TOKENS = 6, 8, 6
CLASSES = 864
NODES = 1030
FIRST_CLASS_NODE = NODES - CLASSES
CELLS = CLASSES * BUCKETS


def class_of(part, uses, pace, new_tokens):
    uses_level = bisect.bisect_right((2, 3, 5, 9, 33), uses)
    pace_level = 0 if pace == 0 else min(7, 1 + (pace >> 5))
    new_level = bisect.bisect_right((65, 513, 2049, 8193, 32_769), new_tokens)
    return ((part * USES + uses_level) * PACES + pace_level) * NEW_TOKENS + new_level


def make_parents():
    parents = [0] * NODES
    first_parent, first, count = 0, 1, 1
    for width in (3, USES, PACES, NEW_TOKENS):
        for i in range(count * width):
            parents[first + i] = first_parent + i // width
        first_parent = first
        count *= width
        first += count
    return parents


PARENT = make_parents()
NO_REQUEST = class_of(KNOWN, 1, 0, 0)

BUCKET_WEIGHT = 10.0
LEVEL_WEIGHT = 3.0
PRIOR = 0.01
PRIOR_WEIGHT = 4.0
HIGHEST_HAZARD = 0.95


class Estimates:
    """Chance of a return by class and age, drawn towards the class above, and what keeping a block is worth."""

    def __init__(self):
        self.worth = [0.0] * CELLS
        self._returns = [[0.0] * BUCKETS for _ in range(NODES)]
        self._exposures = [[0.0] * BUCKETS for _ in range(NODES)]
        self._hazard = [[0.0] * BUCKETS for _ in range(NODES)]
        self._used = [False] * NODES

    def use(self, c):
        if not self._used[FIRST_CLASS_NODE + c]:
            self._use(FIRST_CLASS_NODE + c)

    def add_returns(self, c, bucket, weight):
        self._returns[FIRST_CLASS_NODE + c][bucket] += weight

    def add_exposures(self, c, bucket, weight):
        self._exposures[FIRST_CLASS_NODE + c][bucket] += weight

    def halve(self):
        for counts in self._returns, self._exposures:
            for node, row in enumerate(counts):
                counts[node] = [value * 0.5 for value in row]

    def refit(self):
        returns, exposures = self._returns, self._exposures
        used = [node for node in range(NODES) if self._used[node]]
        for node in used:
            if node < FIRST_CLASS_NODE:
                returns[node] = [0.0] * BUCKETS
                exposures[node] = [0.0] * BUCKETS
        for node in reversed(used):
            if node > 0:
                parent = PARENT[node]
                returns[parent] = [a + b for a, b in zip(returns[parent], returns[node])]
                exposures[parent] = [a + b for a, b in zip(exposures[parent], exposures[node])]
        for node in used:
            self._refit_node(node)

    def _use(self, node):
        if node != 0 and not self._used[PARENT[node]]:
            self._use(PARENT[node])
        self._used[node] = True
        self._refit_node(node)

    def _refit_node(self, node):
        returns, exposures = self._returns[node], self._exposures[node]
        if node == 0:
            self._hazard[0] = [
                (r + PRIOR_WEIGHT * PRIOR) / (e + PRIOR_WEIGHT) for r, e in zip(returns, exposures)
            ]
            return
        parent = self._hazard[PARENT[node]]
        seen = LEVEL_WEIGHT
        expected = LEVEL_WEIGHT
        for b in range(BUCKETS):
            seen += returns[b]
            expected += exposures[b] * parent[b]
        level = seen / expected
        hazard = [
            (r + BUCKET_WEIGHT * min(HIGHEST_HAZARD, level * p)) / (e + BUCKET_WEIGHT)
            for r, e, p in zip(returns, exposures, parent)
        ]
        self._hazard[node] = hazard
        if node >= FIRST_CLASS_NODE:
            self._rate(node - FIRST_CLASS_NODE, hazard)

    def _rate(self, c, hazard):
        returned, held, stays = [], [], []
        for b in range(BUCKETS - 1, -1, -1):
            p = hazard[b]
            r = p
            t = (BUCKET_START_US[b + 1] - BUCKET_START_US[b]) * (1 - p / 2)
            stay = 1 - p
            while returned and returned[-1] * t > r * held[-1]:
                r += stay * returned.pop()
                t += stay * held.pop()
                stay *= stays.pop()
            returned.append(r)
            held.append(t)
            stays.append(stay)
            self.worth[c * BUCKETS + b] = r / t


COHORT_LIMIT = 2**16
COHORT_MEMORY = 32_768


class Cohorts:
    """Blocks of one request and class that were let go together; a cohort weighs 1 in all."""

    def __init__(self, estimates):
        self._estimates = estimates
        self._time_us = {}
        self._class = {}
        self._open = {}
        self._weight = {}
        self.newest = 0
        self._size = 256
        self._gathering = False
        self._visit = 0
        self._unreached = [1] * BUCKETS
        self._seen = 0
        self.returns = 0.0
        self.first_held = 1
        self._held = 0

    def join(self, c, visit, now_us):
        at = self.newest
        if (
            not self._gathering
            or self._visit != visit
            or self._class[at] != c
            or self._time_us[at] != now_us
        ):
            self.close()
            self._begin(c, visit, now_us)
        self._open[self.newest] += 1
        self._held += 1
        return self.newest

    def close(self):
        if not self._gathering:
            return
        self._weight[self.newest] = 1 / self._open[self.newest]
        self._gathering = False

    def _begin(self, c, visit, now_us):
        newest = self.newest + 1
        if newest > self._size and self._size < COHORT_LIMIT:
            self._size *= 2
        oldest = newest - self._size
        if oldest >= self.first_held:
            self._held -= self._open[oldest]
            self.first_held = oldest + 1
        if oldest > 0:
            for column in self._time_us, self._class, self._open, self._weight:
                column.pop(oldest, None)
        self.newest = newest
        self._class[newest] = c
        self._time_us[newest] = now_us
        self._open[newest] = 0
        self._gathering = True
        self._visit = visit

    def returned(self, cohort, blocks, now_us):
        if not self._keeps(cohort):
            return
        weight = blocks * self._weight[cohort]
        self._estimates.add_returns(self._class[cohort], bucket_of(now_us - self._time_us[cohort]), weight)
        self.returns += weight
        self._take(cohort, blocks)

    def forgotten(self, cohort):
        if self._keeps(cohort):
            self._take(cohort, 1)

    def _take(self, cohort, blocks):
        self._open[cohort] -= blocks
        if cohort >= self.first_held:
            self._held -= blocks

    def _keeps(self, cohort):
        return cohort > 0 and cohort > self.newest - self._size

    def mature(self, now_us):
        for b in range(BUCKETS):
            cohort = max(self._unreached[b], self.newest - self._size + 1)
            while cohort <= self.newest and now_us - self._time_us[cohort] >= BUCKET_START_US[b]:
                count = self._open[cohort]
                if count > 0:
                    self._estimates.add_exposures(self._class[cohort], b, count * self._weight[cohort])
                if b == 0:
                    self._seen += 1
                cohort += 1
            self._unreached[b] = cohort
        if self._seen > COHORT_MEMORY:
            self._seen >>= 1
            self._estimates.halve()

    def hold_at_most(self, blocks):
        while self._held > blocks and self.first_held <= self.newest:
            self._held -= self._open[self.first_held]
            self.first_held += 1
        return blocks - self._held


EVIDENCE = 128
LEARNING = 4
MEMORY = 1024


class Guard:
    """Whether the estimates may be followed: their hits beside those of an LRU of the same size."""

    def __init__(self, share):
        self._share = share
        self.behind = 0.0
        self._lookups = 0.0
        self._requests = 1.0
        self.as_lru = False

    def begin(self, blocks, found, capacity, evidence):
        young = evidence < EVIDENCE or self._lookups < LEARNING * capacity
        self.as_lru = young or self.behind > (self._share + 1 / self._requests) * self._lookups
        self._lookups += blocks
        self._requests += 1
        self.behind -= found
        if self._lookups > MEMORY * (capacity + blocks):
            self._lookups *= 0.5
            self.behind *= 0.5
            self._requests *= 0.5


SHARED = 8


class Visit:
    def __init__(self, number, now_us, lru_room):
        self.number = number
        self.last = None
        self.new_tokens = 0
        self.lru_finds = True
        self.lru_room = lru_room
        self.started_us = now_us
        self.blocks = 0
        self.deep_uses = 0
        self.deep_pace = 0
        self.deep_used_us = 0.0
        self.pace = None

    def knows(self, uses, pace, used_us):
        self.pace = None
        self.deep_uses = uses
        self.deep_pace = pace
        self.deep_used_us = used_us

    def pace_of(self):
        if self.pace is None:
            uses = self.deep_uses
            if uses == 0 or uses > SHARED:
                self.pace = 0
            else:
                gap = min(255, 8 * bucket_of(self.started_us - self.deep_used_us) + 8)
                self.pace = gap if self.deep_pace == 0 else (self.deep_pace + gap) >> 1
        return self.pace


class HazardBlock(Block):
    __slots__ = (
        "known", "cohort", "uses", "pace", "cls", "used_us", "visit", "is_new", "children", "counted_by",
        "cell", "next", "prev", "leaf_us",
    )  # fmt: skip

    def __init__(self, *fields):
        super().__init__(*fields)
        self.known = False
        self.cohort = 0
        self.uses = 0
        self.pace = 0
        self.cls = 0
        self.used_us = 0.0
        self.visit = None  # the visit that uses it
        self.is_new = False
        self.children = 0  # entered blocks that follow it
        self.counted_by = None  # the block that counts it as a child
        self.cell = -1
        self.next = None
        self.prev = None
        self.leaf_us = 0.0


class FilledCells:
    """Cells that are not empty: a heap with the least worth on top; among equals, the lower number."""

    def __init__(self, worth):
        self._worth = worth
        self.heap = []
        self._at = {}

    def add(self, cell):
        self.heap.append(cell)
        self._rise(len(self.heap) - 1, cell)

    def remove(self, cell):
        at = self._at.pop(cell)
        moved = self.heap.pop()
        if moved == cell:
            return
        if self._before(moved, cell):
            self._rise(at, moved)
        else:
            self._sink(at, moved)

    def rerank(self):
        for at in range((len(self.heap) >> 1) - 1, -1, -1):
            self._sink(at, self.heap[at])

    def _before(self, a, b):
        x, y = self._worth[a], self._worth[b]
        return x < y or (x == y and a < b)

    def _rise(self, at, cell):
        heap, places = self.heap, self._at
        while at > 0:
            parent = (at - 1) >> 1
            if not self._before(cell, heap[parent]):
                break
            heap[at] = heap[parent]
            places[heap[at]] = at
            at = parent
        heap[at] = cell
        places[cell] = at

    def _sink(self, at, cell):
        heap, places = self.heap, self._at
        count = len(heap)
        child = 2 * at + 1
        while child < count:
            if child + 1 < count and self._before(heap[child + 1], heap[child]):
                child += 1
            if not self._before(heap[child], cell):
                break
            heap[at] = heap[child]
            places[heap[at]] = at
            at = child
            child = 2 * at + 1
        heap[at] = cell
        places[cell] = at


INNER = CELLS
STEPS = 32


class Leaves:
    """Entered blocks by cell, a class at an age; blocks that others follow stand in a list of their own."""

    def __init__(self, worth):
        self.keeps_order = False
        self.first = {}
        self._last = {}
        self.filled = FilledCells(worth)
        self._oldest = -1
        self._oldest_us = 0.0

    def add_inner(self, block):
        self._link(INNER, block, self._last.get(INNER))
        block.cell = INNER

    def add_leaf(self, block, now_us, revealed):
        block.leaf_us = block.used_us
        self._add(block, block.cls * BUCKETS + bucket_of(now_us - block.leaf_us), revealed)

    def _add(self, block, cell, revealed):
        block.cell = cell
        if cell in self.first:
            self._link_in_order(cell, block, revealed)
            if self.first[cell] is block:
                self._front_changed(cell)
            return
        self._link(cell, block, None)
        self._front_changed(cell)
        self.filled.add(cell)

    def remove(self, block):
        cell = block.cell
        was_first = self.first.get(cell) is block
        self._unlink(cell, block)
        block.cell = -1
        if cell == INNER:
            return
        if was_first:
            self._front_changed(cell)
        if cell not in self.first:
            self.filled.remove(cell)

    def _front_changed(self, cell):
        oldest = self._oldest
        if oldest == -1:
            return
        front = self.first.get(cell)
        us = math.inf if front is None else front.leaf_us
        if us < self._oldest_us or (us == self._oldest_us and cell <= oldest):
            self._oldest = cell
            self._oldest_us = us
        elif cell == oldest:
            self._oldest = -1

    def age(self, now_us):
        for cell in list(self.filled.heap):
            bucket = cell % BUCKETS
            if bucket == BUCKETS - 1:
                continue
            bound = now_us - BUCKET_START_US[bucket + 1]
            block = self.first.get(cell)
            while block is not None and block.leaf_us <= bound:
                self.remove(block)
                self._add(block, cell - bucket + bucket_of(now_us - block.leaf_us), False)
                block = self.first.get(cell)

    def least(self):
        heap = self.filled.heap
        return self.first[heap[0]] if heap else None

    def oldest(self):
        best = self._oldest
        if best == -1:
            best_us = math.inf
            for cell in self.filled.heap:
                us = self.first[cell].leaf_us
                if us < best_us or (us == best_us and cell < best):
                    best = cell
                    best_us = us
            if best == -1:
                return None
            self._oldest = best
            self._oldest_us = best_us
        return self.first[best]

    def inner(self):
        return self.first.get(INNER)

    def _link_in_order(self, cell, block, revealed):
        last = self._last[cell]
        used_us = block.leaf_us
        if used_us > last.leaf_us or (not revealed and used_us == last.leaf_us):
            self._link(cell, block, last)
            return
        before = None
        after = self.first[cell]
        steps = 0
        while self.keeps_order and steps < STEPS and after is not None and after.leaf_us < used_us:
            before = after
            after = after.next
            steps += 1
        self._link(cell, block, before)

    def _link(self, cell, block, before):
        after = self.first.get(cell) if before is None else before.next
        block.prev = before
        block.next = after
        if before is None:
            self.first[cell] = block
        else:
            before.next = block
        if after is None:
            self._last[cell] = block
        else:
            after.prev = block

    def _unlink(self, cell, block):
        after, before = block.next, block.prev
        if before is None:
            if after is None:
                del self.first[cell]
            else:
                self.first[cell] = after
        else:
            before.next = after
        if after is None:
            if before is None:
                del self._last[cell]
            else:
                self._last[cell] = before
        else:
            after.prev = before
        block.next = None
        block.prev = None


LEAST_GHOSTS = 2**16
REFIT_REQUESTS = 64
REQUEST_US = 1_000
AGING_US = 250_000


class Policy:
    block_type = HazardBlock

    def __init__(self, cache, behindLru):
        self.cache = cache
        self._estimates = Estimates()
        self._cohorts = Cohorts(self._estimates)
        self._guard = Guard(behindLru)
        self._leaves = Leaves(self._estimates.worth)
        self._ghosts = OrderedDict()  # key -> (cohort, uses, pace, used_us)
        self._most_ghosts = max(LEAST_GHOSTS, 2 * cache.cache_capacity)
        self._visits = {}
        self._in_use = 0
        self._present = 0
        self._lru_room = 0
        self._requests = 0
        self._now_us = 0
        self._aged_us = 0
        # Blocks that returned, in runs: of one cohort, touched by one visit in a row.
        self._run_cohort = 0
        self._run_visit = None
        self._run_us = 0
        self._run = 0

    def _clock(self):
        return self.cache.now_us() + self._requests * REQUEST_US

    def begin(self, number, asked, found):
        self._flush()
        self._cohorts.close()
        self._requests += 1
        self._now_us = self._clock()
        self._cohorts.mature(self._now_us)
        self._lru_room = self._cohorts.hold_at_most(self._present - self._in_use)
        self._guard.begin(asked, found, self._present, self._cohorts.returns)
        self._leaves.keeps_order = self._guard.as_lru
        if self._now_us - self._aged_us >= AGING_US:
            self._aged_us = self._now_us
            self._leaves.age(self._now_us)
        n = self._requests
        if n % REFIT_REQUESTS == 0 or (n < REFIT_REQUESTS and n & (n - 1) == 0):
            self._estimates.refit()
            self._leaves.filled.rerank()

    def touch(self, block, number):
        visit = self._visits.get(number)
        if visit is None:
            self._flush()
            visit = self._visits[number] = Visit(number, self._now_us, self._lru_room)
        elif visit is not self._run_visit:
            self._flush()
        is_known = block.known or self._recall(block)
        before = block.visit
        visit.blocks += 1
        if before is not None:
            self._let_go(before)
            if visit.lru_finds:
                self._guard.behind += 1
        else:
            if not block.entered:
                self._present += 1
            self._in_use += 1
            block.is_new = not is_known
            self._returned(visit, block.cohort)
            block.cohort = 0
        block.visit = visit
        visit.last = block
        if is_known:
            visit.knows(block.uses, block.pace, block.used_us)
        else:
            visit.new_tokens += block.tokens
        if block.uses < 255:
            block.uses += 1

    def enter(self, block):
        self._now_us = self._clock()
        self._flush()
        if block.visit is None:
            self._present += 1
            if not block.known:
                self._recall(block)
        else:
            self._classify(block)
        parent = block.parent
        block.counted_by = None
        if parent is not None and not parent.gone:
            block.counted_by = parent
            parent.children += 1
        if block.children > 0:
            self._leaves.add_inner(block)
        else:
            self._add_leaf(block, False)
        if block.counted_by is not None and parent.children == 1 and parent.cell not in (-1, INNER):
            self._leaves.remove(parent)
            self._leaves.add_inner(parent)

    def leave(self, block):
        self._leaves.remove(block)
        parent = block.counted_by
        block.counted_by = None
        if parent is not None and not parent.gone:
            parent.children -= 1
            if parent.children == 0 and parent.cell != -1:
                self._leaves.remove(parent)
                self._add_leaf(parent, True)
        if block.visit is None:
            self._present -= 1

    def victim(self):
        leaf = self._leaves.oldest() if self._guard.as_lru else self._leaves.least()
        return self._leaves.inner() if leaf is None else leaf

    def forgotten(self, block):
        self._flush()
        self._cohorts.close()
        visit = block.visit
        if visit is not None:
            block.visit = None
            self._in_use -= 1
            self._present -= 1
            self._let_go(visit)
        if block.known:
            self._bury(block)

    def _add_leaf(self, block, revealed):
        self._estimates.use(block.cls)
        self._leaves.add_leaf(block, self._now_us, revealed)

    def _classify(self, block):
        visit = block.visit
        part = LAST if visit.last is block else NEW if block.is_new else KNOWN
        pace = visit.pace_of()
        c = class_of(part, block.uses, pace, visit.new_tokens)
        self._estimates.use(c)
        block.cls = c
        block.pace = pace
        block.used_us = self._now_us
        block.cohort = self._cohorts.join(c, visit.number, self._now_us)
        block.visit = None
        self._in_use -= 1
        self._let_go(visit)

    def _let_go(self, visit):
        visit.blocks -= 1
        if visit.blocks == 0:
            del self._visits[visit.number]

    def _recall(self, block):
        block.known = True
        block.cls = NO_REQUEST
        ghost = self._ghosts.pop(block.key, None)
        if ghost is None:
            block.used_us = self._now_us
            return False
        block.cohort, block.uses, block.pace, block.used_us = ghost
        return True

    def _bury(self, block):
        block.known = False
        if block.uses == 0:
            return
        if len(self._ghosts) >= self._most_ghosts:
            _, ghost = self._ghosts.popitem(last=False)
            self._cohorts.forgotten(ghost[0])
        self._ghosts[block.key] = (block.cohort, block.uses, block.pace, block.used_us)

    def _returned(self, visit, cohort):
        if cohort != self._run_cohort or visit is not self._run_visit or self._run == 0:
            self._flush()
            self._run_cohort = cohort
            self._run_visit = visit
            self._run_us = self._now_us
        self._run += 1

    def _flush(self):
        length = self._run
        if length == 0:
            return
        cohort, visit, cohorts = self._run_cohort, self._run_visit, self._cohorts
        self._run = 0
        cohorts.close()
        if visit.lru_finds:
            found = length
            if cohort < cohorts.first_held:
                found = min(length, visit.lru_room) if cohort > 0 and cohort == cohorts.first_held - 1 else 0
                visit.lru_room -= found
            if found < length:
                visit.lru_finds = False
            self._guard.behind += found
        cohorts.returned(cohort, length, self._run_us)
