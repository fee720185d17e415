/**
 * Exports that do not check the kinds of what they get, in groups that say why: TypeScript does. All others are swept by
 * each-export-refuses-what-it-cannot-take.
 */

interface Parts {
  readonly reason: string;
  readonly names: readonly string[];
}

const words = (text: string): readonly string[] => text.trim().split(/\s+/);

export const parts: readonly Parts[] = [
  {
    reason: 'Runs for each block, token or step, where a check would cost more than the work.',
    names: words('SlotLedger refused corrupt emptyItem mismatchedWords patternItem patternKey'),
  },
  {
    reason: 'Another export makes it: a user holds one, reads it, or names its type.',
    names: words(`
      ReadyLayers RequestQueue WaitingRequest StepOutcome StepPlan BlockTable CachePage SimulationSnapshot BatchSums FaultClock TokenReader CachePicture`),
  },
  {
    reason: 'An error, which must never throw another while it is made.',
    names: words('TierKVError PolicyError'),
  },
];

export const inner: ReadonlySet<string> = new Set(parts.flatMap(({ names }) => names));

const optional = 'undefined [object Object]';
const numbers = '-1 1.5 1152921504606847000';

/**
 * Kinds of values that a call takes rightly in all of its places: options that may be left out, texts where texts are asked
 * for. `all` is for calls that take anything, or nothing.
 */
export const takesAnything: Readonly<Record<string, string>> = {
  ...Object.fromEntries(words('simulationChoices testSeed').map((name) => [name, 'all'])),
  // a request's field, of which it says what is wrong
  transferWish: 'all',
  ...Object.fromEntries(words('prometheus').map((name) => [name, optional])),
  // a classifier of one's own has functions
  HotColdClassifier: `${optional} [object Map] [object Uint8Array] function`,
  ...Object.fromEntries(words('policyId').map((name) => [name, '[object Object]'])),
  ...Object.fromEntries(words('hypervolume formatStepRecords').map((name) => [name, '[object Array]'])),
  ...Object.fromEntries(words('requireReportTarget LogReader addTierName').map((name) => [name, 'text'])),
  ...Object.fromEntries(words('SeededRandom').map((name) => [name, numbers])),
};
