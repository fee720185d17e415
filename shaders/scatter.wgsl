// Unpacks boxes: copies the runs of every item from the packed bytes into its slot, and writes nothing
// outside of a run. The boxes of a dispatch must not overlap.

@group(0) @binding(0) var<storage, read_write> slab: array<vec4<u32>>;
@group(1) @binding(0) var<storage, read> packed: array<vec4<u32>>;

// The same buffers as words. A kernel uses either vectors or words: a store to a component of a vector may
// rewrite the whole vector, whose other words belong to other runs or to the neighbouring slot.
@group(0) @binding(0) var<storage, read_write> slabWords: array<u32>;
@group(1) @binding(0) var<storage, read> packedWords: array<u32>;

@compute @workgroup_size(workgroupSize)
fn vectors(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let walk = walkOf(item, group.x, groups.x, invocation);
  for (var run = walk.run; run < item.runs; run += walk.runStep) {
    let slabAt = slabUnit(item, run);
    let packedAt = packedUnit(item, run);
    for (var unit = walk.unit; unit < item.runUnits; unit += walk.unitStep) {
      slab[slabAt + unit] = packed[packedAt + unit];
    }
  }
}

@compute @workgroup_size(workgroupSize)
fn words(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let walk = walkOf(item, group.x, groups.x, invocation);
  for (var run = walk.run; run < item.runs; run += walk.runStep) {
    let slabAt = slabUnit(item, run);
    let packedAt = packedUnit(item, run);
    for (var unit = walk.unit; unit < item.runUnits; unit += walk.unitStep) {
      slabWords[slabAt + unit] = packedWords[packedAt + unit];
    }
  }
}
