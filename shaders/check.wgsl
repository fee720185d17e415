// Counts the words of every place that are not its pattern's (src/runtime/pattern.ts): results[2 p], zero before.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;

@compute @workgroup_size(lanes)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let place = places[group.y];
  let vectors = vectorsOf(place);
  let range = vectors.xx + rangeOf(vectors.y - vectors.x, group.x, groups.x);
  var mismatches = vec4(0u);
  for (var at = range.x + lane; at < range.y; at += lanes) {
    let index = vec4(at * 4u) + vec4(0u, 1u, 2u, 3u) - vec4(place.wordOffset);
    let wanted = mixWords(mixWords(vec4(place.seedLo) ^ (index * golden)) + vec4(place.seedHi));
    mismatches += select(vec4(0u), vec4(1u), (slab[at] != wanted) & (index < vec4(place.wordCount)));
  }
  let count = mismatches.x + mismatches.y + mismatches.z + mismatches.w;
  if (count > 0u) {
    atomicAdd(&results[2u * group.y], count);
  }
}
