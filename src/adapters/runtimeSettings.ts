/** Settings of a runtime that an engine's model does not determine: adapters take them, and open the runtime with them. */

import { type TierOptions, tierRows } from '../backends/tierRows.ts';
import type { KVRuntimeConfig } from '../embed/config.ts';
import { configError } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';

export type OwnRuntime = Omit<KVRuntimeConfig, 'layout' | 'layerGroups' | 'model' | 'extras' | 'notice'>;

const settingTable = optionTable({
  blocksPerPage: is.optional(is.passed()),
  secretKey: is.optional(is.passed()),
  epoch: is.optional(is.passed()),
  sharingGroups: is.optional(is.passed()),
  tokenIds: is.optional(is.passed()),
  explain: is.optional(is.passed()),
  eviction: is.optional(is.passed()),
  lowerCopy: is.optional(is.passed()),
  leavingShare: is.optional(is.passed()),
  log: is.optional(is.passed()),
  scrub: is.optional(is.passed()),
  offload: is.optional(is.passed()),
  offloadThreshold: is.optional(is.passed()),
  migration: is.optional(is.passed()),
  transferDeadlineMs: is.optional(is.passed()),
  wrapStores: is.optional(is.passed()),
} satisfies Kinds<Partial<Omit<OwnRuntime, keyof TierOptions>>>);

/** Names of `OwnRuntime`: settings, and the options of every tier. */
export function ownNames(): string[] {
  return [...settingTable.names, ...tierRows.flatMap((row) => row.optionNames)];
}

/** The settings among an adapter's options. @throws TKV_CONFIG where the secret of the keys is missing */
export function ownSettings(options: object): OwnRuntime {
  // the names are those of the interface, which the types of fromEntries do not say
  const settings = Object.fromEntries(
    Object.entries(options).filter(([name]) => ownNames().includes(name)),
  ) as unknown as OwnRuntime;
  if (settings.secretKey === undefined) {
    throw configError('secretKey', 'is missing', 'Give 16 to 32 secret bytes, and keep them over restarts.');
  }
  return settings;
}
