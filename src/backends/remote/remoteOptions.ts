/** Options of a remote store, and the settings that are made of them. */

import { configError, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import type { RemoteLinkOptions } from './remoteLink.ts';
import { parseRemoteUrl, type RemoteUrl } from './remoteUrl.ts';
import { RECORD_OVERHEAD_BYTES, type RecordIdentity } from './sealedRecord.ts';

export interface RemoteStoreOptions {
  /** Where the server is: `redis://host:6379`, `rediss+cluster://...`; see remoteUrl.ts. */
  readonly url: string;
  /** The secret under which block keys are made: 16 to 32 bytes. */
  readonly secretKey: Uint8Array;
  /** The facts that determine the layout of a block, as text. */
  readonly layout: string;
  /** Raised to forget everything that was written before. Default 0. */
  readonly generation?: number;
  /** Whether payloads are encrypted. Default true. */
  readonly encrypt?: boolean;
  /** Certificate authorities in PEM, for TLS. Default: the publicly known ones. */
  readonly ca?: string;
  /** Milliseconds after which a load or a write is given up. Default 2000. */
  readonly deadlineMs?: number;
  /** Milliseconds after which a lookup is given up. Default 50. */
  readonly lookupMs?: number;
  /** Milliseconds to make a connection. Default 2000. */
  readonly connectMs?: number;
  /** Milliseconds after which the server forgets a block. Default one day. */
  readonly expiryMs?: number;
  /** Most bytes of writes under way; a write beyond them is refused. Default 64 MiB. */
  readonly writeBytesMax?: number;
  /** Blocks that one lookup asks for at most. Default 1024. */
  readonly lookupBlocksMax?: number;
  /** Lookups and blocks on one connection, for comparison. Default false. */
  readonly oneConnection?: boolean;
  /**
   * Milliseconds in which this number of bytes would be computed instead of loaded, undefined where that is not
   * known: the tier is left out while it is slower. Default: not known.
   */
  readonly computeMs?: (bytes: number) => number | undefined;
  /** Receives lines that a person should see. */
  readonly notice?: (line: string) => void;
}

const DEADLINE_MS = 2000;
const LOOKUP_MS = 50;
const CONNECT_MS = 2000;
const EXPIRY_MS = 86_400_000;
const WRITE_BYTES_MAX = 64 * 1024 * 1024;
const LOOKUP_BLOCKS_MAX = 1024;
const MS_MAX = 2 ** 31 - 1;
/** Redis takes no value above this. */
const VALUE_BYTES_MAX = 512 * 1024 * 1024;

const remoteStoreOptionsTable = optionTable(
  {
    url: is.name('Write it as redis://host:6379.'),
    secretKey: is.passed(),
    layout: is.name('Pass the fingerprint of the layout.'),
    generation: is.optional(is.integer(0, 2 ** 32 - 1), 0),
    encrypt: is.optional(is.flag(), true),
    ca: is.optional(is.name('Pass certificates in PEM.')),
    deadlineMs: is.optional(is.integer(1, MS_MAX), DEADLINE_MS),
    lookupMs: is.optional(is.passed()),
    connectMs: is.optional(is.integer(1, MS_MAX), CONNECT_MS),
    expiryMs: is.optional(is.integer(1000), EXPIRY_MS),
    writeBytesMax: is.optional(is.passed()),
    lookupBlocksMax: is.optional(is.integer(1), LOOKUP_BLOCKS_MAX),
    oneConnection: is.optional(is.flag()),
    computeMs: is.optional(is.func()),
    notice: is.optional(is.func()),
  } satisfies Kinds<RemoteStoreOptions>,
  'TKV_CONFIG',
);

export type RemoteSettings = Readonly<
  Required<
    Pick<
      RemoteStoreOptions,
      'deadlineMs' | 'lookupMs' | 'expiryMs' | 'writeBytesMax' | 'lookupBlocksMax' | 'encrypt' | 'computeMs'
    >
  >
>;

interface CheckedOptions {
  readonly url: RemoteUrl;
  readonly identity: RecordIdentity;
  readonly link: Omit<RemoteLinkOptions, 'url' | 'changed'>;
  readonly settings: RemoteSettings;
}

/** @throws TKV_CONFIG with the field at fault */
export function checkedOptions(shape: PoolShape, options: RemoteStoreOptions): CheckedOptions {
  const read = remoteStoreOptionsTable.read(options, 'remote');
  const url = parseRemoteUrl(options.url);
  const { secretKey, layout } = options;
  if (!(secretKey instanceof Uint8Array) || secretKey.length < 16 || secretKey.length > 32) {
    throw configError('secretKey', 'must be 16 to 32 bytes', 'Pass a Uint8Array of secret random bytes.');
  }
  if (options.ca !== undefined) {
    if (!url.tls)
      throw configError('remote.ca', 'is given for a url without TLS', 'Write rediss://, or leave it out.');
  }
  const largest = Math.max(...shape.slotBytes);
  if (largest + RECORD_OVERHEAD_BYTES > VALUE_BYTES_MAX) {
    throw configError(
      'remote',
      `cannot hold blocks of ${largest} bytes`,
      'Use smaller blocks or layer groups.',
    );
  }
  const ms = (name: keyof RemoteStoreOptions, value: number): number =>
    requireInteger(`remote.${name}`, value, 1, MS_MAX);
  const deadlineMs = ms('deadlineMs', options.deadlineMs ?? DEADLINE_MS);
  const connectMs = ms('connectMs', options.connectMs ?? CONNECT_MS);
  const encrypt = options.encrypt ?? true;
  return {
    url,
    identity: {
      secretKey,
      layout,
      generation: read.generation,
      encrypt,
    },
    link: { ca: options.ca, connectMs, callMs: deadlineMs, oneConnection: options.oneConnection ?? false },
    settings: {
      deadlineMs,
      encrypt,
      lookupMs: ms('lookupMs', options.lookupMs ?? LOOKUP_MS),
      expiryMs: read.expiryMs,
      writeBytesMax: requireInteger(
        'remote.writeBytesMax',
        options.writeBytesMax ?? WRITE_BYTES_MAX,
        largest + RECORD_OVERHEAD_BYTES,
      ),
      lookupBlocksMax: read.lookupBlocksMax,
      computeMs: options.computeMs ?? (() => undefined),
    },
  };
}
