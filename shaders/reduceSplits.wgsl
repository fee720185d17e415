// Paged attention, second part: combines the splits of each row and query head, in the order of their
// positions. An invocation makes one vector of the head. The result of a row that sees no token is 0.

override headDim4: u32;
override qHeads: u32;
override outStride: u32; // vectors between rows of the result

// For each item and query head: the sum of V, then (largest score, sum of weights, 0, 0).
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> attended: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= work.rows * qHeads * headDim4) {
    return;
  }
  let dim = lane % headDim4;
  let head = (lane / headDim4) % qHeads;
  let row = work.firstRow + lane / (headDim4 * qHeads);
  let splits = tables[4u * row + 3u];
  let stride = qHeads * (headDim4 + 1u);
  let first = (tables[4u * row + 2u] - work.firstItem) * stride + head * (headDim4 + 1u);

  var largest = -3.4e38;
  for (var split = 0u; split < splits; split++) {
    largest = max(largest, partials[first + split * stride + headDim4].x);
  }
  var out = vec4<f32>();
  var total = 0.0;
  for (var split = 0u; split < splits; split++) {
    let at = first + split * stride;
    let sums = partials[at + headDim4];
    let weight = exp2(sums.x - largest);
    total = fma(weight, sums.y, total);
    out = fma(vec4(weight), partials[at + dim], out);
  }
  if (splits > 0u) {
    out /= total;
  }
  attended[row * outStride + head * headDim4 + dim] = out;
}
