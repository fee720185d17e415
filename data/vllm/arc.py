# ARC (Megiddo and Modha, FAST 2003): blocks used once and blocks used more often are two lists; keys that were evicted
# move the target between them when they return.

ONCE = 0
OFTEN = 1


class ArcBlock(Block):
    __slots__ = ("list", "visit", "listed")

    def __init__(self, *fields):
        super().__init__(*fields)
        self.list = ONCE
        self.visit = 0
        self.listed = ONCE


class Policy:
    block_type = ArcBlock

    def __init__(self, cache):
        self.cache = cache
        self._lists = (Ranked(), Ranked())
        self._ghosts = (OrderedDict(), OrderedDict())
        self._target = 0
        self._often_returned = False

    def begin(self, number, asked, found):
        return

    def enter(self, block):
        block.listed = block.list
        self._lists[block.listed].enter(block, 0)

    def leave(self, block):
        self._lists[block.listed].leave(block)

    def touch(self, block, number):
        before = block.visit
        block.visit = number
        if before == number:
            return
        if before > 0:
            block.list = OFTEN
        else:
            self._first(block)

    def _first(self, block):
        blocks = self.cache.resident
        once, often = self._ghosts
        if block.key not in once and block.key not in often:
            block.list = ONCE
            used_once = len(self._lists[ONCE])
            while used_once + len(once) >= blocks and once:
                once.popitem(last=False)
            held = used_once + len(self._lists[OFTEN])
            while held + len(once) + len(often) >= 2 * blocks and often:
                often.popitem(last=False)
            return
        self._often_returned = block.key in often
        if self._often_returned:
            self._target = max(0, self._target - max(1, len(once) / len(often)))
        else:
            self._target = min(blocks, self._target + max(1, len(often) / len(once)))
        once.pop(block.key, None)
        often.pop(block.key, None)
        block.list = OFTEN

    def victim(self):
        once = self._lists[ONCE].first()
        often = self._lists[OFTEN].first()
        if once is None or often is None:
            return often if once is None else once
        size = len(self._lists[ONCE])
        return once if size > self._target or (self._often_returned and size == self._target) else often

    def forgotten(self, block):
        if block.visit == 0:
            return
        once, often = self._ghosts
        if len(once) + len(often) >= 2 * self.cache.cache_capacity:
            (often if often else once).popitem(last=False)
        self._ghosts[block.list][block.key] = None
