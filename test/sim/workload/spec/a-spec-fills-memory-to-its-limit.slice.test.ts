/**
 * Workloads that are refused once they have filled 768 MiB, or have drawn tens of millions of arrivals in vain. They have no
 * smaller size: `npm run campaign -- full` runs them as they are.
 */

import { expect, it } from 'vitest';
import { parseProfile, withProfile } from '../../../../src/sim/workload/presets.ts';
import { requestsOf } from '../../../../src/sim/workload/request.ts';
import { WorkloadSummarizer } from '../../../../src/sim/workload/summary.ts';
import { generateWorkload } from '../../../../src/sim/workload/workload.ts';
import { drain, spec, turns } from './smallSpec.ts';

it('rounds of conversations that overlap beyond any memory are an error that names the client', () => {
  const crowd = spec('aggregate_rate: 1000000\nhorizon: 1000000000000', turns(2000));
  expect(drain(crowd)).toThrow(/^client "a" has waiting requests that need more than 768 MiB/);
});
it('windows with more arrivals than can be held are an error, also from a profile', () => {
  const window = 'lifecycle: {windows: [{start_us: 0, end_us: 1000000000000, trace_rate: 1e9}]}';
  expect(drain(spec('aggregate_rate: 0', `    ${window}`))).toThrow(
    /client "a" has waiting requests that need more/,
  );
  const steep = withProfile(spec('aggregate_rate: 1'), parseProfile('ramp:from=1,to=1e6,duration=1e9'));
  expect(drain(steep)).toThrow(/client "a" has waiting requests that need more/);
});

it('arrivals that never fall into a window end in an error and not in a loop', () => {
  const far = 'lifecycle: {windows: [{start_us: 9000000000000000, end_us: 9000000000000001}]}';
  expect(drain(spec('aggregate_rate: 1000000', `    ${far}`))).toThrow(
    /client "a": 20000000 arrivals in a row fall outside its windows/,
  );
});

it('a summary says so when it cannot remember more', () => {
  const summarizer = new WorkloadSummarizer();
  const [request] = requestsOf(generateWorkload(spec('aggregate_rate: 1\nnum_requests: 1')).stream());
  const runs = Int32Array.of(0, 2 ** 22 + 1);
  const wide = { ...request, prompt: { kind: 'blocks' as const, namespace: 'x', blockTokens: 1, runs } };
  expect(() => summarizer.add(wide)).toThrow(
    expect.objectContaining({ code: 'TKV_CAPACITY', message: expect.stringMatching(/Look at a part of it/) }),
  );
});
