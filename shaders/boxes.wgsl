// What the kernels over boxes share. A box lies in its slot as runs of equal length, a regular distance apart, and packed as
// one run behind the other:
//
//     slab     | . . a a . . b b . . | . . c c . . d d . . |       a b: runs of one layer, c d: of the next
//     packed   | a a b b c c d d |
//
// A dispatch covers `workgroups.y` pieces of one slab, each by `workgroups.x` workgroups. All numbers of a piece are in units
// of what its kernel moves at once: vectors of 16 bytes where every run begins and ends at one, words where not.

struct Piece {
  // Where run 0 of the box lies in the slab, and the first run of this piece in the packed bytes.
  slab: u32,
  packed: u32,
  // The piece is `runs` runs of the box from number `firstRun` on.
  firstRun: u32,
  runs: u32,
  runUnits: u32,
  runsPerLayer: u32,
  runStride: u32,
  layerStride: u32,
}

@group(0) @binding(1) var<storage, read> pieces: array<Piece>;

// Invocations of a workgroup, and how many of them at most share a run; powers of two.
override lanes: u32 = 64u;
override lanesPerRun: u32 = 64u;

// Which runs of its piece, and which units of each run, an invocation moves.
struct Walk {
  run: u32,
  runStep: u32,
  unit: u32,
  unitStep: u32,
}

fn walkOf(piece: Piece, group: u32, groups: u32, lane: u32) -> Walk {
  let sharers = min(lanesPerRun, 1u << firstLeadingBit(piece.runUnits));
  let runsAtOnce = lanes / sharers;
  return Walk(group * runsAtOnce + lane / sharers, groups * runsAtOnce, lane % sharers, sharers);
}

fn slabUnit(piece: Piece, run: u32) -> u32 {
  let number = piece.firstRun + run;
  return piece.slab + (number / piece.runsPerLayer) * piece.layerStride + (number % piece.runsPerLayer) * piece.runStride;
}

fn packedUnit(piece: Piece, run: u32) -> u32 {
  return piece.packed + run * piece.runUnits;
}
