// y = x / sqrt(mean(x^2) + epsilon) * weight for each row. One invocation goes through a row from front to
// back, so that the sum's order is the same in every batch. Row i of the output is row `rows[i]` of the input.

override hidden4: u32;
override epsilon: f32;
override gathers: bool;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> rows: array<u32>;
@group(0) @binding(4) var<uniform> counts: vec4<u32>; // rows, rows that sample

@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.x;
  if (row >= select(counts.x, counts.y, gathers)) {
    return;
  }
  let start = select(row, rows[row], gathers) * hidden4;
  var squares = vec4<f32>();
  for (var i = 0u; i < hidden4; i++) {
    let value = x[start + i];
    squares = fma(value, value, squares);
  }
  let mean = ((squares.x + squares.y) + (squares.z + squares.w)) / f32(4u * hidden4);
  let scale = 1.0 / sqrt(mean + epsilon);
  for (var i = 0u; i < hidden4; i++) {
    y[row * hidden4 + i] = x[start + i] * scale * weight[i];
  }
}
