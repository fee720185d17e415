/** Faults of the stores, in the names that the configuration has for their settings. */

import { TierKVError } from '../runtime/index.ts';

/** What the stores call their settings, in the words of the configuration. */
const configNames: Readonly<Record<string, string>> = {
  'hbm.capacityBytes': 'hbmBytes',
  'ddr.capacityBytes': 'ddrBytes',
  'nvme.capacityBytes': 'nvme.bytes',
  dir: 'nvme.dir',
  restart: 'nvme.restart',
  allocation: 'nvme.allocation',
};

export function inConfigNames(error: unknown): unknown {
  if (!(error instanceof TierKVError) || error.field === undefined) return error;
  const name = configNames[error.field];
  if (name === undefined) return error;
  const word = new RegExp(`(?<![\\w./-])${error.field.replaceAll('.', '\\.')}(?![\\w/-])`, 'g');
  const message = error.message.replace(word, name);
  const { path, line } = error;
  return new TierKVError(error.code, message, {
    field: name,
    cause: error,
    ...(path === undefined ? {} : { path }),
    ...(line === undefined ? {} : { line }),
  });
}
