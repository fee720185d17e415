// Unpacks boxes: the runs of every piece, from the packed bytes into its slot. Nothing outside of a run is written, as long
// as the boxes of a dispatch do not overlap.

@group(0) @binding(0) var<storage, read_write> slab: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> packed: array<vec4<u32>>;

// The same two as words. A kernel uses one pair: a store to a component of a vector may rewrite the whole vector, and its
// other words belong to other runs, or to the neighbouring slot.
@group(0) @binding(0) var<storage, read_write> slabWords: array<u32>;
@group(0) @binding(2) var<storage, read> packedWords: array<u32>;

@compute @workgroup_size(lanes)
fn vectors(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let piece = pieces[group.y];
  let walk = walkOf(piece, group.x, groups.x, lane);
  for (var run = walk.run; run < piece.runs; run += walk.runStep) {
    let slabAt = slabUnit(piece, run);
    let packedAt = packedUnit(piece, run);
    for (var unit = walk.unit; unit < piece.runUnits; unit += walk.unitStep) {
      slab[slabAt + unit] = packed[packedAt + unit];
    }
  }
}

@compute @workgroup_size(lanes)
fn words(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let piece = pieces[group.y];
  let walk = walkOf(piece, group.x, groups.x, lane);
  for (var run = walk.run; run < piece.runs; run += walk.runStep) {
    let slabAt = slabUnit(piece, run);
    let packedAt = packedUnit(piece, run);
    for (var unit = walk.unit; unit < piece.runUnits; unit += walk.unitStep) {
      slabWords[slabAt + unit] = packedWords[packedAt + unit];
    }
  }
}
