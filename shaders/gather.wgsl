// Packs boxes: copies the runs of every item from its slot into the packed bytes. Each packed unit is written
// once.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;
@group(1) @binding(0) var<storage, read_write> packed: array<vec4<u32>>;

// The same buffers as words. A kernel uses either vectors or words: a store to a component of a vector may
// rewrite the whole vector, whose other words belong to other invocations.
@group(0) @binding(0) var<storage, read> slabWords: array<u32>;
@group(1) @binding(0) var<storage, read_write> packedWords: array<u32>;

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
      packed[packedAt + unit] = slab[slabAt + unit];
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
      packedWords[packedAt + unit] = slabWords[slabAt + unit];
    }
  }
}
