// The embedding of each row's token. The table lies transposed, [dimension][token], as the head reads it.

override hidden: u32;
override tableStride: u32;

@group(0) @binding(0) var<storage, read> table: array<f32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<uniform> counts: vec4<u32>; // rows, rows that sample

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let dim = id.x;
  let row = id.y;
  if (dim >= hidden || row >= counts.x) {
    return;
  }
  x[row * hidden + dim] = table[dim * tableStride + tokens[row]];
}
