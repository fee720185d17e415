// Converts 32-bit floats to 16-bit floats by integers: to the nearest, ties to even. So the bytes are the
// same on every device, while WGSL leaves the rounding of its own conversions open.

// The four halves as bits. Exponents below -14 lose bits of the fraction; above 15 the result is infinite.
fn halfBits(value: vec4<f32>) -> vec4<u32> {
  let bits = bitcast<vec4<u32>>(value);
  let size = bits & vec4(0x7fffffffu);
  // Normal halves: the exponent's bias falls by 112, and 13 bits of the fraction are rounded away.
  let normal = (size - vec4(0x38000000u) + vec4(0xfffu) + ((size >> vec4(13u)) & vec4(1u))) >> vec4(13u);
  // Subnormal halves: the fraction with its leading 1, shifted to units of 2^-24.
  let shift = min(vec4(126u) - min(size >> vec4(23u), vec4(112u)), vec4(31u));
  let fraction = (size & vec4(0x7fffffu)) | vec4(0x800000u);
  let whole = fraction >> shift;
  let rest = fraction & ((vec4(1u) << shift) - vec4(1u));
  let half = vec4(1u) << (shift - vec4(1u));
  let up = (rest > half) | ((rest == half) & ((whole & vec4(1u)) == vec4(1u)));
  let subnormal = whole + select(vec4(0u), vec4(1u), up);
  var half16 = select(normal, subnormal, size < vec4(0x38800000u));
  half16 = select(half16, vec4(0x7c00u), size >= vec4(0x477ff000u));
  half16 = select(half16, vec4(0x7e00u), size > vec4(0x7f800000u));
  return half16 | ((bits >> vec4(16u)) & vec4(0x8000u));
}
