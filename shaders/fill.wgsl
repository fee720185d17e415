// Fills every place with its pattern (src/runtime/pattern.ts). Words are stored one by one, four to an invocation: a
// vector may belong to two slots, and two invocations that each rewrite half of it would lose words.

@group(0) @binding(0) var<storage, read_write> slab: array<u32>;

@compute @workgroup_size(lanes)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let place = places[group.y];
  let range = rangeOf((place.wordCount + 3u) / 4u, group.x, groups.x);
  for (var four = range.x + lane; four < range.y; four += lanes) {
    let index = vec4(four * 4u) + vec4(0u, 1u, 2u, 3u);
    let words = mixWords(mixWords(vec4(place.seedLo) ^ (index * golden)) + vec4(place.seedHi));
    let at = place.wordOffset + index.x;
    slab[at] = words.x;
    if (index.y < place.wordCount) { slab[at + 1u] = words.y; }
    if (index.z < place.wordCount) { slab[at + 2u] = words.z; }
    if (index.w < place.wordCount) { slab[at + 3u] = words.w; }
  }
}
