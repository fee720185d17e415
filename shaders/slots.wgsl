// Shared by the kernels over whole slots. An item is one slot. A dispatch covers `workgroups.y` items of one
// slab, with `workgroups.x` workgroups for each. Words are numbered from the start of their slot, which may
// be any word of the slab.

struct Item {
  wordOffset: u32,
  wordCount: u32,
  seedLo: u32,
  seedHi: u32,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;

// Two words for each item: the two halves of a digest, or a count and zero.
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

// Words `index` of the pattern of the item's seeds.
fn patternOf(item: Item, index: vec4<u32>) -> vec4<u32> {
  return mixWords(mixWords(vec4(item.seedLo) ^ (index * golden)) + vec4(item.seedHi));
}

// The half-open range of units, of `count`, for workgroup `group` of `groups`.
fn rangeOf(count: u32, group: u32, groups: u32) -> vec2<u32> {
  let share = (count + groups - 1u) / groups;
  let first = group * share;
  return vec2(min(first, count), min(first + share, count));
}

// The slot of an item as whole vectors of 4 words of the slab, and at most 3 words before and 3 after them:
//
//     | n n n h | v v v v | v v v v | t t n n |       n: words of the neighbouring slots
struct Split {
  // The first whole vector, numbered within the slab, and the number of whole vectors.
  vector: u32,
  vectors: u32,
  // Number of words before the first whole vector.
  head: u32,
}

fn splitOf(item: Item) -> Split {
  let first = (item.wordOffset + 3u) >> 2u;
  let end = max(first, (item.wordOffset + item.wordCount) >> 2u);
  return Split(first, end - first, min(item.wordCount, 4u * first - item.wordOffset));
}

const edges = 6u;

// The item's word number `edge` among its words outside of whole vectors, if it has that many.
fn edgeWord(split: Split, edge: u32) -> u32 {
  return select(4u * split.vectors + edge, edge, edge < split.head);
}
