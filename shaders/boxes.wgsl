// Shared by the kernels over boxes. In its slot a box is runs of equal length at regular distances. Packed,
// the runs follow each other without gaps:
//
//     slab     | . . a a . . b b . . | . . c c . . d d . . |       a b: runs of one layer, c d: of the next
//     packed   | a a b b c c d d |
//
// A dispatch covers `workgroups.y` items of one slab, with `workgroups.x` workgroups for each. All numbers of
// an item are in the kernel's unit: vectors of 16 bytes if every run begins and ends at a vector, else words.

struct Item {
  // Offset of the box's run 0 in the slab, and of the item's first run in the packed bytes.
  slab: u32,
  packed: u32,
  // The item is `runs` runs of the box, from run `firstRun` on.
  firstRun: u32,
  runs: u32,
  runUnits: u32,
  runsPerLayer: u32,
  runStride: u32,
  layerStride: u32,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;

// Invocations of a workgroup, and how many of them at most share a run. Both are powers of two.
override workgroupSize: u32 = 64u;
override sharersMax: u32 = 64u;

// The runs of its item, and the units of each run, that an invocation moves.
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
