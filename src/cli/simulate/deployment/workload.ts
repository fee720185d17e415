/** The workload of a deployment file: a file beside it, a preset, or a specification in place. */

import path from 'node:path';
import { readWorkloadSpec, type WorkloadSpec } from '../../../sim/workload/index.ts';
import type { SpecNode } from '../../../sim/workload/spec/reader.ts';
import { readText } from '../../input/index.ts';
import type { Options } from '../input/options.ts';
import { camel } from './fields.ts';

export interface DeployedWorkload {
  /** Options that say it. */
  readonly options: Options;
  readonly spec: WorkloadSpec | undefined;
}

const presetKeys = [
  'rate',
  'num_requests',
  'concurrency',
  'think_time_ms',
  'prefix_tokens',
  'prompt_tokens',
  'prompt_tokens_stdev',
  'prompt_tokens_min',
  'prompt_tokens_max',
  'output_tokens',
  'output_tokens_stdev',
  'output_tokens_min',
  'output_tokens_max',
] as const;

/** @param file of the deployment, beside which others lie */
export function readWorkload(root: SpecNode, file: string): DeployedWorkload {
  const node = root.section('workload');
  if (node === undefined) return { options: {}, spec: undefined };
  const kinds = (['file', 'preset', 'spec'] as const).filter((key) => node.has(key));
  if (kinds.length !== 1) {
    throw node.error('', `names ${kinds.length} of file, preset and spec`, 'Name one of them');
  }
  const folder = path.dirname(file);
  const options: Record<string, string> = {};
  let spec: WorkloadSpec | undefined;
  if (kinds[0] === 'file') {
    options.workloadSpec = path.resolve(folder, node.text('file'));
    if (node.has('num_requests')) options.numRequests = node.text('num_requests');
  } else if (kinds[0] === 'preset') {
    options.workload = node.text('preset');
    for (const key of presetKeys) if (node.has(key)) options[camel(key)] = node.text(key);
  } else {
    const section = node.section('spec');
    if (section === undefined) throw node.error('spec', 'is empty', 'Write the specification under it');
    const readFile = (name: string): string => readText(path.resolve(folder, name));
    spec = readWorkloadSpec(section, file, { readFile });
    if (spec.servegen !== undefined) {
      throw node.error('spec', 'has servegen_data', 'Put the specification into a file of its own');
    }
  }
  node.close();
  return { options, spec };
}

/** `slo: {ttft: {critical: 500ms}}` as the options of goodput. */
export function readTargets(root: SpecNode): Options {
  const node = root.section('slo');
  if (node === undefined) return {};
  const options: Record<string, string> = {};
  for (const key of ['ttft', 'itl', 'e2e']) {
    const section = node.section(key);
    if (section === undefined) continue;
    const targets = section.keys().map((sloClass) => `${sloClass}=${section.text(sloClass)}`);
    section.close();
    if (targets.length > 0) options[camel(`slo_${key}`)] = targets.join(',');
  }
  node.close();
  return options;
}
