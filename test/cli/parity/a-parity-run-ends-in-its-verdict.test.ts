/** The last three sentences of `tierkv parity`: what was equal, how far the prediction was, and how good that is here. */

import { expect, it } from 'vitest';
import { countJobs } from '../../../src/studies/parity/run.ts';
import { parityVerdict } from '../../../src/studies/parity/verdict.ts';

type Run = Parameters<typeof parityVerdict>[0];

interface Case {
  readonly points?: number;
  readonly ttft?: number;
  readonly e2e?: number;
  readonly others?: number;
  readonly wrong?: number;
  readonly differsAt?: number;
  readonly links?: Readonly<Record<string, number>>;
  readonly software?: boolean;
}

function verdict(is: Case): readonly string[] {
  const run = {
    exact: { identical: is.differsAt === undefined, lines: 1200, firstDifference: is.differsAt ?? null },
    wrongBlocks: is.wrong ?? 0,
    hits: { points: is.points ?? 0.4 },
    latencies: { ttft: { meanError: is.ttft ?? -0.04 }, e2e: { meanError: is.e2e ?? 0.02 } },
    transfers: Object.fromEntries(
      Object.entries(is.links ?? {}).map(([name, medianError]) => [name, { medianError }]),
    ),
    machine: { cores: 2, othersShare: is.others ?? 0.05 },
    adapter: { name: 'a device', software: is.software ?? false },
  };
  return parityVerdict(run as unknown as Run);
}

it('a near prediction on a quiet machine is good', () => {
  expect(verdict({})).toEqual([
    'The simulator decided all 1,200 recorded inputs as the runtime did, byte for byte, and no block came back wrong.',
    'Left alone, it predicted 0.4 percentage points more blocks found, a mean time to the first token 4.0 % too short, and a mean time of a request 2.0 % too long.',
    'That is good: within 10 % and 2 points.',
  ]);
});

it.each<[string, Case, RegExp]>([
  ['a busy machine is said', { e2e: -0.4, others: 0.63 }, /says little .* used 63 % of its 2 cores .* quiet/],
  ['also where the prediction was near', { others: 0.63 }, /is good.*though other processes used 63 %/],
  [
    'on a quiet machine the link that is off most is named',
    { e2e: -0.4, links: { hbmToDdr: 0.1, nvmeToDdr: -0.5 } },
    /not good, and the machine was quiet: the link nvmeToDdr .* 50.0 % too short; .*calibrate/,
  ],
  ['or the times of steps', { e2e: 0.4, links: { hbmToDdr: 0.05 } }, /not good.*latency model/],
  ['a software device is said', { ttft: 0.4, software: true }, /not good.*software device/],
  ['hits that are off are not good', { points: -3 }, /not good/],
])('%s', (_what, is, sentence) => {
  expect(verdict(is)[2]).toMatch(sentence);
});

it('wrong blocks and another decision come first', () => {
  expect(verdict({ wrong: 2 })[0]).toMatch(/2 blocks came back wrong/);
  expect(verdict({ differsAt: 4711 })[0]).toMatch(/from byte 4,711 .*fault of tierkv.*decision log/);
});

it('progress counts the rehearsals too, and ends where all have ended', () => {
  const told: [number, number][] = [];
  const listener = {
    signal: new AbortController().signal,
    notice: () => {},
    stage: () => {},
    progress: (done: number, expected: number) => told.push([done, expected]),
  };
  const traffic = (expected: number) => ({
    expected,
    open: () => {
      throw new Error('is not opened to be counted');
    },
  });
  const [before, run, after] = countJobs(listener, [traffic(5), traffic(20), traffic(5)]);
  before(5);
  run(0);
  run(20);
  after(5);
  expect(told).toEqual([
    [5, 30],
    [5, 30],
    [25, 30],
    [30, 30],
  ]);
});
