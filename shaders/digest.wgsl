// The digest of src/runtime/digest.ts of every place: results[2 p] = lo, results[2 p + 1] = hi, both zero before.
//
// Sums modulo 2^32 commute, so invocations need no order. Each walks its workgroup's vectors with a stride of `lanes`
// and keeps i * golden and 2 i + 1 of a vector's first word by addition. For the words (x, y, z, w) of a vector whose
// first word has the weight W, the part of `hi` is (x + y + z + w) W + 2 y + 4 z + 6 w.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;

fn spreadWords(value: vec4<u32>) -> vec4<u32> {
  let x = (value ^ (value >> vec4(16u))) * 0x21f0aaadu;
  return x ^ (x >> vec4(15u));
}

var<workgroup> partial: array<vec2<u32>, lanes>;

const steps = vec4(0u, golden, 2u * golden, 3u * golden);

fn digestOf(place: Place, group: u32, groups: u32, lane: u32) -> vec2<u32> {
  let split = splitOf(place);
  let range = rangeOf(split.vectors, group, groups);
  var lo = 0u;
  var hi = 0u;
  let first = split.head + 4u * (range.x + lane);
  var position = first * golden;
  var weight = 2u * first + 1u;
  for (var at = range.x + lane; at < range.y; at += lanes) {
    let spread = spreadWords(slab[split.vector + at] ^ (vec4(position) + steps));
    let sum = spread.x + spread.y + spread.z + spread.w;
    lo += sum;
    hi += sum * weight + 2u * (spread.y + spread.w + 2u * (spread.z + spread.w));
    position += lanes * 4u * golden;
    weight += lanes * 8u;
  }
  if (group == 0u) {
    for (var edge = lane; edge < edges; edge += lanes) {
      let index = edgeWord(split, edge);
      if (index < place.wordCount) {
        let at = place.wordOffset + index;
        let spread = spreadWords(vec4(slab[at >> 2u][at & 3u] ^ (index * golden))).x;
        lo += spread;
        hi += spread * (2u * index + 1u);
      }
    }
  }
  return vec2(lo, hi);
}

fn add(place: u32, digest: vec2<u32>) {
  atomicAdd(&results[2u * place], digest.x);
  atomicAdd(&results[2u * place + 1u], digest.y);
}

// Every invocation adds its own part: for devices on which a barrier costs more than an atomic.
@compute @workgroup_size(lanes)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  add(group.y, digestOf(places[group.y], group.x, groups.x, lane));
}

// A workgroup adds once, after a tree of sums in its own memory; `lanes` is a power of two.
@compute @workgroup_size(lanes)
fn reduced(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  partial[lane] = digestOf(places[group.y], group.x, groups.x, lane);
  for (var half = lanes / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      partial[lane] += partial[lane + half];
    }
  }
  if (lane == 0u) {
    add(group.y, partial[0]);
  }
}
