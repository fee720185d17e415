// Counts the words of every item that differ from its pattern (src/runtime/pattern.ts) in results[2 i], which
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
