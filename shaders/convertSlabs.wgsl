// The slabs of two pools whose blocks have different formats, and the reading of a vector as floats.

@group(1) @binding(SLAB) var<storage, read> fromSLAB: array<FromStored>; // each slab
@group(2) @binding(TARGET) var<storage, read_write> toTARGET: array<ToStored>; // each target

// Vector `dim` of the row that begins at `row`.
fn vectorOf(slab: u32, row: u32, dim: u32) -> vec4<f32> {
  var value = vec4<f32>();
  if (slab == SLABu) { value = fromValueOf(fromSLAB[row + dim]); } // each slab
  // scaled {
  if (slab == SLABu) { value *= fromScaleOf(fromSLAB[row + headDim4]); } // each slab
  // scaled }
  return value;
}
