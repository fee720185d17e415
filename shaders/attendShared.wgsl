// Paged attention, first part, for hardware. A workgroup attends with query heads that share a KV head, over
// one split of one row. Each row of K and V is loaded once for all these heads. The results are those of
// shaders/attend.wgsl, for the same second part, but for the last bits: a lane computes the score of one
// token, and then sums some tokens of one vector of V; the sums are combined in the order of the tokens.
//
// Workgroup memory: 4 KiB of scores and 3.5 KiB of other data.

override headDim4: u32;
override qHeads: u32;
override group: u32; // query heads that share a KV head
override queryStride: u32; // vectors between rows of the queries
override queryOffset: u32;
override scale: f32; // times log2(e): weights are powers of 2
override window: u32; // tokens that a row sees, up to and with its own; 0: all
override heads: u32; // query heads of a workgroup: at most 8, a divisor of `group`

@group(0) @binding(2) var<storage, read> queries: array<vec4<f32>>;
// For each item and query head: the sum of V, then (largest score, sum of weights, 0, 0).
@group(0) @binding(3) var<storage, read_write> partials: array<vec4<f32>>;

const lanes = 128u;
const lanesAHead = 16u;
const tokensALane = 8u;

var<workgroup> scores: array<f32, 1024>; // [head][token], then weights
var<workgroup> ofLanes: array<f32, lanes>; // [head][16]
var<workgroup> sums: array<vec4<f32>, lanes>;
var<workgroup> rowOf: array<u32, lanes>;
var<workgroup> slabOf: array<u32, lanes>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let number = id.y * groups.x + id.x;
  let perItem = qHeads / heads;
  if (number >= work.items * perItem) {
    return;
  }
  let firstHead = (number % perItem) * heads;
  let item = itemsAt + 2u * (work.firstItem + number / perItem);
  let row = tables[item];
  let split = tables[item + 1u];
  let position = tables[4u * row];
  let table = tables[4u * row + 1u];
  let base = split * splitTokens;
  let end = min(position + 1u, base + splitTokens) - base;
  let seen = select(0u, position + 1u - min(window, position + 1u), window > 0u);
  let begin = max(base, seen) - base;

  // Scores: one token a lane.
  var pHEAD = vec4<f32>(); // each head
  var factor = 1.0;
  let visible = lane >= begin && lane < end;
  if (visible) {
    let token = base + lane;
    let slab = tables[entryOf(table, token)];
    let k = rowAt(table, token, firstHead / group);
    rowOf[lane] = k;
    slabOf[lane] = slab;
    let start = row * queryStride + queryOffset + firstHead * headDim4;
    // each slab {
    if (slab == SLABu) {
      factor *= scaleOf(slabSLAB[k + headDim4]); // scaled
      for (var dim = 0u; dim < headDim4; dim++) {
        let value = valueOf(slabSLAB[k + dim]);
        pHEAD = fma(queries[start + HEADu * headDim4 + dim] * scale, value, pHEAD); // each head
      }
    }
    // each slab }
  }
  scores[HEADu * lanes + lane] = ((pHEAD.x + pHEAD.y) + (pHEAD.z + pHEAD.w)) * factor; // each head
  workgroupBarrier();

  // Weights: 16 lanes a head, 8 tokens a lane.
  let head = lane / lanesAHead;
  let first = (lane % lanesAHead) * tokensALane;
  var largest = -3.4e38;
  if (head < heads) {
    for (var token = first; token < first + tokensALane; token++) {
      if (token >= begin && token < end) {
        largest = max(largest, scores[head * lanes + token]);
      }
    }
  }
  ofLanes[lane] = largest;
  workgroupBarrier();
  for (var other = 0u; other < lanesAHead; other++) {
    largest = max(largest, ofLanes[head * lanesAHead + other]);
  }
  workgroupBarrier();
  var total = 0.0;
  if (head < heads) {
    for (var token = first; token < first + tokensALane; token++) {
      var weight = 0.0;
      if (token >= begin && token < end) {
        weight = exp2(scores[head * lanes + token] - largest);
      }
      scores[head * lanes + token] = weight;
      total += weight;
    }
  }
  ofLanes[lane] = total;
  workgroupBarrier();
  let to = ((number / perItem) * qHeads + firstHead) * (headDim4 + 1u);
  if (head < heads && lane % lanesAHead == 0u) {
    for (var other = 1u; other < lanesAHead; other++) {
      total += ofLanes[head * lanesAHead + other];
    }
    partials[to + head * (headDim4 + 1u) + headDim4] = vec4(largest, total, 0.0, 0.0);
  }

  // V: one vector of the head a lane, and a share of the tokens.
  let shares = lanes / headDim4;
  let dim = lane % headDim4;
  let share = lane / headDim4;
  let tokens = (splitTokens + shares - 1u) / shares;
  var outHEAD = vec4<f32>(); // each head
  if (share < shares) {
    let stop = min(end, (share + 1u) * tokens);
    for (var token = max(begin, share * tokens); token < stop; token++) {
      let slab = slabOf[token];
      let v = rowOf[token] + kvUnits;
      // each slab {
      if (slab == SLABu) {
        var value = valueOf(slabSLAB[v + dim]);
        value *= scaleOf(slabSLAB[v + headDim4]); // scaled
        outHEAD = fma(vec4(scores[HEADu * lanes + token]), value, outHEAD); // each head
      }
      // each slab }
    }
  }
  // each head {
  sums[lane] = outHEAD;
  workgroupBarrier();
  if (share == 0u) {
    var sum = sums[dim];
    for (var other = 1u; other < shares; other++) {
      sum += sums[other * headDim4 + dim];
    }
    partials[to + HEADu * (headDim4 + 1u) + dim] = sum;
  }
  workgroupBarrier();
  // each head }
}
