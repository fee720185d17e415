// Counts the words of every place that are not its pattern's (src/runtime/pattern.ts): results[2 p], zero before.

@group(0) @binding(0) var<storage, read> slab: array<vec4<u32>>;

fn patternOf(place: Place, index: vec4<u32>) -> vec4<u32> {
  return mixWords(mixWords(vec4(place.seedLo) ^ (index * golden)) + vec4(place.seedHi));
}

@compute @workgroup_size(lanes)
fn scattered(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let place = places[group.y];
  let split = splitOf(place);
  let range = rangeOf(split.vectors, group.x, groups.x);
  var wrong = vec4(0u);
  for (var at = range.x + lane; at < range.y; at += lanes) {
    let wanted = patternOf(place, vec4(split.head + 4u * at) + vec4(0u, 1u, 2u, 3u));
    wrong += select(vec4(0u), vec4(1u), slab[split.vector + at] != wanted);
  }
  var count = wrong.x + wrong.y + wrong.z + wrong.w;
  if (group.x == 0u) {
    for (var edge = lane; edge < edges; edge += lanes) {
      let index = edgeWord(split, edge);
      let at = place.wordOffset + index;
      if (index < place.wordCount && slab[at >> 2u][at & 3u] != patternOf(place, vec4(index)).x) {
        count += 1u;
      }
    }
  }
  if (count > 0u) {
    atomicAdd(&results[2u * group.y], count);
  }
}
