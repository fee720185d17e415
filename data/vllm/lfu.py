# The block that the fewest requests used goes first; among equals, the one that was let go longest ago.


class LfuBlock(Block):
    __slots__ = ("uses",)

    def __init__(self, *fields):
        super().__init__(*fields)
        self.uses = 0


class Policy(RankedPolicy):
    block_type = LfuBlock

    def touch(self, block, number):
        block.uses += 1

    def rank_of(self, block):
        return block.uses
