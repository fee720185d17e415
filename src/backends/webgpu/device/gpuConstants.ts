/** WebGPU's flag values. They are globals in a browser only, and the binding's own object has no types. */

export const BufferUsage = {
  MAP_READ: 0x0001,
  MAP_WRITE: 0x0002,
  COPY_SRC: 0x0004,
  COPY_DST: 0x0008,
  STORAGE: 0x0080,
} as const;

export const MapMode = { READ: 0x0001, WRITE: 0x0002 } as const;

export const COMPUTE_STAGE = 0x0004;
