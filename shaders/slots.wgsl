// What the kernels over whole slots share. An item is one slot. A dispatch covers `workgroups.y` items of one
// slab, each by `workgroups.x` workgroups. Words are numbered from the start of their slot; a slot starts at
// any word of the slab.

struct Item {
  wordOffset: u32,
  wordCount: u32,
  seedLo: u32,
  seedHi: u32,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;

// Two words for each item: the two halves of a digest, or a count and nothing.
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

// Words of the pattern that the seeds of the item name.
fn patternOf(item: Item, index: vec4<u32>) -> vec4<u32> {
  return mixWords(mixWords(vec4(item.seedLo) ^ (index * golden)) + vec4(item.seedHi));
}

// The half-open range of `count` units that workgroup `group` of `groups` works on.
fn rangeOf(count: u32, group: u32, groups: u32) -> vec2<u32> {
  let share = (count + groups - 1u) / groups;
  let first = group * share;
  return vec2(min(first, count), min(first + share, count));
}

// The slot of an item as whole vectors of 4 words of the slab, and at most 3 words before and 3 after them:
//
//     | n n n h | v v v v | v v v v | t t n n |       n: words of the neighbouring slots
struct Split {
  // The first whole vector, numbered within the slab, and how many there are.
  vector: u32,
  vectors: u32,
  // Words before it.
  head: u32,
}

fn splitOf(item: Item) -> Split {
  let first = (item.wordOffset + 3u) >> 2u;
  let end = max(first, (item.wordOffset + item.wordCount) >> 2u);
  return Split(first, end - first, min(item.wordCount, 4u * first - item.wordOffset));
}

const edges = 6u;

// The word of the item, if it has that many, that is number `edge` of those outside of whole vectors.
fn edgeWord(split: Split, edge: u32) -> u32 {
  return select(4u * split.vectors + edge, edge, edge < split.head);
}
