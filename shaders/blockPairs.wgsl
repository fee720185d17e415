// Shared by the kernels that copy and convert blocks: the pairs of blocks of a dispatch.

struct Pair {
  fromSlab: u32,
  fromUnit: u32, // where the block begins, in units of its own format
  toSlab: u32,
  toUnit: u32,
  tokens: u32, // number of tokens, from the block's first on
}

override blockTokens: u32;
override headDim4: u32;
override fromRowUnits: u32;
override toRowUnits: u32;
override blockRows: u32; // rows of K and V, over all layers and heads

@group(0) @binding(0) var<storage, read> pairs: array<Pair>;
@group(0) @binding(1) var<uniform> count: vec4<u32>; // number of pairs, then unused
