/** Turns errors about fields of the library into errors about the options that set them. */

import { TierKVError } from '../runtime/errors.ts';
import { sizedTierNames } from '../sim/links/machineTiers.ts';

/** Runs `act`. Its errors about a field in `names` name that option instead, in the message too. */
export function withOptionNames<T>(names: Readonly<Record<string, string>>, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw inOptionNames(names, error);
  }
}

export function inOptionNames(names: Readonly<Record<string, string>>, error: unknown): unknown {
  if (!(error instanceof TierKVError) || error.field === undefined) return error;
  const { field } = error;
  const option = Object.hasOwn(names, field) ? names[field] : undefined;
  if (option === undefined) return error;
  let { message } = error;
  if (message.startsWith(`${field} `)) message = option + message.slice(field.length);
  return new TierKVError(error.code, message.replaceAll(`Set ${field} `, `Set ${option} `), {
    field: option,
    cause: error,
    ...(error.path === undefined ? {} : { path: error.path }),
    ...(error.line === undefined ? {} : { line: error.line }),
  });
}

/** Options of `tierkv simulate` by the fields that the library checks. */
export const optionNames: Readonly<Record<string, string>> = {
  tp: '--tp',
  dp: '--dp',
  draftTokens: '--num-speculative-tokens',
  acceptance: '--speculative-acceptance',
  draftUs: '--speculative-draft-us',
  expertImbalance: '--expert-imbalance',
  'adapters.slots': '--max-loras',
  'adapters.loadUs': '--lora-load-us',
  model: '--model',
  GPU: '--gpu',
  blockTokens: '--block-tokens',
  memoryUtilization: '--gpu-memory-utilization',
  topBlocks: '--hbm',
  ...Object.fromEntries(sizedTierNames.map((name) => [`${name}.blocks`, `--${name}`])),
  maxBatchedTokens: '--max-num-batched-tokens',
  maxSequences: '--max-num-seqs',
  longPrefillTokens: '--long-prefill-token-threshold',
  replicas: '--num-instances',
  'default.replicas': '--num-instances',
  'handoff.pipelined': '--pd-transfer-pipelined',
  'handoff.missingOnly': '--pd-transfer-missing',
};

/** The same for the options of `tierkv latency`. */
export const latencyOptionNames: Readonly<Record<string, string>> = {
  tp: '--tp',
  dp: '--dp',
  blockTokens: '--block-tokens',
  memoryUtilization: '--gpu-memory-utilization',
  model: '--model',
  GPU: '--gpu',
};
