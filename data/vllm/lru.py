# The block that was let go longest ago goes first.


class Policy(RankedPolicy):
    block_type = Block

    def rank_of(self, block):
        return 0
