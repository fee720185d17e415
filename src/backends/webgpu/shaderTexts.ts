/**
 * The WGSL of `shaders/*.wgsl` by name: of the stores, and of `tierkv/compute`. Made from those files, and held to them, by
 * test/backends/webgpu/kernels/shader-texts-are-those-of-the-files.test.ts.
 */

export const storeShaders: Readonly<Record<string, string>> = {
  boxes: `// Shared by the kernels over boxes. In its slot a box is runs of equal length at regular distances. Packed,
// the runs follow each other without gaps:
//
//     slab     | . . a a . . b b . . | . . c c . . d d . . |       a b: runs of one layer, c d: of the next
//     packed   | a a b b c c d d |
//
// A dispatch covers \`workgroups.y\` items of one slab, with \`workgroups.x\` workgroups for each. All numbers of
// an item are in the kernel's unit: vectors of 16 bytes if every run begins and ends at a vector, else words.

struct Item {
  // Offset of the box's run 0 in the slab, and of the item's first run in the packed bytes.
  slab: u32,
  packed: u32,
  // The item is \`runs\` runs of the box, from run \`firstRun\` on.
  firstRun: u32,
  runs: u32,
  runUnits: u32,
  runsPerLayer: u32,
  runStride: u32,
  layerStride: u32,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;

// Invocations of a workgroup, and how many of them at most share a run. Both are powers of two.
override workgroupSize: u32 = 64u;
override sharersMax: u32 = 64u;

// The runs of its item, and the units of each run, that an invocation moves.
struct Walk {
  run: u32,
  runStep: u32,
  unit: u32,
  unitStep: u32,
}

fn walkOf(item: Item, group: u32, groups: u32, invocation: u32) -> Walk {
  let sharers = min(sharersMax, 1u << firstLeadingBit(item.runUnits));
  let runsAtOnce = workgroupSize / sharers;
  return Walk(group * runsAtOnce + invocation / sharers, groups * runsAtOnce, invocation % sharers, sharers);
}

fn slabUnit(item: Item, run: u32) -> u32 {
  let number = item.firstRun + run;
  let layer = number / item.runsPerLayer;
  return item.slab + layer * item.layerStride + (number - layer * item.runsPerLayer) * item.runStride;
}

fn packedUnit(item: Item, run: u32) -> u32 {
  return item.packed + run * item.runUnits;
}
`,
  check: `// Counts the words of every item that differ from its pattern (src/runtime/pattern.ts) in results[2 i], which
// must be zero before.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;

@compute @workgroup_size(workgroupSize)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let split = splitOf(item);
  let range = rangeOf(split.vectors, group.x, groups.x);
  var wrong = vec4(0u);
  for (var at = range.x + invocation; at < range.y; at += workgroupSize) {
    let wanted = patternOf(item, vec4(split.head + 4u * at) + vec4(0u, 1u, 2u, 3u));
    wrong += select(vec4(0u), vec4(1u), slab[split.vector + at] != wanted);
  }
  var count = wrong.x + wrong.y + wrong.z + wrong.w;
  if (group.x == 0u) {
    for (var edge = invocation; edge < edges; edge += workgroupSize) {
      let index = edgeWord(split, edge);
      let at = item.wordOffset + index;
      if (index < item.wordCount && slab[at >> 2u][at & 3u] != patternOf(item, vec4(index)).x) {
        count += 1u;
      }
    }
  }
  if (count > 0u) {
    atomicAdd(&results[2u * group.y], count);
  }
}
`,
  digest: `// The digest (src/runtime/digest.ts) of every item: results[2 i] = lo, results[2 i + 1] = hi, which must be
// zero before.
//
// Sums modulo 2^32 commute, so the order of invocations does not matter. Each steps through its workgroup's
// vectors by \`workgroupSize\`, and updates i * golden and 2 i + 1 of a vector's first word by addition. A
// vector of words (x, y, z, w) whose first word has the weight W adds (x + y + z + w) W + 2 y + 4 z + 6 w to
// \`hi\`.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;

fn spreadWords(value: vec4<u32>) -> vec4<u32> {
  let x = (value ^ (value >> vec4(16u))) * 0x21f0aaadu;
  return x ^ (x >> vec4(15u));
}

var<workgroup> partial: array<vec2<u32>, workgroupSize>;

const steps = vec4(0u, golden, 2u * golden, 3u * golden);

fn digestOf(item: Item, group: u32, groups: u32, invocation: u32) -> vec2<u32> {
  let split = splitOf(item);
  let range = rangeOf(split.vectors, group, groups);
  var lo = 0u;
  var hi = 0u;
  let first = split.head + 4u * (range.x + invocation);
  var position = first * golden;
  var weight = 2u * first + 1u;
  for (var at = range.x + invocation; at < range.y; at += workgroupSize) {
    let spread = spreadWords(slab[split.vector + at] ^ (vec4(position) + steps));
    let sum = spread.x + spread.y + spread.z + spread.w;
    lo += sum;
    hi += sum * weight + 2u * (spread.y + spread.w + 2u * (spread.z + spread.w));
    position += workgroupSize * 4u * golden;
    weight += workgroupSize * 8u;
  }
  if (group == 0u) {
    for (var edge = invocation; edge < edges; edge += workgroupSize) {
      let index = edgeWord(split, edge);
      if (index < item.wordCount) {
        let at = item.wordOffset + index;
        let spread = spreadWords(vec4(slab[at >> 2u][at & 3u] ^ (index * golden))).x;
        lo += spread;
        hi += spread * (2u * index + 1u);
      }
    }
  }
  return vec2(lo, hi);
}

fn add(item: u32, digest: vec2<u32>) {
  atomicAdd(&results[2u * item], digest.x);
  atomicAdd(&results[2u * item + 1u], digest.y);
}

// Each invocation adds its own part: for devices on which a barrier costs more than an atomic.
@compute @workgroup_size(workgroupSize)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  add(group.y, digestOf(items[group.y], group.x, groups.x, invocation));
}

// Each workgroup adds once, after a tree of sums in its memory. \`workgroupSize\` must be a power of two.
@compute @workgroup_size(workgroupSize)
fn reduced(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  partial[invocation] = digestOf(items[group.y], group.x, groups.x, invocation);
  for (var half = workgroupSize / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (invocation < half) {
      partial[invocation] += partial[invocation + half];
    }
  }
  if (invocation == 0u) {
    add(group.y, partial[0]);
  }
}
`,
  fill: `// Fills every item with its pattern (src/runtime/pattern.ts). Words are stored one by one, four a step: a
// vector may belong to two slots, and two invocations that rewrite it as a whole would lose words.

@group(0) @binding(0) var<storage, read_write> slab: array<u32>;

@compute @workgroup_size(workgroupSize)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let fours = item.wordCount / 4u;
  let range = rangeOf(fours, group.x, groups.x);
  for (var four = range.x + invocation; four < range.y; four += workgroupSize) {
    let words = patternOf(item, vec4(4u * four) + vec4(0u, 1u, 2u, 3u));
    let at = item.wordOffset + 4u * four;
    slab[at] = words.x;
    slab[at + 1u] = words.y;
    slab[at + 2u] = words.z;
    slab[at + 3u] = words.w;
  }
  if (group.x == 0u) {
    for (var index = 4u * fours + invocation; index < item.wordCount; index += workgroupSize) {
      slab[item.wordOffset + index] = patternOf(item, vec4(index)).x;
    }
  }
}
`,
  gather: `// Packs boxes: copies the runs of every item from its slot into the packed bytes. Each packed unit is written
// once.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;
@group(1) @binding(0) var<storage, read_write> packed: array<vec4<u32>>;

// The same buffers as words. A kernel uses either vectors or words: a store to a component of a vector may
// rewrite the whole vector, whose other words belong to other invocations.
@group(0) @binding(0) var<storage, read> slabWords: array<u32>;
@group(1) @binding(0) var<storage, read_write> packedWords: array<u32>;

@compute @workgroup_size(workgroupSize)
fn vectors(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let walk = walkOf(item, group.x, groups.x, invocation);
  for (var run = walk.run; run < item.runs; run += walk.runStep) {
    let slabAt = slabUnit(item, run);
    let packedAt = packedUnit(item, run);
    for (var unit = walk.unit; unit < item.runUnits; unit += walk.unitStep) {
      packed[packedAt + unit] = slab[slabAt + unit];
    }
  }
}

@compute @workgroup_size(workgroupSize)
fn words(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let walk = walkOf(item, group.x, groups.x, invocation);
  for (var run = walk.run; run < item.runs; run += walk.runStep) {
    let slabAt = slabUnit(item, run);
    let packedAt = packedUnit(item, run);
    for (var unit = walk.unit; unit < item.runUnits; unit += walk.unitStep) {
      packedWords[packedAt + unit] = slabWords[slabAt + unit];
    }
  }
}
`,
  scatter: `// Unpacks boxes: copies the runs of every item from the packed bytes into its slot, and writes nothing
// outside of a run. The boxes of a dispatch must not overlap.

@group(0) @binding(0) var<storage, read_write> slab: array<vec4<u32>>;
@group(1) @binding(0) var<storage, read> packed: array<vec4<u32>>;

// The same buffers as words. A kernel uses either vectors or words: a store to a component of a vector may
// rewrite the whole vector, whose other words belong to other runs or to the neighbouring slot.
@group(0) @binding(0) var<storage, read_write> slabWords: array<u32>;
@group(1) @binding(0) var<storage, read> packedWords: array<u32>;

@compute @workgroup_size(workgroupSize)
fn vectors(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let walk = walkOf(item, group.x, groups.x, invocation);
  for (var run = walk.run; run < item.runs; run += walk.runStep) {
    let slabAt = slabUnit(item, run);
    let packedAt = packedUnit(item, run);
    for (var unit = walk.unit; unit < item.runUnits; unit += walk.unitStep) {
      slab[slabAt + unit] = packed[packedAt + unit];
    }
  }
}

@compute @workgroup_size(workgroupSize)
fn words(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) invocation: u32,
) {
  let item = items[group.y];
  let walk = walkOf(item, group.x, groups.x, invocation);
  for (var run = walk.run; run < item.runs; run += walk.runStep) {
    let slabAt = slabUnit(item, run);
    let packedAt = packedUnit(item, run);
    for (var unit = walk.unit; unit < item.runUnits; unit += walk.unitStep) {
      slabWords[slabAt + unit] = packedWords[packedAt + unit];
    }
  }
}
`,
  slots: `// Shared by the kernels over whole slots. An item is one slot. A dispatch covers \`workgroups.y\` items of one
// slab, with \`workgroups.x\` workgroups for each. Words are numbered from the start of their slot, which may
// be any word of the slab.

struct Item {
  wordOffset: u32,
  wordCount: u32,
  seedLo: u32,
  seedHi: u32,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;

// Two words for each item: the two halves of a digest, or a count and zero.
@group(0) @binding(2) var<storage, read_write> results: array<atomic<u32>>;

// Invocations of a workgroup.
override workgroupSize: u32 = 64u;

const golden = 0x9E3779B1u;

// The 32-bit finalizer of MurmurHash3 (Appleby, public domain), as in src/runtime/pattern.ts.
fn mixWords(value: vec4<u32>) -> vec4<u32> {
  var x = value;
  x = (x ^ (x >> vec4(16u))) * 0x85ebca6bu;
  x = (x ^ (x >> vec4(13u))) * 0xc2b2ae35u;
  return x ^ (x >> vec4(16u));
}

// Words \`index\` of the pattern of the item's seeds.
fn patternOf(item: Item, index: vec4<u32>) -> vec4<u32> {
  return mixWords(mixWords(vec4(item.seedLo) ^ (index * golden)) + vec4(item.seedHi));
}

// The half-open range of units, of \`count\`, for workgroup \`group\` of \`groups\`.
fn rangeOf(count: u32, group: u32, groups: u32) -> vec2<u32> {
  let share = (count + groups - 1u) / groups;
  let first = group * share;
  return vec2(min(first, count), min(first + share, count));
}

// The slot of an item as whole vectors of 4 words of the slab, and at most 3 words before and 3 after them:
//
//     | n n n h | v v v v | v v v v | t t n n |       n: words of the neighbouring slots
struct Split {
  // The first whole vector, numbered within the slab, and the number of whole vectors.
  vector: u32,
  vectors: u32,
  // Number of words before the first whole vector.
  head: u32,
}

fn splitOf(item: Item) -> Split {
  let first = (item.wordOffset + 3u) >> 2u;
  let end = max(first, (item.wordOffset + item.wordCount) >> 2u);
  return Split(first, end - first, min(item.wordCount, 4u * first - item.wordOffset));
}

const edges = 6u;

// The item's word number \`edge\` among its words outside of whole vectors, if it has that many.
fn edgeWord(split: Split, edge: u32) -> u32 {
  return select(4u * split.vectors + edge, edge, edge < split.head);
}
`,
};

export const computeShaders: Readonly<Record<string, string>> = {
  attend: `// Paged attention, first part. One invocation attends with some query heads that share a KV head, for one row
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
override heads: u32; // query heads of an invocation, a divisor of \`group\`

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
`,
  attendShared: `// Paged attention, first part, for hardware. A workgroup attends with query heads that share a KV head, over
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
override heads: u32; // query heads of a workgroup: at most 8, a divisor of \`group\`

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
`,
  blockPairs: `// Shared by the kernels that copy and convert blocks: the pairs of blocks of a dispatch.

struct Pair {
  fromSlab: u32,
  fromUnit: u32, // where the block begins, in units of its own format
  toSlab: u32,
  toUnit: u32,
  tokens: u32, // number of tokens, from the block's first on
}

override blockTokens: u32;
override headDim4: u32;
override fromRowUnits: u32;
override toRowUnits: u32;
override blockRows: u32; // rows of K and V, over all layers and heads

@group(0) @binding(0) var<storage, read> pairs: array<Pair>;
@group(0) @binding(1) var<uniform> count: vec4<u32>; // number of pairs, then unused
`,
  convertBlocks: `// Converts the first tokens of blocks into blocks of another pool, whose format has no scales. An invocation
// converts one vector of 4 elements.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  let vectors = blockRows * headDim4;
  if (lane >= count.x * vectors) {
    return;
  }
  let pair = pairs[lane / vectors];
  let row = (lane % vectors) / headDim4;
  let dim = lane % headDim4;
  if (row % blockTokens >= pair.tokens) {
    return;
  }
  let stored = toStoredOf(vectorOf(pair.fromSlab, pair.fromUnit + row * fromRowUnits, dim));
  let to = pair.toUnit + row * toRowUnits + dim;
  if (pair.toSlab == TARGETu) { toTARGET[to] = stored; } // each target
}
`,
  convertBlocksScaled: `// Converts the first tokens of blocks into blocks of another pool, whose rows have a scale. An invocation
// converts one row of one head, by the rule of shaders/writeKvScaled.wgsl.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= count.x * blockRows) {
    return;
  }
  let pair = pairs[lane / blockRows];
  let row = lane % blockRows;
  if (row % blockTokens >= pair.tokens) {
    return;
  }
  let start = pair.fromUnit + row * fromRowUnits;
  var sizes = vec4(0u);
  for (var dim = 0u; dim < headDim4; dim++) {
    sizes = max(sizes, bitcast<vec4<u32>>(vectorOf(pair.fromSlab, start, dim)) & vec4(0x7fffffffu));
  }
  let largest = bitcast<f32>(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
  let inverse = toInverseOf(largest);
  let to = pair.toUnit + row * toRowUnits;
  for (var dim = 0u; dim < headDim4; dim++) {
    let stored = toScaledOf(vectorOf(pair.fromSlab, start, dim), inverse);
    if (pair.toSlab == TARGETu) { toTARGET[to + dim] = stored; } // each target
  }
  let scale = toStoredScale(largest);
  if (pair.toSlab == TARGETu) { toTARGET[to + headDim4] = scale; } // each target
}
`,
  convertSlabs: `// The slabs of two pools whose blocks have different formats, and the reading of a vector as floats.

@group(1) @binding(SLAB) var<storage, read> fromSLAB: array<FromStored>; // each slab
@group(2) @binding(TARGET) var<storage, read_write> toTARGET: array<ToStored>; // each target

// Vector \`dim\` of the row that begins at \`row\`.
fn vectorOf(slab: u32, row: u32, dim: u32) -> vec4<f32> {
  var value = vec4<f32>();
  if (slab == SLABu) { value = fromValueOf(fromSLAB[row + dim]); } // each slab
  // scaled {
  if (slab == SLABu) { value *= fromScaleOf(fromSLAB[row + headDim4]); } // each slab
  // scaled }
  return value;
}
`,
  copyBlocks: `// Copies the first tokens of blocks into other blocks of the same pool, bit for bit. An invocation copies one
// unit. Pairs of a dispatch must not read a block that a pair writes.

@group(1) @binding(SLAB) var<storage, read_write> slabSLAB: array<Stored>; // each slab

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  let blockUnits = blockRows * fromRowUnits;
  if (lane >= count.x * blockUnits) {
    return;
  }
  let pair = pairs[lane / blockUnits];
  let unit = lane % blockUnits;
  if ((unit / fromRowUnits) % blockTokens >= pair.tokens) {
    return;
  }
  var value = Stored();
  if (pair.fromSlab == SLABu) { value = slabSLAB[pair.fromUnit + unit]; } // each slab
  if (pair.toSlab == SLABu) { slabSLAB[pair.toUnit + unit] = value; } // each slab
}
`,
  denseHeads: `// Shared by the kernels between blocks and dense tensors of one layer's K or V, [KV head][token][row]. A run is the rows of
// one head for all tokens of a block: it has no gap in the block, and none in the tensor. A dispatch covers blocks of one
// slab, and an invocation moves one unit.

struct Part {
  // Tokens that the tensor has room for in each head.
  tokens: u32,
  // Places of this dispatch: the first one, and how many.
  firstPlace: u32,
  places: u32,
  // Where the layer's K or V begins in a block, in units.
  firstUnit: u32,
}

struct Place {
  // Number of the block in its sequence, and where it begins in its slab, in units.
  block: u32,
  slabUnit: u32,
}

@group(0) @binding(0) var<storage, read> places: array<Place>;
@group(0) @binding(1) var<uniform> part: Part;

override blockTokens: u32;
override runUnits: u32;
override headUnits: u32;
override kvHeads: u32;

// Where an invocation's unit lies.
struct Unit {
  isPresent: bool,
  inSlab: u32,
  inTensor: u32,
}

fn unitOf(lane: u32) -> Unit {
  let blockUnits = kvHeads * runUnits;
  if (lane >= part.places * blockUnits) {
    return Unit(false, 0u, 0u);
  }
  let place = places[part.firstPlace + lane / blockUnits];
  let unit = lane % blockUnits;
  let head = unit / runUnits;
  let inRun = unit % runUnits;
  let rowUnits = runUnits / blockTokens;
  let inTensor = head * part.tokens * rowUnits + place.block * runUnits + inRun;
  return Unit(true, place.slabUnit + part.firstUnit + head * headUnits + inRun, inTensor);
}
`,
  gatherHeads: `// Copies runs out of blocks into a dense tensor. Each unit of the tensor is written once.

@group(0) @binding(2) var<storage, read> slab: array<Stored>;
@group(0) @binding(3) var<storage, read_write> tensor: array<Stored>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let unit = unitOf(id.y * groups.x * 64u + id.x);
  if (unit.isPresent) {
    tensor[unit.inTensor] = slab[unit.inSlab];
  }
}
`,
  halfBits: `// Converts 32-bit floats to 16-bit floats by integers: to the nearest, ties to even. So the bytes are the
// same on every device, while WGSL leaves the rounding of its own conversions open.

// The four halves as bits. Exponents below -14 lose bits of the fraction; above 15 the result is infinite.
fn halfBits(value: vec4<f32>) -> vec4<u32> {
  let bits = bitcast<vec4<u32>>(value);
  let size = bits & vec4(0x7fffffffu);
  // Normal halves: the exponent's bias falls by 112, and 13 bits of the fraction are rounded away.
  let normal = (size - vec4(0x38000000u) + vec4(0xfffu) + ((size >> vec4(13u)) & vec4(1u))) >> vec4(13u);
  // Subnormal halves: the fraction with its leading 1, shifted to units of 2^-24.
  let shift = min(vec4(126u) - min(size >> vec4(23u), vec4(112u)), vec4(31u));
  let fraction = (size & vec4(0x7fffffu)) | vec4(0x800000u);
  let whole = fraction >> shift;
  let rest = fraction & ((vec4(1u) << shift) - vec4(1u));
  let half = vec4(1u) << (shift - vec4(1u));
  let up = (rest > half) | ((rest == half) & ((whole & vec4(1u)) == vec4(1u)));
  let subnormal = whole + select(vec4(0u), vec4(1u), up);
  var half16 = select(normal, subnormal, size < vec4(0x38800000u));
  half16 = select(half16, vec4(0x7c00u), size >= vec4(0x477ff000u));
  half16 = select(half16, vec4(0x7e00u), size > vec4(0x7f800000u));
  return half16 | ((bits >> vec4(16u)) & vec4(0x8000u));
}
`,
  kvF16: `// K and V as 16-bit floats, read as \`f16\`. They are written as the integers of shaders/halfBits.wgsl.

alias Stored = vec4<f16>;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4<f32>(stored);
}

fn storedOf(value: vec4<f32>) -> Stored {
  let bits = halfBits(value);
  return bitcast<vec4<f16>>(vec2(bits.x | (bits.y << 16u), bits.z | (bits.w << 16u)));
}
`,
  kvF16Packed: `// K and V as 16-bit floats, on devices without \`f16\`: two words hold four elements.

alias Stored = vec2<u32>;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4(unpack2x16float(stored.x), unpack2x16float(stored.y));
}

fn storedOf(value: vec4<f32>) -> Stored {
  let bits = halfBits(value);
  return vec2(bits.x | (bits.y << 16u), bits.z | (bits.w << 16u));
}
`,
  kvF32: `// K and V as 32-bit floats.

alias Stored = vec4<f32>;

fn valueOf(stored: Stored) -> vec4<f32> {
  return stored;
}

fn storedOf(value: vec4<f32>) -> Stored {
  return value;
}
`,
  kvInt8: `// K and V as 8-bit integers: a word holds four elements. The word behind a row is its scale.

alias Stored = u32;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4<f32>(unpack4xI8(stored));
}

fn scaleOf(stored: Stored) -> f32 {
  return bitcast<f32>(stored);
}

// The factor of a row before it is rounded, by its largest absolute value: 0 for a row of zeros, of numbers
// too small to divide by, or with NaN. WGSL promises a quotient only for divisors up to 2^126 (8.5e37), and
// GPUs give 0 beyond it, so both sides of a large one are made smaller.
fn inverseOf(largest: f32) -> f32 {
  let part = select(1.0, 0.00390625, largest > 1e36);
  return select(0.0, (127.0 * part) / (largest * part), largest > 1e-36);
}

fn scaledOf(value: vec4<f32>, inverse: f32) -> Stored {
  return pack4xI8(vec4<i32>(clamp(round(value * inverse), vec4(-127.0), vec4(127.0))));
}

// The scale of a row. A NaN in the row makes the scale NaN, and so all of the row.
fn storedScale(largest: f32) -> Stored {
  return bitcast<u32>(largest / 127.0);
}
`,
  pagedRows: `// Shared by the kernels over paged blocks: the tables of a step, and the place of a token's row of K. Sizes
// within blocks are in units of 4 elements, the type \`Stored\` of the format's file (shaders/kv*.wgsl).
//
//     tables   | rows: position, first entry, first item, items | items: row, split | entries: slab, bytes |

override blockTokens: u32;
override rowUnits: u32;
override kvUnits: u32; // distance from a row of K to its row of V
override headUnits: u32;
override unitBytes: u32;
override itemsAt: u32; // begin of the items in the tables, in words
override entriesAt: u32;

const splitTokens = 128u;
// The position of a padding row.
const noToken = 0xffffffffu;

// The rows, items and layer of a dispatch.
struct Work {
  firstItem: u32,
  items: u32,
  firstRow: u32,
  rows: u32,
}

struct Layer {
  // Begin of the layer in a block.
  units: u32,
}

@group(0) @binding(0) var<storage, read> tables: array<u32>;
@group(0) @binding(1) var<uniform> work: Work;
@group(0) @binding(4) var<uniform> layer: Layer;
`,
  pagedSlabs: `// The slabs that hold the blocks, and the way from a token to its row.

@group(1) @binding(SLAB) var<storage, ACCESS> slabSLAB: array<Stored>; // each slab

// The entry of the block table for a token: its slab, then its offset in bytes.
fn entryOf(table: u32, token: u32) -> u32 {
  return entriesAt + 2u * (table + token / blockTokens);
}

// Begin of the token's row of K in its slab. Its row of V is \`kvUnits\` further.
fn rowAt(table: u32, token: u32, kvHead: u32) -> u32 {
  let block = tables[entryOf(table, token) + 1u] / unitBytes;
  return block + layer.units + kvHead * headUnits + (token % blockTokens) * rowUnits;
}
`,
  readKv: `// Reads K and V of each row's token from its block, as 32-bit floats. An invocation reads one unit.

override headDim4: u32;
override kvHeads: u32;

@group(0) @binding(2) var<storage, read_write> dense: array<vec4<f32>>; // [row][K, V][head][dim]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= work.rows * 2u * kvHeads * headDim4) {
    return;
  }
  let dim = lane % headDim4;
  let head = (lane / headDim4) % kvHeads;
  let isV = (lane / (headDim4 * kvHeads)) % 2u == 1u;
  let row = work.firstRow + lane / (2u * headDim4 * kvHeads);
  let position = tables[4u * row];
  let table = tables[4u * row + 1u];
  let slab = tables[entryOf(table, position)];
  let start = rowAt(table, position, head) + select(0u, kvUnits, isV);
  var value = vec4<f32>();
  if (slab == SLABu) { value = valueOf(slabSLAB[start + dim]); } // each slab
  // scaled {
  if (slab == SLABu) { value *= scaleOf(slabSLAB[start + headDim4]); } // each slab
  // scaled }
  dense[lane] = value;
}
`,
  reduceSplits: `// Paged attention, second part: combines the splits of each row and query head, in the order of their
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
`,
  scatterHeads: `// Copies runs of a dense tensor into blocks. Each unit of a block is written once, and no unit outside of the runs.

@group(0) @binding(2) var<storage, read_write> slab: array<Stored>;
@group(0) @binding(3) var<storage, read> tensor: array<Stored>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let unit = unitOf(id.y * groups.x * 64u + id.x);
  if (unit.isPresent) {
    slab[unit.inSlab] = tensor[unit.inTensor];
  }
}
`,
  writeKv: `// Writes K and V of each row into its token's place in the sequence's blocks. An invocation writes one unit.

override headDim4: u32;
override kvHeads: u32;
// Layout of the source, in vectors: distance of rows, distance of heads, begin of K and of V.
override sourceStride: u32;
override sourceHead: u32;
override kOffset: u32;
override vOffset: u32;

@group(0) @binding(2) var<storage, read> source: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= work.rows * 2u * kvHeads * headDim4) {
    return;
  }
  let dim = lane % headDim4;
  let head = (lane / headDim4) % kvHeads;
  let isV = (lane / (headDim4 * kvHeads)) % 2u == 1u;
  let row = work.firstRow + lane / (2u * headDim4 * kvHeads);
  let position = tables[4u * row];
  if (position == noToken) {
    return;
  }
  let start = row * sourceStride + head * sourceHead + select(kOffset, vOffset, isV) + dim;
  let stored = storedOf(source[start]);
  let table = tables[4u * row + 1u];
  let slab = tables[entryOf(table, position)];
  let to = rowAt(table, position, head) + select(0u, kvUnits, isV) + dim;
  if (slab == SLABu) { slabSLAB[to] = stored; } // each slab
}
`,
  writeKvScaled: `// Writes K and V of each row into its token's place as 8-bit integers, with the row's scale behind them. An
// invocation writes one row of one head. The scale is the row's largest absolute value over 127. The largest
// is found by comparing bits, which order NaN above all numbers, so a NaN makes the whole row NaN.

override headDim4: u32;
override kvHeads: u32;
// Layout of the source, in vectors: distance of rows, distance of heads, begin of K and of V.
override sourceStride: u32;
override sourceHead: u32;
override kOffset: u32;
override vOffset: u32;

@group(0) @binding(2) var<storage, read> source: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let lane = id.y * groups.x * 64u + id.x;
  if (lane >= work.rows * 2u * kvHeads) {
    return;
  }
  let head = lane % kvHeads;
  let isV = (lane / kvHeads) % 2u == 1u;
  let row = work.firstRow + lane / (2u * kvHeads);
  let position = tables[4u * row];
  if (position == noToken) {
    return;
  }
  let start = row * sourceStride + head * sourceHead + select(kOffset, vOffset, isV);
  var sizes = vec4(0u);
  for (var dim = 0u; dim < headDim4; dim++) {
    sizes = max(sizes, bitcast<vec4<u32>>(source[start + dim]) & vec4(0x7fffffffu));
  }
  let largest = bitcast<f32>(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
  let inverse = inverseOf(largest);
  let table = tables[4u * row + 1u];
  let slab = tables[entryOf(table, position)];
  let to = rowAt(table, position, head) + select(0u, kvUnits, isV);
  for (var dim = 0u; dim < headDim4; dim++) {
    let stored = scaledOf(source[start + dim], inverse);
    if (slab == SLABu) { slabSLAB[to + dim] = stored; } // each slab
  }
  let scale = storedScale(largest);
  if (slab == SLABu) { slabSLAB[to + headDim4] = scale; } // each slab
}
`,
};
