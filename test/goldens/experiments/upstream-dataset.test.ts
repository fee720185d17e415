/**
 * Upstream's regression data set of one instance: the model of its engine equals every figure. Roofline bills
 * a step upstream without the cached prefix of its new requests (U8), so that first tokens of the three tests
 * with a prefix come later here.
 */

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import { type MakeEngine, newSimulation } from '../../../src/sim/description/deployment.ts';
import { clusterMetrics } from '../../../src/sim/report/metricsOutput.ts';
import { streamOf } from '../../sim/cluster/smallCluster.ts';
import { copies } from '../goldenFolders.ts';
import { caseAsUpstream, UpstreamCaseEngine } from '../upstream/upstreamCaseEngine.ts';
import { type DatasetTest, datasetLatency, datasetRequests } from './goldenDataset.ts';

const file = new URL('upstream-testdata/goldendataset.json', copies);

function metricsOf(test: DatasetTest, makeEngine?: MakeEngine): Readonly<Record<string, unknown>> {
  const maxSequences = test['max-num-seqs'];
  const blockTokens = test['block-size-in-tokens'];
  const maxModelTokens = test['max-model-len'];
  const simulation = newSimulation({
    deployment: {
      pools: [
        {
          configId: 'all',
          role: 'monolithic',
          model: '',
          replicas: 1,
          latency: datasetLatency(test),
          limits: { maxModelTokens, maxSequences, preemption: 'restart' },
          engine: {
            blockTokens,
            blockBytes: 1,
            // more than all requests take together
            topBlocks: Math.min(test['total-kv-blocks'], 20_000),
            lowerTiers: [],
            loads: { kind: 'billed', baseUs: 0, usPerBlock: 0 },
            computeUsPerToken: Infinity,
            eviction: { policy: 'lru' },
            offloadThreshold: 1,
            lowerCopy: 'keep',
            scheduler: {
              maxSequences,
              maxBatchedTokens: test['max-num-batched-tokens'],
              maxModelTokens,
              preemption: 'restart',
              publish: 'whenPlanned',
            },
          },
        },
      ],
    },
    workload: { stream: streamOf(datasetRequests(test)), sessions: undefined },
    control: new PolicyControlPlane({}, { key: 1n, blockTokens, maxSequences }),
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: false,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 25e9 },
    },
    ...(makeEngine === undefined ? {} : { makeEngine }),
  });
  simulation.run();
  simulation.close();
  return { ...clusterMetrics(simulation.table, simulation.instances) };
}

describe('the regression data set', () => {
  const { tests }: { tests: DatasetTest[] } = JSON.parse(readFileSync(file, 'utf8'));

  it.each(tests.map((test, i) => [i, test.model, test] as const))('%i, %s', (_, __, test) => {
    const model = metricsOf(test, (pool) => new UpstreamCaseEngine(pool, caseAsUpstream));
    for (const [name, theirs] of Object.entries(test.metrics)) {
      expect(Math.abs(Number(model[name]) - theirs), `${name}: ${String(model[name])}`).toBeLessThanOrEqual(
        1e-9 * theirs,
      );
    }
    const ours = metricsOf(test);
    expect(ours.completed_requests).toBe(test.metrics.completed_requests);
    if (test.prefix_tokens > 0) expect(ours.ttft_mean_ms).toBeGreaterThan(test.metrics.ttft_mean_ms);
    else {
      // U6: here a step of an emptied engine waits for the end of the last one
      const named = { ...caseAsUpstream, noOverlap: true };
      expect(ours).toEqual(metricsOf(test, (pool) => new UpstreamCaseEngine(pool, named)));
    }
  });
});
