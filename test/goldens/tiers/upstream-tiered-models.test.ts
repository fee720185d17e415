/**
 * Upstream's step traces with lower tiers: the model of upstream's engine on the models of its stores equals
 * them to the last digit. Where tierkv begins to differ, and why, is in upstream-tiered-steps.test.ts.
 */

import { describe, expect, it } from 'vitest';
import { goldens } from '../goldenFolders.ts';
import { firstDifference, loadStepTrace, type StepTrace } from '../stepTrace.ts';
import { runTrace } from '../traceLoop.ts';
import { UpstreamEngine } from '../upstream/upstreamEngine.ts';
import { asUpstream, type UpstreamStore } from '../upstream/upstreamStore.ts';
import { ChainStore } from './chainStore.ts';
import { MirrorStore } from './mirrorStore.ts';

const folder = new URL('micro/', goldens('step traces with lower tiers'));

type Make = (blocks: number, blockTokens: number) => UpstreamStore;

const mirror =
  (cpuBlocks: number): Make =>
  (blocks, blockTokens) =>
    new MirrorStore(blocks, blockTokens, { cpuBlocks, bandwidth: 0.39, baseTicks: 10 });

const chain =
  (cpuBlocks: number, promptOnly: boolean, read: number, write: number): Make =>
  (blocks, blockTokens) =>
    new ChainStore(blocks, blockTokens, {
      cpuBlocks,
      blockBytes: 1000,
      promptOnly,
      tiers: [
        {
          NRead: 2,
          NWrite: 2,
          ReadBaseTicks: 50,
          WriteBaseTicks: 50,
          ReadBytesPerTick: read,
          WriteBytesPerTick: write,
          SaturationQueueDepth: 4,
          SingleTransferFraction: 0.25,
        },
      ],
    });

const stores: Readonly<Record<string, Make>> = {
  'prefix-tiered': mirror(200),
  'prefix6-tiered': mirror(200),
  'prefix6-tiered-smallcpu': mirror(30),
  'prefix-offload-cold': chain(20, true, 0.05, 0.1),
  'prefix6-offload-fast': chain(24, true, 5, 0.5),
  'prefix6-offload-slow': chain(24, true, 0.3, 0.5),
  'prefix6-offload-decode': chain(24, false, 0.3, 0.5),
};

const traces = Object.keys(stores).flatMap((name): [string, StepTrace][] => {
  const trace = loadStepTrace(folder, name);
  return trace === undefined ? [] : [[name, trace]];
});

describe('step traces with lower tiers, as upstream', () => {
  it('are there', () => {
    expect(traces.length).toBeGreaterThanOrEqual(2);
  });

  it.each(traces)('%s', (name, trace) => {
    const { blocks, block_size: blockTokens } = trace.config;
    const engine = new UpstreamEngine(trace, asUpstream, stores[name](blocks, blockTokens));
    const rows = runTrace(trace, engine);
    expect(rows.length).toBe(trace.rows.length);
    expect(firstDifference(rows, trace.rows)).toBe(undefined);
  });
});
