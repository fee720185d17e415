/** How many replicas a run had on average. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { planCase, runCase } from '../../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { preset } from '../../../src/policy/evolve/bundle/presets.ts';
import { RunWatch } from '../../../src/policy/evolve/fitness/rawMetrics.ts';
import { fromFields } from '../../../src/sim/description/readers.ts';
import { scaleChange } from '../../sim/cluster/scaling/scaleChange.ts';

test('counts the replicas of the beginning if nothing scales', () => {
  const watch = new RunWatch(() => []);
  watch.begin(5);
  expect(watch.meanReplicas(0)).toBe(5);
  expect(watch.meanReplicas(1e6)).toBe(5);
});

test('over all configurations, of which one scales', () => {
  const watch = new RunWatch(() => []);
  watch.begin(5);
  // 2 of the 5 are of the configuration that grows to 4 and shrinks to 1
  watch.scaled(scaleChange('chat', 2, 4, 10e6));
  watch.scaled(scaleChange('chat', 4, 1, 20e6));
  // 10 s of 5, 10 s of 7, 20 s of 4
  expect(watch.meanReplicas(40e6)).toBeCloseTo((10 * 5 + 10 * 7 + 20 * 4) / 40, 12);
});

test('a change after the end does not count, such as the last replicas leaving', () => {
  const watch = new RunWatch(() => []);
  watch.begin(2);
  watch.scaled(scaleChange('chat', 2, 6, 10e6));
  watch.scaled(scaleChange('chat', 6, 1, 21e6));
  expect(watch.meanReplicas(20e6)).toBeCloseTo((10 * 2 + 10 * 6) / 20, 12);
});

test('those of a deployment file', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-replicas-'));
  try {
    const file = path.join(folder, 'deployment.yaml');
    fs.writeFileSync(
      file,
      `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2, latency_model: calibrated}
pools:
  - {name: chat, replicas: 3}
workload: {preset: chatbot, rate: 10, num_requests: 20}
`,
    );
    const bound = await bindBundle(preset('routing/lor'));
    const suiteCase = planCase({ id: 'file', deployment: fromFields({ file }), seed: 1, perturbation: 0 });
    const { metrics, built } = runCase(bound, suiteCase);
    expect(built.simulation.instances.length).toBe(3);
    expect(metrics.mean_replicas).toBe(3);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});
