/**
 * Upstream's whole runs of one tier, metrics and every request, in two halves that account for every
 * difference. A model of upstream's engine under our instance, cluster and metrics equals each run to the last
 * bit. The real scheduler and manager equal that model with the repairs that stand beside the run; where none
 * stands, `tierkv simulate` equals upstream itself.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { traceFiles } from '../../../src/sim/build/output.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { isFull } from '../../sized.ts';
import { type CaseRepairs, caseAsUpstream, caseRepaired, UpstreamCaseEngine } from './upstreamCaseEngine.ts';
import { differences, loadCase, run, simulated, type WholeCase } from './wholeCases.ts';

/** What tierkv does otherwise in each run, by defect; see `Repairs`. */
const explained: Readonly<Record<string, readonly (keyof CaseRepairs)[]>> = {
  '01-default': [],
  '02-roofline': [],
  '03-chatbot': [],
  '04-summarization': [],
  '05-contentgen': [],
  '06-multidoc': ['lastToken', 'emptyFirst'],
  '08-kvpressure-priority': ['fullHit', 'lastToken', 'emptyFirst', 'leftOutTime'],
  '09-chunked-prefill': [],
  '11-cluster-leastloaded': [],
  '14-servegen': ['lastToken'],
  '17-tiered-off': ['lastToken', 'emptyFirst', 'noOverlap'],
  '24-flowcontrol': [],
  '25-tiershed': [],
  '26-tokenbucket': [],
  '28-sjf': [],
  '30-moe-mixtral': [],
  '32-a100-roofline': [],
  '33-goodput': [],
  '36-traceout': ['lastToken'],
  '37-replay': ['lastToken'],
  '39-debuglog': ['noOverlap'],
};

/** Upstream counts here what U1 tries to take; nothing like it is tried here. */
const notCounted = 'kv_allocation_failures';

function account(golden: WholeCase): void {
  const runs = new Map<string, ReturnType<typeof run>>();
  const under = (repairs: CaseRepairs): ReturnType<typeof run> => {
    const key = JSON.stringify(Object.entries(repairs).sort());
    const found =
      runs.get(key) ?? run(golden.args, { makeEngine: (pool) => new UpstreamCaseEngine(pool, repairs) });
    runs.set(key, found);
    return found;
  };

  const upstream = under(caseAsUpstream);
  expect(differences(upstream, golden.metrics).filter((found) => !found.startsWith(notCounted))).toEqual([]);

  const ours = run(golden.args);
  const names = explained[golden.name];
  const named = { ...caseAsUpstream, ...Object.fromEntries(names.map((name) => [name, true])) };
  expect(differences(ours, under(named))).toEqual([]);
  expect(differences(ours, under(caseRepaired))).toEqual([]);
  expect(differences(ours, golden.metrics).length === 0).toBe(names.length === 0);
}

const fixtures = new URL('../fixtures/', import.meta.url);
const shared = new URL('../../../../shared/goldens/blis/', import.meta.url);
const isShared = existsSync(shared);
if (!isShared) console.warn('SKIPPED: the whole cases in goldens/blis/cases are not here to compare with');

/** Runs whose like is among the others: `npm run campaign -- full` has them. */
const more = ['11-cluster-leastloaded', '14-servegen', '28-sjf', '32-a100-roofline'];
const inFixtures = ['01-default', '06-multidoc', '17-tiered-off', '36-traceout', '39-debuglog'];

describe('whole runs of one tier', () => {
  it.each(inFixtures)('%s: equal, or explained by the named defects', (name) => {
    account(loadCase(fixtures, name) as WholeCase);
  });

  it('36-traceout: the requests as TraceV2 are the same text', () => {
    const golden = loadCase(fixtures, '36-traceout') as WholeCase;
    const requests: WorkloadRequest[] = [];
    const { simulation } = simulated(golden.args, {
      observer: { arrived: ({ workload }) => requests.push(workload) },
    });
    const { rows } = traceFiles(simulation, requests, undefined);
    const packed = readFileSync(new URL('cases/36-traceout/trace.csv.gz', fixtures));
    expect([...rows].join('')).toBe(gunzipSync(packed).toString('utf8'));
  });
});

describe.skipIf(!isShared)('whole runs of the shared folder', () => {
  it.each(Object.keys(explained).filter((name) => isFull || ![...inFixtures, ...more].includes(name)))(
    '%s: equal, or explained by the named defects',
    (name) => {
      account(loadCase(shared, name) as WholeCase);
    },
  );

  it('12-multiturn: equal with conversations as upstream has them, but for blocks of last tokens (U1)', () => {
    const golden = loadCase(shared, '12-multiturn') as WholeCase;
    const found = differences(run(golden.args), golden.metrics);
    expect(found.map((difference) => difference.split(':')[0])).toEqual(['cache_hit_rate']);
    // D10: an answer enters the conversation whole, and prompts are longer by a token for each round before
    const whole = run(golden.args.filter((arg) => arg !== '--as-upstream'));
    expect(whole.total_input_tokens - golden.metrics.total_input_tokens).toBe(2000);
    expect(whole.completed_requests).toBe(1000);
  });

  it('35-autoscaler: equal but for blocks of last tokens (U1)', () => {
    const golden = loadCase(shared, '35-autoscaler') as WholeCase;
    const found = differences(run(golden.args), golden.metrics);
    expect(found.map((difference) => difference.split(':')[0])).toEqual(['cache_hit_rate']);
  });

  it('15-pd-always: 1,000 of 1,000 requests complete, where upstream drops 394 (D5)', () => {
    const golden = loadCase(shared, '15-pd-always') as WholeCase;
    expect(golden.metrics.completed_requests).toBe(606);
    const ours = run(golden.args);
    expect([ours.completed_requests, ours.dropped_unservable]).toEqual([1000, 0]);
    expect(ours.preemption_count).toBeLessThan(golden.metrics.preemption_count);
  });

  it.each([
    ['chunk', false],
    ['block', true],
    ['stream', true],
    ...(isFull
      ? ([
          ['block', false],
          ['stream', false],
          ['chunk', true],
        ] as const)
      : []),
  ] as const)(
    '15-pd-always with transfers by %s, pipelined %s: 1,000 of 1,000 requests complete',
    (name, pipelined) => {
      const golden = loadCase(shared, '15-pd-always') as WholeCase;
      const more = pipelined ? ['--pd-transfer-pipelined'] : [];
      const ours = run([...golden.args, '--pd-transfer-granularity', name, ...more]);
      expect([ours.completed_requests, ours.dropped_unservable]).toEqual([1000, 0]);
    },
  );

  let withoutMs: number | undefined;
  it.each([
    ['18-tiered-cpu', 'below'],
    ['19-tiered-cpu-slow', 'equal'],
    ['20-tiered-cpu-small', 'below'],
    ['21-offload-cpuonly', 'below'],
    ['23-offload-nvme-decode', 'below'],
  ])('%s: first tokens come no later than without the tier (D3, D4, D12, D13)', (name, how) => {
    const without = (withoutMs ??= run((loadCase(shared, '17-tiered-off') as WholeCase).args).ttft_mean_ms);
    const golden = loadCase(shared, name) as WholeCase;
    const { ttft_mean_ms: ours, completed_requests: completed } = run(golden.args);
    expect(completed).toBe(400);
    if (how === 'equal') expect(ours).toBe(without);
    else expect(ours).toBeLessThan(without);
    expect(ours <= golden.metrics.ttft_mean_ms).toBe(true);
  });

  it('every case of the folder is accounted for', () => {
    // upstream-calibrate.test.ts has 38
    const elsewhere = ['12', '15', '18', '19', '20', '21', '23', '35', '38'].map((number) => `${number}-`);
    for (const name of readdirSync(new URL('cases/', shared))) {
      const isKnown = name in explained || elsewhere.some((start) => name.startsWith(start));
      expect(isKnown, name).toBe(true);
    }
  });
});
