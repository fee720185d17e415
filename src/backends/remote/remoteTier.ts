/**
 * The row of the remote tier: a Valkey or Redis that runtimes share. The client is loaded when the tier is opened. What
 * one runtime wrote, the others look up; the tier is left out while loading from it is slower than computing.
 */

import { configError } from '../../runtime/errors.ts';
import type { WriteBudgetConfig } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { OpenedTier, TierRequest, TierRow } from '../tierRow.ts';
import type { RemoteStoreOptions } from './remoteOptions.ts';

/** Fields that the runtime fills in, not the options of the tier. */
type FromRuntime = 'secretKey' | 'layout' | 'generation' | 'notice' | 'computeMs';

interface RemoteConfig extends Omit<RemoteStoreOptions, FromRuntime> {
  /** Bytes of blocks on the server that this runtime keeps in mind; the server may hold more, or fewer. */
  readonly bytes: number;
  /** Bounds what is written to the server by what is read from it. Default: no bound. */
  readonly writeBudget?: WriteBudgetConfig | undefined;
}

export interface RemoteOptions {
  /**
   * A Valkey or Redis that several runtimes share: what one of them computed, the others load. It needs the package
   * `@valkey/valkey-glide`. Default: off.
   */
  readonly remote?: RemoteConfig | undefined;
}

const remoteTable = optionTable(
  {
    bytes: is.passed(),
    writeBudget: is.optional(is.passed()),
    url: is.name('Write it as redis://host:6379.'),
    encrypt: is.optional(is.flag()),
    ca: is.optional(is.passed()),
    deadlineMs: is.optional(is.passed()),
    lookupMs: is.optional(is.passed()),
    connectMs: is.optional(is.passed()),
    expiryMs: is.optional(is.passed()),
    writeBytesMax: is.optional(is.passed()),
    lookupBlocksMax: is.optional(is.passed()),
    oneConnection: is.optional(is.flag()),
  } satisfies Kinds<RemoteConfig>,
  'TKV_CONFIG',
);

export const remoteTier: TierRow<RemoteOptions> = {
  name: 'remote',
  title: 'Remote',
  optionNames: ['remote'] satisfies (keyof RemoteOptions)[],
  fieldNames: { 'remote.capacityBytes': 'remote.bytes' },
  canBeTop: false,
  isShared: true,
  asked: {
    size: { option: 'remote-blocks', about: 'blocks of the server to keep in mind' },
    place: {
      option: 'remote',
      about: 'a Valkey or Redis below the other tiers, which runs share',
      isDirectory: false,
    },
    // what a command finds must not depend on how busy the machine is
    options: (bytes, url) => ({ remote: { url, bytes, lookupMs: 10_000, deadlineMs: 30_000 } }),
  },
  check({ remote }) {
    if (remote !== undefined) remoteTable.read(remote, 'remote');
  },
  wish({ remote }) {
    if (remote === undefined) return undefined;
    const { bytes, writeBudget } = remote;
    return { field: 'remote.bytes', bytes, ...(writeBudget === undefined ? {} : { writeBudget }) };
  },
  open,
};

async function open({ options, shape, facts, notice }: TierRequest<RemoteOptions>): Promise<OpenedTier> {
  if (facts === undefined) {
    throw configError(
      'remote',
      'is given without a secret key',
      'Leave it out, or give what makes keys of blocks.',
    );
  }
  const { RemoteStore } = await import('./remoteStore.ts');
  const { bytes: _bytes, writeBudget: _writeBudget, ...settings } = options.remote!; // the row is on
  const { identity, secretKey, computeUs } = facts;
  const store = await RemoteStore.open(shape, {
    ...settings,
    secretKey,
    layout: identity.layout,
    generation: identity.epoch,
    notice,
    computeMs: (bytes) => {
      const us = computeUs?.(bytes);
      return us === undefined ? undefined : us / 1000;
    },
  });
  return { store, shared: store, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
}
