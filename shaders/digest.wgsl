// The digest of src/runtime/digest.ts of every place: results[2 p] = lo, results[2 p + 1] = hi, both zero before.
//
// Sums modulo 2^32 commute, so invocations need no order. Each walks its workgroup's vectors with a stride of `lanes`,
// and keeps i * golden and 2 i + 1 by addition. The words of neighbouring slots in the first and last vector count 0.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;

var<workgroup> partial: array<vec2<u32>, lanes>;

fn digestOf(place: Place, group: vec3<u32>, groups: vec3<u32>, lane: u32) -> vec2<u32> {
  let vectors = vectorsOf(place);
  let range = vectors.xx + rangeOf(vectors.y - vectors.x, group.x, groups.x);
  var index = vec4((range.x + lane) * 4u) + vec4(0u, 1u, 2u, 3u) - vec4(place.wordOffset);
  var position = index * golden;
  var weight = 2u * index + 1u;
  var lo = vec4(0u);
  var hi = vec4(0u);
  for (var at = range.x + lane; at < range.y; at += lanes) {
    let mixed = select(vec4(0u), mixWords(slab[at] ^ position), index < vec4(place.wordCount));
    lo += mixed;
    hi += mixed * weight;
    index += vec4(lanes * 4u);
    position += vec4(lanes * 4u * golden);
    weight += vec4(lanes * 8u);
  }
  return vec2(lo.x + lo.y + lo.z + lo.w, hi.x + hi.y + hi.z + hi.w);
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
  add(group.y, digestOf(places[group.y], group, groups, lane));
}

// A workgroup adds once, after a tree of sums in its own memory; `lanes` is a power of two.
@compute @workgroup_size(lanes)
fn reduced(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  partial[lane] = digestOf(places[group.y], group, groups, lane);
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
