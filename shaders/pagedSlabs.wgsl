// The slabs that hold the blocks, and the way from a token to its row.

@group(1) @binding(SLAB) var<storage, ACCESS> slabSLAB: array<Stored>; // each slab

// The entry of the block table for a token: its slab, then its offset in bytes.
fn entryOf(table: u32, token: u32) -> u32 {
  return entriesAt + 2u * (table + token / blockTokens);
}

// Begin of the token's row of K in its slab. Its row of V is `kvUnits` further.
fn rowAt(table: u32, token: u32, kvHead: u32) -> u32 {
  let block = tables[entryOf(table, token) + 1u] / unitBytes;
  return block + layer.units + kvHead * headUnits + (token % blockTokens) * rowUnits;
}
