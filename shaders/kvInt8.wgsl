// K and V as 8-bit integers: a word holds four. The word behind a row is its scale.

alias Stored = u32;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4<f32>(unpack4xI8(stored));
}

fn scaleOf(stored: Stored) -> f32 {
  return bitcast<f32>(stored);
}
