// Shared by the kernels between blocks and dense tensors of one layer's K or V, [KV head][token][row]. A run is the rows of
// one head for all tokens of a block: it has no gap in the block, and none in the tensor. A dispatch covers blocks of one
// slab, and an invocation moves one unit.

struct Part {
  // Tokens that the tensor has room for in each head.
  tokens: u32,
  // Places of this dispatch: the first one, and how many.
  firstPlace: u32,
  places: u32,
  // Where the layer's K or V begins in a block, in units.
  firstUnit: u32,
}

struct Place {
  // Number of the block in its sequence, and where it begins in its slab, in units.
  block: u32,
  slabUnit: u32,
}

@group(0) @binding(0) var<storage, read> places: array<Place>;
@group(0) @binding(1) var<uniform> part: Part;

override blockTokens: u32;
override runUnits: u32;
override headUnits: u32;
override kvHeads: u32;

// Where an invocation's unit lies.
struct Unit {
  isPresent: bool,
  inSlab: u32,
  inTensor: u32,
}

fn unitOf(lane: u32) -> Unit {
  let blockUnits = kvHeads * runUnits;
  if (lane >= part.places * blockUnits) {
    return Unit(false, 0u, 0u);
  }
  let place = places[part.firstPlace + lane / blockUnits];
  let unit = lane % blockUnits;
  let head = unit / runUnits;
  let inRun = unit % runUnits;
  let rowUnits = runUnits / blockTokens;
  let inTensor = head * part.tokens * rowUnits + place.block * runUnits + inRun;
  return Unit(true, place.slabUnit + part.firstUnit + head * headUnits + inRun, inTensor);
}
