// Shared by the kernels over paged blocks: the tables of a step, and the place of a token's row of K. Sizes
// within blocks are in units of 4 elements, the type `Stored` of the format's file (shaders/kv*.wgsl).
//
//     tables   | rows: position, first entry, first item, items | items: row, split | entries: slab, bytes |

override blockTokens: u32;
override rowUnits: u32;
override kvUnits: u32; // distance from a row of K to its row of V
override headUnits: u32;
override unitBytes: u32;
override itemsAt: u32; // begin of the items in the tables, in words
override entriesAt: u32;

const splitTokens = 128u;
// The position of a padding row.
const noToken = 0xffffffffu;

// The rows, items and layer of a dispatch.
struct Work {
  firstItem: u32,
  items: u32,
  firstRow: u32,
  rows: u32,
}

struct Layer {
  // Begin of the layer in a block.
  units: u32,
}

@group(0) @binding(0) var<storage, read> tables: array<u32>;
@group(0) @binding(1) var<uniform> work: Work;
@group(0) @binding(4) var<uniform> layer: Layer;
