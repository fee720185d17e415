# S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson, SOSP 2023): a small queue for newcomers before the main one, with the keys
# of those that left it early.

SMALL = 0
MAIN = 1
SMALL_SHARE = 0.1
MOST_USES = 3


class S3FifoBlock(Block):
    __slots__ = ("uses", "starts_in", "known", "queue", "place")

    def __init__(self, *fields):
        super().__init__(*fields)
        self.uses = 0
        self.starts_in = SMALL
        self.known = False
        self.queue = SMALL
        self.place = 0


class Policy:
    block_type = S3FifoBlock

    def __init__(self, cache):
        self.cache = cache
        self._queues = (Ranked(), Ranked())
        self._ghosts = OrderedDict()
        self._places = 0

    def begin(self, number, asked, found):
        return

    def enter(self, block):
        if block.place == 0:
            block.queue = block.starts_in
            self._places += 1
            block.place = self._places
        self._queues[block.queue].enter(block, block.place)

    def leave(self, block):
        self._queues[block.queue].leave(block)

    def touch(self, block, number):
        if block.known:
            if block.uses < MOST_USES:
                block.uses += 1
            return
        block.known = True
        block.uses = 0
        block.starts_in = MAIN if block.key in self._ghosts else SMALL
        self._ghosts.pop(block.key, None)

    def victim(self):
        small, main = self._queues
        while True:
            in_small = small.first()
            in_main = main.first()
            if in_small is None and in_main is None:
                return None
            if in_small is not None and (in_main is None or len(small) > SMALL_SHARE * self.cache.resident):
                if in_small.uses <= 1:
                    return in_small
                in_small.uses = 0
                in_small.starts_in = MAIN
                self._go_round(in_small)
            else:
                if in_main.uses == 0:
                    return in_main
                in_main.uses -= 1
                self._go_round(in_main)

    def _go_round(self, block):
        self._queues[block.queue].leave(block)
        block.queue = MAIN
        self._places += 1
        block.place = self._places
        self._queues[MAIN].enter(block, block.place)

    def forgotten(self, block):
        if not block.known or block.starts_in != SMALL:
            return
        most = min(self.cache.cache_capacity, (1 - SMALL_SHARE) * self.cache.resident)
        while self._ghosts and len(self._ghosts) + 1 > most:
            self._ghosts.popitem(last=False)
        if len(self._ghosts) + 1 <= most:
            self._ghosts[block.key] = None
