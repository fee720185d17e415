/** Room for what the host writes. It asks when it is bound, and again when a list outgrows its room. */
export function alloc(bytes: i32): usize {
  return heap.alloc(bytes);
}

/** The field of a row, of which `offset` is what the host set the global of that field to. */
// @ts-ignore: a decorator of AssemblyScript
@inline
export function field(rows: usize, row: i32, rowBytes: i32, offset: i32): f64 {
  return load<f64>(rows + row * rowBytes + offset);
}
