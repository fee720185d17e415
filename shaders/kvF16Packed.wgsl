// K and V as 16-bit floats, on devices without `f16`: two words hold four elements.

alias Stored = vec2<u32>;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4(unpack2x16float(stored.x), unpack2x16float(stored.y));
}

fn storedOf(value: vec4<f32>) -> Stored {
  let bits = halfBits(value);
  return vec2(bits.x | (bits.y << 16u), bits.z | (bits.w << 16u));
}
