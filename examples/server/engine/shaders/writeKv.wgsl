// Writes K and V of each row into its token's place in the sequence's blocks.

override headDim4: u32;
override qHeads: u32;
override kvHeads: u32;
override blockTokens: u32;
override headStride: u32; // in vectors of 16 bytes
override kvStride: u32;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>; // [row][Q heads, K heads, V heads][D]
@group(0) @binding(1) var<storage, read_write> slab: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> rows: array<vec4<u32>>; // position, first entry of the block table
@group(0) @binding(3) var<storage, read> entries: array<vec2<u32>>; // slab, offset in bytes
@group(0) @binding(4) var<uniform> counts: vec4<u32>; // rows, rows that sample
@group(0) @binding(5) var<uniform> layer: vec4<u32>; // the layer's place in a block, in vectors

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.y;
  if (id.x >= 2u * kvHeads * headDim4 || row >= counts.x) {
    return;
  }
  let dim = id.x % headDim4;
  let head = (id.x / headDim4) % kvHeads;
  let kv = id.x / (headDim4 * kvHeads);
  let position = rows[row].x;
  let block = entries[rows[row].y + position / blockTokens].y / 16u;
  let to = block + layer.x + head * headStride + kv * kvStride + (position % blockTokens) * headDim4 + dim;
  slab[to] = qkv[(row * (qHeads + 2u * kvHeads) + qHeads + kv * kvHeads + head) * headDim4 + dim];
}
