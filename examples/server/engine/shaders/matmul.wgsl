// y = x W for some rows at a time; an invocation makes four columns of each. Weights lie transposed, [in][out].
//
// A line that ends with `each row` stands once for each row of the tile, with its number for `ROW`: rows are
// named variables, since software devices are slow on indexed ones. Every element is one chain of `fma` over
// `in` from front to back, in every tile height. So a row's result does not depend on the rows beside it.

override in4: u32;
override out4: u32;
override adds: bool; // y += x W
override samplesOnly: bool; // over rows that sample

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> counts: vec4<u32>; // rows, rows that sample

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let column = id.x;
  let rows = select(counts.x, counts.y, samplesOnly);
  if (column >= out4 || id.y * TILE >= rows) {
    return;
  }
  let fromROW = min(id.y * TILE + ROW, rows - 1u) * in4; // each row
  var sumROW = vec4<f32>(); // each row
  var at = column;
  for (var i = 0u; i < in4; i++) {
    let w0 = weights[at];
    let w1 = weights[at + out4];
    let w2 = weights[at + 2u * out4];
    let w3 = weights[at + 3u * out4];
    at += 4u * out4;
    let xROW = x[fromROW + i]; // each row
    sumROW = fma(vec4(xROW.x), w0, sumROW); // each row
    sumROW = fma(vec4(xROW.y), w1, sumROW); // each row
    sumROW = fma(vec4(xROW.z), w2, sumROW); // each row
    sumROW = fma(vec4(xROW.w), w3, sumROW); // each row
  }
  store(id.y * TILE + ROW, rows, column, sumROW); // each row
}

fn store(row: u32, rows: u32, column: u32, sum: vec4<f32>) {
  if (row < rows) {
    let at = row * out4 + column;
    if (adds) {
      y[at] = y[at] + sum;
    } else {
      y[at] = sum;
    }
  }
}
