// Fills every item with its pattern (src/runtime/pattern.ts). Words are stored one by one, four a step: a
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
