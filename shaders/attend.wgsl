// Paged attention, first part: one invocation attends with one query head of one row over one split, which is
// 128 tokens at absolute positions. It has no barrier and no workgroup memory, so it runs well everywhere.
// shaders/reduceSplits.wgsl puts the splits of a row together.
//
// The order of every sum depends on the row's own position and window alone: tokens in their order, the
// products of a row in vectors of 4. A rescale happens when a larger score comes, and only then.
//
// src/compute/kernelText.ts repeats lines and writes their number for DIM and SLAB.

override headDim4: u32;
override qHeads: u32;
override group: u32; // query heads that share a KV head
override queryStride: u32; // vectors from row to row of the queries
override queryOffset: u32;
override scale: f32; // times log2(e): weights are powers of 2
override window: u32; // tokens that a row sees, its own the last; 0: all

@group(0) @binding(2) var<storage, read> queries: array<vec4<f32>>;
// For each item and query head: the sum of V, then (largest score, sum of weights, 0, 0).
@group(0) @binding(3) var<storage, read_write> partials: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= work.items * qHeads) {
    return;
  }
  let head = lane % qHeads;
  let item = itemsAt + 2u * (work.firstItem + lane / qHeads);
  let row = tables[item];
  let split = tables[item + 1u];
  let position = tables[4u * row];
  let table = tables[4u * row + 1u];
  let end = min(position + 1u, (split + 1u) * splitTokens);
  let seen = select(0u, position + 1u - min(window, position + 1u), window > 0u);
  var token = max(split * splitTokens, seen);

  let start = row * queryStride + queryOffset + head * headDim4;
  let qDIM = queries[start + DIMu] * scale; // each dim
  var outDIM = vec4<f32>(); // each dim
  var largest = -3.4e38;
  var total = 0.0;
  while (token < end) {
    let slab = tables[entryOf(table, token)];
    var k = rowAt(table, token, head / group);
    let stop = min(end, (token / blockTokens + 1u) * blockTokens);
    // each slab {
    if (slab == SLABu) {
      for (; token < stop; token++) {
        var products = vec4<f32>();
        products = fma(qDIM, valueOf(slabSLAB[k + DIMu]), products); // each dim
        var score = (products.x + products.y) + (products.z + products.w);
        score *= scaleOf(slabSLAB[k + headDim4]); // scaled
        if (score > largest) {
          let keep = exp2(largest - score);
          total *= keep;
          outDIM *= keep; // each dim
          largest = score;
        }
        var weight = exp2(score - largest);
        total += weight;
        let v = k + kvUnits;
        weight *= scaleOf(slabSLAB[v + headDim4]); // scaled
        outDIM = fma(vec4(weight), valueOf(slabSLAB[v + DIMu]), outDIM); // each dim
        k += rowUnits;
      }
    }
    // each slab }
    token = stop;
  }

  let to = lane * (headDim4 + 1u);
  partials[to + DIMu] = outDIM; // each dim
  partials[to + headDim4] = vec4(largest, total, 0.0, 0.0);
}
