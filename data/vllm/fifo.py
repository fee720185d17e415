# The block that came first goes first, however often it was used since.


class FifoBlock(Block):
    __slots__ = ("arrival",)

    def __init__(self, *fields):
        super().__init__(*fields)
        self.arrival = 0


class Policy(RankedPolicy):
    block_type = FifoBlock

    def __init__(self, cache):
        super().__init__(cache)
        self._arrivals = 0

    def rank_of(self, block):
        if block.arrival == 0:
            self._arrivals += 1
            block.arrival = self._arrivals
        return block.arrival
