// Writes K and V of each row into its token's place as 8-bit integers, with the row's scale behind them. An
// invocation writes one row of one head. The scale is the row's largest absolute value over 127. The largest
// is found by comparing bits, which order NaN above all numbers, so a NaN makes the whole row NaN.

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
  if (lane >= work.rows * 2u * kvHeads) {
    return;
  }
  let head = lane % kvHeads;
  let isV = (lane / kvHeads) % 2u == 1u;
  let row = work.firstRow + lane / (2u * kvHeads);
  let position = tables[4u * row];
  if (position == noToken) {
    return;
  }
  let start = row * sourceStride + head * sourceHead + select(kOffset, vOffset, isV);
  var sizes = vec4(0u);
  for (var dim = 0u; dim < headDim4; dim++) {
    sizes = max(sizes, bitcast<vec4<u32>>(source[start + dim]) & vec4(0x7fffffffu));
  }
  let largest = bitcast<f32>(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
  let inverse = inverseOf(largest);
  let table = tables[4u * row + 1u];
  let slab = tables[entryOf(table, position)];
  let to = rowAt(table, position, head) + select(0u, kvUnits, isV);
  for (var dim = 0u; dim < headDim4; dim++) {
    let stored = scaledOf(source[start + dim], inverse);
    if (slab == SLABu) { slabSLAB[to + dim] = stored; } // each slab
  }
  let scale = storedScale(largest);
  if (slab == SLABu) { slabSLAB[to + headDim4] = scale; } // each slab
}
