// Attention of each row and query head over the tokens up to its own, in their order: an invocation walks the
// blocks once, with the largest score so far, the sum of weights, and the weighted sum of V. Nothing depends
// on who else is in the batch, or on how a prompt was cut into chunks.
//
// A line that ends with `each dim` stands once for each vector of the head, with its number for `DIM`.

override headDim4: u32;
override qHeads: u32;
override kvHeads: u32;
override blockTokens: u32;
override headStride: u32; // in vectors of 16 bytes
override kvStride: u32;
override scale: f32; // 1 / sqrt(D)
override window: u32; // tokens seen up to the own one; 0: all

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>; // [row][Q heads, K heads, V heads][D]
@group(0) @binding(1) var<storage, read> slab: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> rows: array<vec4<u32>>; // position, first entry of the block table
@group(0) @binding(3) var<storage, read> entries: array<vec2<u32>>; // slab, offset in bytes
@group(0) @binding(4) var<storage, read_write> attended: array<vec4<f32>>; // [row][Q heads][D]
@group(0) @binding(5) var<uniform> counts: vec4<u32>; // rows, rows that sample
@group(0) @binding(6) var<uniform> layer: vec4<u32>; // the layer's place in a block, in vectors

@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.x;
  let row = id.y;
  if (head >= qHeads || row >= counts.x) {
    return;
  }
  let position = rows[row].x;
  let table = rows[row].y;
  let kvHead = layer.x + head / (qHeads / kvHeads) * headStride;
  let start = (row * (qHeads + 2u * kvHeads) + head) * headDim4;
  let qDIM = qkv[start + DIMu] * scale; // each dim
  var outDIM = vec4<f32>(); // each dim
  var largest = -3.4e38;
  var total = 0.0;
  var token = select(0u, position + 1u - min(window, position + 1u), window > 0u);
  while (token <= position) {
    let block = entries[table + token / blockTokens].y / 16u + kvHead;
    let end = min(position + 1u, (token / blockTokens + 1u) * blockTokens);
    for (; token < end; token++) {
      let k = block + (token % blockTokens) * headDim4;
      let v = k + kvStride;
      var products = vec4<f32>();
      products = fma(qDIM, slab[k + DIMu], products); // each dim
      let score = (products.x + products.y) + (products.z + products.w);
      let top = max(largest, score);
      let keep = exp(largest - top);
      let weight = exp(score - top);
      largest = top;
      total = fma(total, keep, weight);
      outDIM = fma(outDIM, vec4(keep), weight * slab[v + DIMu]); // each dim
    }
  }
  let to = (row * qHeads + head) * headDim4;
  attended[to + DIMu] = outDIM / total; // each dim
}
