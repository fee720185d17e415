// K and V as 8-bit integers: a word holds four elements. The word behind a row is its scale.

alias Stored = u32;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4<f32>(unpack4xI8(stored));
}

fn scaleOf(stored: Stored) -> f32 {
  return bitcast<f32>(stored);
}

// The factor of a row before it is rounded, by its largest absolute value: 0 for a row of zeros, of numbers
// too small to divide by, or with NaN. WGSL promises a quotient only for divisors up to 2^126 (8.5e37), and
// GPUs give 0 beyond it, so both sides of a large one are made smaller.
fn inverseOf(largest: f32) -> f32 {
  let part = select(1.0, 0.00390625, largest > 1e36);
  return select(0.0, (127.0 * part) / (largest * part), largest > 1e-36);
}

fn scaledOf(value: vec4<f32>, inverse: f32) -> Stored {
  return pack4xI8(vec4<i32>(clamp(round(value * inverse), vec4(-127.0), vec4(127.0))));
}

// The scale of a row. A NaN in the row makes the scale NaN, and so all of the row.
fn storedScale(largest: f32) -> Stored {
  return bitcast<u32>(largest / 127.0);
}
