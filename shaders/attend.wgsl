// Paged attention, first part. One invocation attends with some query heads that share a KV head, for one row
// over one split, which is 128 tokens at absolute positions. It loads each vector of K and V once for all of
// these heads. It has no barrier and no workgroup memory, so it runs well on every device.
// shaders/reduceSplits.wgsl combines the splits of a row.
//
// The order of every sum depends only on the row's own position and window, never on other heads: tokens in
// order, products of a row in vectors of 4. Sums are rescaled only when a larger score comes.
//
// src/compute/kernelText.ts repeats lines and writes their number for DIM, HEAD and SLAB.

override headDim4: u32;
override qHeads: u32;
override group: u32; // query heads that share a KV head
override queryStride: u32; // vectors between rows of the queries
override queryOffset: u32;
override scale: f32; // times log2(e): weights are powers of 2
override window: u32; // tokens that a row sees, up to and with its own; 0: all
override heads: u32; // query heads of an invocation, a divisor of `group`

@group(0) @binding(2) var<storage, read> queries: array<vec4<f32>>;
// For each item and query head: the sum of V, then (largest score, sum of weights, 0, 0).
@group(0) @binding(3) var<storage, read_write> partials: array<vec4<f32>>;

const lanes = 16u; // few, so that a small batch spreads over the cores

@compute @workgroup_size(lanes)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * lanes + id.x;
  let perItem = qHeads / heads;
  if (lane >= work.items * perItem) {
    return;
  }
  let firstHead = (lane % perItem) * heads;
  let item = itemsAt + 2u * (work.firstItem + lane / perItem);
  let row = tables[item];
  let split = tables[item + 1u];
  let position = tables[4u * row];
  let table = tables[4u * row + 1u];
  let end = min(position + 1u, (split + 1u) * splitTokens);
  let seen = select(0u, position + 1u - min(window, position + 1u), window > 0u);
  var token = max(split * splitTokens, seen);

  let start = row * queryStride + queryOffset + firstHead * headDim4;
  let qHEADxDIM = queries[start + HEADu * headDim4 + DIMu] * scale; // each head // each dim
  var outHEADxDIM = vec4<f32>(); // each head // each dim
  var largestHEAD = -3.4e38; // each head
  var totalHEAD = 0.0; // each head
  while (token < end) {
    let slab = tables[entryOf(table, token)];
    var k = rowAt(table, token, firstHead / group);
    let stop = min(end, (token / blockTokens + 1u) * blockTokens);
    // each slab {
    if (slab == SLABu) {
      for (; token < stop; token++) {
        let kDIM = valueOf(slabSLAB[k + DIMu]); // each dim
        var productsHEAD = vec4<f32>(); // each head
        productsHEAD = fma(qHEADxDIM, kDIM, productsHEAD); // each head // each dim
        var scoreHEAD = (productsHEAD.x + productsHEAD.y) + (productsHEAD.z + productsHEAD.w); // each head
        let kScale = scaleOf(slabSLAB[k + headDim4]); // scaled
        scoreHEAD *= kScale; // each head // scaled
        // each head {
        if (scoreHEAD > largestHEAD) {
          let keep = exp2(largestHEAD - scoreHEAD);
          totalHEAD *= keep;
          outHEADxDIM *= keep; // each dim
          largestHEAD = scoreHEAD;
        }
        // each head }
        var weightHEAD = exp2(scoreHEAD - largestHEAD); // each head
        totalHEAD += weightHEAD; // each head
        let v = k + kvUnits;
        let vScale = scaleOf(slabSLAB[v + headDim4]); // scaled
        weightHEAD *= vScale; // each head // scaled
        let vDIM = valueOf(slabSLAB[v + DIMu]); // each dim
        outHEADxDIM = fma(vec4(weightHEAD), vDIM, outHEADxDIM); // each head // each dim
        k += rowUnits;
      }
    }
    // each slab }
    token = stop;
  }

  let to = ((lane / perItem) * qHeads + firstHead) * (headDim4 + 1u);
  partials[to + HEADu * (headDim4 + 1u) + DIMu] = outHEADxDIM; // each head // each dim
  partials[to + HEADu * (headDim4 + 1u) + headDim4] = vec4(largestHEAD, totalHEAD, 0.0, 0.0); // each head
}
