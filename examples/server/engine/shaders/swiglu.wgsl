// y = silu(gate) * up, with gate and up beside each other in each row.

override ffn4: u32;

@group(0) @binding(0) var<storage, read> gateUp: array<vec4<f32>>; // [row][gate, up][ffn]
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> counts: vec4<u32>; // rows, rows that sample

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.y;
  if (id.x >= ffn4 || row >= counts.x) {
    return;
  }
  let gate = gateUp[row * 2u * ffn4 + id.x];
  let up = gateUp[(row * 2u + 1u) * ffn4 + id.x];
  y[row * ffn4 + id.x] = gate / (1.0 + exp(-gate)) * up;
}
