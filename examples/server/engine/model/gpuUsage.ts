/** WebGPU's flags, which are globals of a browser only. */
export const gpuUsage = {
  MAP_READ: 0x1,
  COPY_SRC: 0x4,
  COPY_DST: 0x8,
  UNIFORM: 0x40,
  STORAGE: 0x80,
} as const;

export const gpuMapRead = 0x1;
