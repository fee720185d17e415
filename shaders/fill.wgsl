// Fills every place with its pattern (src/runtime/pattern.ts). Words are stored one by one, four to a step: a vector may
// belong to two slots, and two invocations that each rewrite half of it would lose words.

@group(0) @binding(0) var<storage, read_write> slab: array<u32>;

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
  let fours = place.wordCount / 4u;
  let range = rangeOf(fours, group.x, groups.x);
  for (var four = range.x + lane; four < range.y; four += lanes) {
    let words = patternOf(place, vec4(4u * four) + vec4(0u, 1u, 2u, 3u));
    let at = place.wordOffset + 4u * four;
    slab[at] = words.x;
    slab[at + 1u] = words.y;
    slab[at + 2u] = words.z;
    slab[at + 3u] = words.w;
  }
  if (group.x == 0u) {
    for (var index = 4u * fours + lane; index < place.wordCount; index += lanes) {
      slab[place.wordOffset + index] = patternOf(place, vec4(index)).x;
    }
  }
}
