// Marks rows that hold a NaN or an infinity. Bits are compared: a compiler may take every float for finite.

override stride4: u32; // vectors of a row
override first4: u32; // the first that is looked at
override count4: u32; // how many are

@group(0) @binding(0) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> marks: array<atomic<u32>>; // [row]: 1 where it does
@group(0) @binding(2) var<uniform> counts: vec4<u32>; // rows, rows that sample

const EXPONENT = vec4<u32>(0x7f800000u);

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.y;
  if (id.x >= count4 || row >= counts.x) {
    return;
  }
  let bits = values[row * stride4 + first4 + id.x] & EXPONENT;
  if (any(bits == EXPONENT)) {
    atomicStore(&marks[row], 1u);
  }
}
