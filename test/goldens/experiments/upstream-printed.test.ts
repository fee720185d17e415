/**
 * What upstream prints of its whole runs, section by section, line by line: the same under the models of its
 * engine and stores. Of clusters, which those models do not serve, what tierkv itself prints is compared, and
 * each line that differs is named.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { BuildExtras } from '../../../src/sim/build/built.ts';
import { isFull } from '../../sized.ts';
import { copies, goldens } from '../goldenFolders.ts';
import { tieredStore } from '../tiers/storeOfCase.ts';
import { caseAsUpstream, UpstreamCaseEngine } from '../upstream/upstreamCaseEngine.ts';
import { loadCase, type WholeCase } from '../upstream/wholeCases.ts';
import { printedCase, sectionsOf } from './printed.ts';

const root = goldens('what upstream printed of whole runs');

/** Runs of several instances. */
const clusters = ['11-cluster-leastloaded', '12-multiturn', '15-pd-always', '35-autoscaler'];

/** Lines that differ, `section: ours`, with the reason. */
const explained: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  // U1: the last token's block is taken and cached upstream
  '12-multiturn': { 'KV Cache Metrics': 'Cache Hit Rate' },
  // U1, and an autoscaled run prints no metrics of its instances there
  '35-autoscaler': { 'KV Cache Metrics': 'Cache Hit Rate', 'Simulation Metrics': '' },
  // D5, D6: nothing is dropped here, and so every figure is another
  '15-pd-always': {
    'Simulation Metrics': '',
    'Anomaly Counters': 'Dropped Unservable',
    'KV Cache Metrics': '',
    'PD Metrics': '',
  },
};

/** Upstream counts here what U1 tries to take; nothing like it is tried here. */
const isCounted = (line: string): boolean => !line.includes('"kv_allocation_failures"');

function engineFor({ name, args }: WholeCase): BuildExtras {
  if (clusters.includes(name)) return {};
  const isTiered = args.some((arg) => arg === '--kv-cpu-blocks' || arg === '--kv-offload-config');
  return {
    makeEngine: (pool, timeline, woken) => {
      if (!isTiered) return new UpstreamCaseEngine(pool, caseAsUpstream);
      const store = tieredStore(args, pool.engine);
      return new UpstreamCaseEngine(pool, caseAsUpstream, { store, clock: { timeline, woken } });
    },
  };
}

const names = readdirSync(new URL('cases/', root)).filter(
  // a calibration prints a report of its own, which upstream-calibrate.test.ts has
  (name) => !name.startsWith('38-') && existsSync(new URL(`cases/${name}/stdout.txt`, root)),
);

/** Runs whose like is among the others: `npm run campaign -- full` has them. */
const more = ['06-multidoc', '14-servegen', '19-tiered-cpu-slow', '20-tiered-cpu-small'];

describe('what is printed', () => {
  it('is there for most cases', () => {
    expect(names.length).toBeGreaterThanOrEqual(root === copies ? 6 : 20);
  });

  it.each(names.filter((name) => isFull || !more.includes(name)))('%s', (name) => {
    const theirs = sectionsOf(readFileSync(new URL(`cases/${name}/stdout.txt`, root), 'utf8'));
    const golden = loadCase(root, name) as WholeCase;
    const ours = printedCase(golden.args, engineFor(golden));
    expect([...ours.keys()].sort()).toEqual([...theirs.keys()].sort());
    for (const [title, lines] of theirs) {
      const known = explained[name]?.[title];
      if (known === '') continue;
      const kept = (line: string): boolean =>
        isCounted(line) && (known === undefined || !line.includes(known));
      expect(ours.get(title)?.filter(kept), title).toEqual(lines.filter(kept));
      if (known !== undefined) expect(ours.get(title), title).not.toEqual(lines);
    }
  });
});
