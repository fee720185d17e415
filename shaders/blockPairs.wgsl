// What the kernels from block to block share: the pairs of blocks that a dispatch covers.

struct Pair {
  fromSlab: u32,
  fromUnit: u32, // where the block begins, in units of its own format
  toSlab: u32,
  toUnit: u32,
  tokens: u32, // of the block, from its first on
}

override blockTokens: u32;
override headDim4: u32;
override fromRowUnits: u32;
override toRowUnits: u32;
override blockRows: u32; // over all layers and heads, of K and of V

@group(0) @binding(0) var<storage, read> pairs: array<Pair>;
@group(0) @binding(1) var<uniform> count: vec4<u32>; // pairs, then nothing
