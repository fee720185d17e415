/** The models of time and the ways of experts, by name: what options offer without the models behind it. */

export const latencyBackends = [
  'trained-physics',
  'roofline',
  'linear',
  'blackbox',
  'calibrated',
  'kernels',
] as const;
export type LatencyBackend = (typeof latencyBackends)[number];

/** How experts' inputs and outputs travel between data parallel ranks. */
export const moeCommBackends = [
  'allgather_reducescatter',
  'naive',
  'pplx',
  'deepep_high_throughput',
  'deepep_low_latency',
  'mori',
  'flashinfer_all2allv',
] as const;
export type MoeCommBackend = (typeof moeCommBackends)[number];
