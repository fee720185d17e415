// K and V as 32-bit floats.

alias Stored = vec4<f32>;

fn valueOf(stored: Stored) -> vec4<f32> {
  return stored;
}

fn storedOf(value: vec4<f32>) -> Stored {
  return value;
}
