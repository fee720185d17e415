/**
 * All of upstream's regression experiments, under the real engine and under the model of upstream's:
 *
 *     node test/goldens/experiments/run.ts FOLDER
 *
 * with the folder `upstream-testdata` of the goldens. The model takes a minute for some of them.
 */

import { pathToFileURL } from 'node:url';
import { experimentDifferences, experimentFiles, loadExperiments, underModel } from './experiment.ts';

const folder = pathToFileURL(`${process.argv[2]}/`);
let failed = 0;
for (const file of experimentFiles.toReversed()) {
  const set = loadExperiments(folder, file);
  for (const experiment of set.experiments) {
    const ours = experimentDifferences(set, experiment);
    const model = ours.length === 0 ? [] : experimentDifferences(set, experiment, underModel);
    if (model.length > 0) failed++;
    const text =
      ours.length === 0 ? 'equal' : `equal under the model: ${model.length === 0}, else ${ours[0]}`;
    process.stdout.write(`${set.backend} ${experiment.id}: ${text}\n`);
  }
}
process.exitCode = failed === 0 ? 0 : 1;
