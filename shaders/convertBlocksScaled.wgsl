// Converts the first tokens of blocks into blocks of another pool, whose rows have a scale. An invocation
// converts one row of one head, by the rule of shaders/writeKvScaled.wgsl.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= count.x * blockRows) {
    return;
  }
  let pair = pairs[lane / blockRows];
  let row = lane % blockRows;
  if (row % blockTokens >= pair.tokens) {
    return;
  }
  let start = pair.fromUnit + row * fromRowUnits;
  var sizes = vec4(0u);
  for (var dim = 0u; dim < headDim4; dim++) {
    sizes = max(sizes, bitcast<vec4<u32>>(vectorOf(pair.fromSlab, start, dim)) & vec4(0x7fffffffu));
  }
  let largest = bitcast<f32>(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
  let inverse = toInverseOf(largest);
  let to = pair.toUnit + row * toRowUnits;
  for (var dim = 0u; dim < headDim4; dim++) {
    let stored = toScaledOf(vectorOf(pair.fromSlab, start, dim), inverse);
    if (pair.toSlab == TARGETu) { toTARGET[to + dim] = stored; } // each target
  }
  let scale = toStoredScale(largest);
  if (pair.toSlab == TARGETu) { toTARGET[to + headDim4] = scale; } // each target
}
