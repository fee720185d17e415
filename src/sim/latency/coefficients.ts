/**
 * Coefficient files: what a fit found, or what upstream ships, with where it came from. One file is one
 * backend's parameters; a file written by hand and one written by `tierkv latency fit` are read by the same
 * strict rules.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import type { LinkProfiles } from '../links/modeledDriver.ts';
import type { CalibratedCoefficients } from './calibrated.ts';
import { readLinks } from './capacity.ts';
import type { KernelCoefficients } from './kernels.ts';
import { type LinearCoefficients, linearTerms } from './linear.ts';
import type { GemmEfficiency } from './physics.ts';
import type { TrainedPhysicsCoefficients } from './trainedPhysics.ts';

export const coefficientSchema = 'tierkv.latency/1';

/** Fitted numbers of a latency model, by its name. */
export type Coefficients =
  | {
      readonly backend: 'calibrated';
      readonly gpu: string;
      readonly values: CalibratedCoefficients;
      /** Transfers between tiers, where the fit was given a link profile. */
      readonly links?: LinkProfiles;
    }
  | { readonly backend: 'kernels'; readonly gpu: string; readonly values: KernelCoefficients }
  | { readonly backend: 'trained-physics'; readonly values: TrainedPhysicsCoefficients }
  | { readonly backend: 'roofline'; readonly values: { readonly alpha: readonly number[] } }
  | { readonly backend: 'linear'; readonly values: LinearCoefficients }
  | { readonly backend: 'blackbox'; readonly values: LinearCoefficients };

/** Most of a coefficient; in µs a month. */
const maxCoefficient = 1e12;
/** Least share that a kernel may reach of a peak. */
const leastShare = 1e-6;

function numberOf(node: SpecNode, key: string, min: number, max: number = maxCoefficient): number {
  const value = node.optionalNumber(key, { min, max });
  if (value === undefined)
    throw node.error(key, 'is missing', 'Run tierkv latency fit, or start from data/latency');
  return value;
}

/**
 * Coefficients that lie under numbered or named keys, in the order of `names`; the last ones may be left out.
 */
function valuesOf(node: SpecNode, key: string, names: readonly string[], least: number): number[] {
  const section = node.section(key);
  if (section === undefined) throw node.error(key, 'is missing', `Give ${names.slice(0, least).join(', ')}`);
  const values: number[] = [];
  for (const name of names) {
    const value = section.optionalNumber(name, { min: 0, max: maxCoefficient });
    if (value !== undefined && values.length < names.indexOf(name)) {
      throw section.error(name, 'follows a coefficient that is missing', 'Give all before it too');
    }
    if (value !== undefined) values.push(value);
  }
  section.close();
  if (values.length < least)
    throw section.error('', `has ${values.length} of ${least} values`, 'Give them all');
  return values;
}

function sectionOf(node: SpecNode, key: string): SpecNode {
  const section = node.section(key);
  if (section === undefined) throw node.error(key, 'is missing', 'Start from a file in data/latency');
  return section;
}

function gemmOf(node: SpecNode, key: string): GemmEfficiency {
  const gemm = sectionOf(node, key);
  const efficiency = {
    memory: gemm.number('memory', { min: leastShare, max: 1 }, Number.NaN),
    compute: gemm.number('compute', { min: leastShare, max: 1 }, Number.NaN),
    exponent: numberOf(gemm, 'exponent', 1, 32),
    launchUs: numberOf(gemm, 'launchUs', 0),
  };
  for (const [name, value] of Object.entries(efficiency)) {
    if (Number.isNaN(value)) throw gemm.error(name, 'is missing', 'Set it to a share above 0');
  }
  gemm.close();
  return efficiency;
}

function calibratedOf(root: SpecNode): CalibratedCoefficients {
  const attention = sectionOf(root, 'attention');
  const engine = sectionOf(root, 'engine');
  const request = sectionOf(root, 'request');
  const share = (node: SpecNode, key: string): number => {
    const value = node.optionalNumber(key, { min: leastShare, max: 1 });
    if (value === undefined) throw node.error(key, 'is missing', 'Set it to a share above 0');
    return value;
  };
  const values: CalibratedCoefficients = {
    gemm16: gemmOf(root, 'gemm16'),
    gemm8: gemmOf(root, 'gemm8'),
    attention: {
      prefill: share(attention, 'prefill'),
      decode: share(attention, 'decode'),
      prefillLaunchUs: numberOf(attention, 'prefillLaunchUs', 0),
      decodeLaunchUs: numberOf(attention, 'decodeLaunchUs', 0),
    },
    engine: {
      perLayerUs: numberOf(engine, 'perLayerUs', 0),
      perRequestUs: numberOf(engine, 'perRequestUs', 0),
      perStepUs: numberOf(engine, 'perStepUs', 0),
      reduceEfficiency: share(engine, 'reduceEfficiency'),
      ringSetupBytes: numberOf(engine, 'ringSetupBytes', 0),
      reduceLatencyUs: engine.number('reduceLatencyUs', { min: 0, max: maxCoefficient }, 0),
    },
    request: {
      queueingUs: numberOf(request, 'queueingUs', 0),
      postDecodeUs: numberOf(request, 'postDecodeUs', 0),
      outputTokenUs: numberOf(request, 'outputTokenUs', 0),
    },
  };
  for (const node of [attention, engine, request]) node.close();
  return values;
}

/** The backends that a file may hold coefficients of. */
const latencyBackendNames = ['calibrated', 'trained-physics', 'roofline', 'linear', 'blackbox'] as const;

/** Coefficients as upstream's options give them: of the model of time that takes such lists. */
export function coefficientLists(alpha: readonly number[], beta: readonly number[]): Coefficients {
  return { backend: 'trained-physics', values: { alpha, beta } };
}

const alphaNames = ['alpha0', 'alpha1', 'alpha2'] as const;
/** Upstream's order of the trained-physics coefficients. */
const betaNames = [
  'prefillCompute',
  'decodeCompute',
  'weights',
  'tensorParallel',
  'layer',
  'request',
  'step',
  'interleavedMoeLayer',
  'prefillKv',
  'decodeKv',
  'expertDispatch',
] as const;

/**
 * Reads the text of a coefficient file.
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseCoefficients(text: string, file: string): Coefficients {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const root = readYaml(text, file);
  root.choice('schema', [coefficientSchema]);
  const backend = root.choice('backend', latencyBackendNames);
  root.text('source');
  root.section('fit');
  let result: Coefficients;
  if (backend === 'calibrated') {
    const links = readLinks(root);
    const own = { backend, gpu: root.text('gpu'), values: calibratedOf(root) };
    result = links === undefined ? own : { ...own, links };
  } else {
    const alpha = valuesOf(root, 'alpha', alphaNames, 3);
    if (backend === 'roofline') result = { backend, values: { alpha } };
    else if (backend === 'linear' || backend === 'blackbox') {
      const beta = valuesOf(
        root,
        'beta',
        backend === 'linear' ? linearTerms : linearTerms.slice(0, 3),
        backend === 'linear' ? 1 : 3,
      );
      result = { backend, values: { alpha, beta } };
    } else result = { backend, values: { alpha, beta: valuesOf(root, 'beta', betaNames, 7) } };
  }
  root.close();
  return result;
}
