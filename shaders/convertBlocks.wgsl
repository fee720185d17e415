// Converts the first tokens of blocks into blocks of another pool, whose format has no scales. An invocation
// converts one vector of 4 elements.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  let vectors = blockRows * headDim4;
  if (lane >= count.x * vectors) {
    return;
  }
  let pair = pairs[lane / vectors];
  let row = (lane % vectors) / headDim4;
  let dim = lane % headDim4;
  if (row % blockTokens >= pair.tokens) {
    return;
  }
  let stored = toStoredOf(vectorOf(pair.fromSlab, pair.fromUnit + row * fromRowUnits, dim));
  let to = pair.toUnit + row * toRowUnits + dim;
  if (pair.toSlab == TARGETu) { toTARGET[to] = stored; } // each target
}
