// K and V as 16-bit floats, read as `f16`. They are written as the integers of shaders/halfBits.wgsl.

alias Stored = vec4<f16>;

fn valueOf(stored: Stored) -> vec4<f32> {
  return vec4<f32>(stored);
}

fn storedOf(value: vec4<f32>) -> Stored {
  let bits = halfBits(value);
  return bitcast<vec4<f16>>(vec2(bits.x | (bits.y << 16u), bits.z | (bits.w << 16u)));
}
