// Packs boxes: the runs of every piece, from its slot into the packed bytes. Each packed unit is written once.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> packed: array<vec4<u32>>;

// The same two as words. A kernel uses one pair: a store to a component of a vector may rewrite the whole vector, and its
// other words belong to other invocations.
@group(0) @binding(0) var<storage, read> slabWords: array<u32>;
@group(0) @binding(2) var<storage, read_write> packedWords: array<u32>;

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
      packed[packedAt + unit] = slab[slabAt + unit];
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
      packedWords[packedAt + unit] = slabWords[slabAt + unit];
    }
  }
}
