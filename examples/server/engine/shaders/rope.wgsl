// Rotary position embedding of Q and K, in place: dimensions i and i + D / 2 of a head turn together, by an
// angle of position x base^(-2 i / D). Cosines and sines come from a table that the host computed.

override qHeads: u32;
override kvHeads: u32;
override half: u32; // D / 2

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>; // [row][Q heads, K heads, V heads][D]
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>; // [position][i]: cosine, sine
@group(0) @binding(3) var<uniform> counts: vec4<u32>; // rows, rows that sample

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let heads = qHeads + kvHeads;
  let row = id.y;
  if (id.x >= heads * half || row >= counts.x) {
    return;
  }
  let head = id.x / half;
  let i = id.x % half;
  let at = (row * (heads + kvHeads) + head) * 2u * half + i;
  let turn = turns[positions[row] * half + i];
  let a = qkv[at];
  let b = qkv[at + half];
  qkv[at] = fma(a, turn.x, -(b * turn.y));
  qkv[at + half] = fma(b, turn.x, a * turn.y);
}
