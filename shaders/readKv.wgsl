// Reads K and V of each row's token from its block, as 32-bit floats. An invocation reads one unit.

override headDim4: u32;
override kvHeads: u32;

@group(0) @binding(2) var<storage, read_write> dense: array<vec4<f32>>; // [row][K, V][head][dim]

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
  let table = tables[4u * row + 1u];
  let slab = tables[entryOf(table, position)];
  let start = rowAt(table, position, head) + select(0u, kvUnits, isV);
  var value = vec4<f32>();
  if (slab == SLABu) { value = valueOf(slabSLAB[start + dim]); } // each slab
  // scaled {
  if (slab == SLABu) { value *= scaleOf(slabSLAB[start + headDim4]); } // each slab
  // scaled }
  dense[lane] = value;
}
