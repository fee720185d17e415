// The digest (src/runtime/digest.ts) of every item: results[2 i] = lo, results[2 i + 1] = hi, which must be
// zero before.
//
// Sums modulo 2^32 commute, so the order of invocations does not matter. Each steps through its workgroup's
// vectors by `workgroupSize`, and updates i * golden and 2 i + 1 of a vector's first word by addition. A
// vector of words (x, y, z, w) whose first word has the weight W adds (x + y + z + w) W + 2 y + 4 z + 6 w to
// `hi`.

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

// Each workgroup adds once, after a tree of sums in its memory. `workgroupSize` must be a power of two.
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
