// Writes K and V of each row into its token's place in the sequence's blocks. An invocation writes one unit.

override headDim4: u32;
override kvHeads: u32;
// Layout of the source, in vectors: distance of rows, distance of heads, begin of K and of V.
override sourceStride: u32;
override sourceHead: u32;
override kOffset: u32;
override vOffset: u32;

@group(0) @binding(2) var<storage, read> source: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= work.rows * 2u * kvHeads * headDim4) {
    return;
  }
  let dim = lane % headDim4;
  let head = (lane / headDim4) % kvHeads;
  let isV = (lane / (headDim4 * kvHeads)) % 2u == 1u;
  let row = work.firstRow + lane / (2u * headDim4 * kvHeads);
  let position = tables[4u * row];
  if (position == noToken) {
    return;
  }
  let start = row * sourceStride + head * sourceHead + select(kOffset, vOffset, isV) + dim;
  let stored = storedOf(source[start]);
  let table = tables[4u * row + 1u];
  let slab = tables[entryOf(table, position)];
  let to = rowAt(table, position, head) + select(0u, kvUnits, isV) + dim;
  if (slab == SLABu) { slabSLAB[to] = stored; } // each slab
}
