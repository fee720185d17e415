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

/** Facts of a model of time that others ask for. */
interface LatencyFacts {
  /** Its coefficients are of one GPU: a file for each is shipped. */
  readonly perGpu?: true;
  /** It knows data parallel ranks. */
  readonly dividesRanks?: true;
  /** It knows how experts' inputs and outputs travel. */
  readonly sendsExperts?: true;
  /** It knows experts of unlike load. */
  readonly loadsExperts?: true;
  /** It knows steps with several tokens a decode. */
  readonly verifies?: true;
  /** Upstream's options give its coefficients as two lists. */
  readonly takesLists?: true;
  /** It is fitted to steps that were measured. */
  readonly fitsSteps?: true;
  /** It is fitted to requests that were measured. */
  readonly fitsRequests?: true;
  /** Answers of plans are checked by it: it never goes below what the hardware needs. */
  readonly checksPlans?: true;
}

export const latencyFacts: Readonly<Record<LatencyBackend, LatencyFacts>> = {
  'trained-physics': {
    dividesRanks: true,
    sendsExperts: true,
    verifies: true,
    takesLists: true,
    checksPlans: true,
  },
  roofline: { checksPlans: true },
  linear: { fitsSteps: true },
  blackbox: {},
  calibrated: {
    ...{ perGpu: true, dividesRanks: true, loadsExperts: true, verifies: true },
    ...{ fitsSteps: true, fitsRequests: true, checksPlans: true },
  },
  kernels: { dividesRanks: true, loadsExperts: true, verifies: true },
};

/** The model of time where none is named. */
export const usualLatency: LatencyBackend = 'calibrated';

/** The models of time that declare a fact, the usual one first. */
export function latencyModelsThat(fact: keyof LatencyFacts): readonly LatencyBackend[] {
  const others = latencyBackends.filter((name) => name !== usualLatency);
  return [usualLatency, ...others].filter((name) => latencyFacts[name][fact] === true);
}

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
