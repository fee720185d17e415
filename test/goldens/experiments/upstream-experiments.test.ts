/**
 * Upstream's regression experiments, with workloads of several stages. Under trained-physics tierkv equals 13
 * of 15 itself, the other two and all 15 under roofline (U8) under the model of upstream's engine. A few run
 * here; `node test/goldens/experiments/run.ts FOLDER` runs all.
 */

import { describe, expect, it } from 'vitest';
import { sized } from '../../sized.ts';
import { copies } from '../goldenFolders.ts';
import { experimentDifferences, experimentFiles, loadExperiments, underModel } from './experiment.ts';

const folder = new URL('upstream-testdata/', copies);

describe('regression experiments', () => {
  const [roofline, trainedPhysics] = experimentFiles;

  it.each(sized(['17', '48', '65'], ['17', '48', '60', '65', '66', '67']))(
    'trained-physics %s: equal',
    (id) => {
      const set = loadExperiments(folder, trainedPhysics);
      const experiment = set.experiments.find((each) => each.id === id);
      if (experiment === undefined) throw new Error(`experiment ${id} does not exist`);
      expect(experimentDifferences(set, experiment)).toEqual([]);
    },
  );

  it.each(['67'])('roofline %s: equal but for the context of cached prefixes (U8)', (id) => {
    const set = loadExperiments(folder, roofline);
    const experiment = set.experiments.find((each) => each.id === id);
    if (experiment === undefined) throw new Error(`experiment ${id} does not exist`);
    expect(experimentDifferences(set, experiment, underModel)).toEqual([]);
    const [first, ...others] = experimentDifferences(set, experiment);
    expect([first, ...others].some((found) => found.startsWith('ttft_sum_us'))).toBe(true);
    expect([first, ...others].some((found) => found.startsWith('completed_requests'))).toBe(false);
  });

  it('both files have 15', () => {
    for (const file of experimentFiles) expect(loadExperiments(folder, file).experiments.length).toBe(15);
  });
});
