// What the kernels over boxes share. A box lies in its slot as runs of equal length, a regular distance
// apart, and packed as one run behind the other:
//
//     slab     | . . a a . . b b . . | . . c c . . d d . . |       a b: runs of one layer, c d: of the next
//     packed   | a a b b c c d d |
//
// A dispatch covers `workgroups.y` items of one slab, each by `workgroups.x` workgroups. All numbers of an
// item are in units of what its kernel moves at once: vectors of 16 bytes where every run begins and ends at
// one, words where not.

struct Item {
  // Where run 0 of the box lies in the slab, and the first run of this item in the packed bytes.
  slab: u32,
  packed: u32,
  // The item is `runs` runs of the box from number `firstRun` on.
  firstRun: u32,
  runs: u32,
  runUnits: u32,
  runsPerLayer: u32,
  runStride: u32,
  layerStride: u32,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;

// Invocations of a workgroup, and how many of them at most share a run; powers of two.
override workgroupSize: u32 = 64u;
override sharersMax: u32 = 64u;

// Which runs of its item, and which units of each run, an invocation moves.
struct Walk {
  run: u32,
  runStep: u32,
  unit: u32,
  unitStep: u32,
}

fn walkOf(item: Item, group: u32, groups: u32, invocation: u32) -> Walk {
  let sharers = min(sharersMax, 1u << firstLeadingBit(item.runUnits));
  let runsAtOnce = workgroupSize / sharers;
  return Walk(group * runsAtOnce + invocation / sharers, groups * runsAtOnce, invocation % sharers, sharers);
}

fn slabUnit(item: Item, run: u32) -> u32 {
  let number = item.firstRun + run;
  let layer = number / item.runsPerLayer;
  return item.slab + layer * item.layerStride + (number - layer * item.runsPerLayer) * item.runStride;
}

fn packedUnit(item: Item, run: u32) -> u32 {
  return item.packed + run * item.runUnits;
}
