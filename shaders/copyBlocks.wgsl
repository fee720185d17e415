// Copies the first tokens of blocks into other blocks of the same pool, bit for bit. An invocation copies one
// unit. Pairs of a dispatch must not read a block that a pair writes.

@group(1) @binding(SLAB) var<storage, read_write> slabSLAB: array<Stored>; // each slab

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  let blockUnits = blockRows * fromRowUnits;
  if (lane >= count.x * blockUnits) {
    return;
  }
  let pair = pairs[lane / blockUnits];
  let unit = lane % blockUnits;
  if ((unit / fromRowUnits) % blockTokens >= pair.tokens) {
    return;
  }
  var value = Stored();
  if (pair.fromSlab == SLABu) { value = slabSLAB[pair.fromUnit + unit]; } // each slab
  if (pair.toSlab == SLABu) { slabSLAB[pair.toUnit + unit] = value; } // each slab
}
