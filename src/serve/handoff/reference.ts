/**
 * The reference that the prefill side gives for a prompt that it hands off, and the decode side brings back: the hand-off,
 * its prompt and the address. It travels through proxies that pass it on unread.
 *
 *     offset  bytes
 *     0       1   version of the format
 *     1       1   way: 0 direct, 1 through the shared tier
 *     2       16  number of the hand-off, drawn at random
 *     18      16  key of the last block: it stands for the model, the tenant and all tokens before it
 *     34      4   generation
 *     38      4   blocks, or units where there are layer groups
 *     42      16  fingerprint of the layout
 *     58      16  authenticator of all before it, of host and of port
 *
 * Numbers are little-endian. The text is base64url. Nothing in it is believed before its authenticator has been
 * checked, not even the address: so a forged one makes no connection. It says nothing of the tokens.
 */

import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { BlockPort, PromptOptions, PromptUnits } from '../../embed/blockPort.ts';
import { blake2s } from '../../runtime/keys/blake2s.ts';
import * as is from '../../runtime/kinds.ts';
import { optionTable } from '../../runtime/options.ts';

export const REFERENCE_BYTES = 74;
const VERSION = 1;
const SIGNED_BYTES = 58;
const TAG_BYTES = 16;
const WAYS = ['direct', 'shared'] as const;

/** How blocks go over: between the two runtimes, or through a tier that both have. */
type HandoffWay = (typeof WAYS)[number];

/** Where the prefill side listens; empty and 0 for the shared tier. */
export interface HandoffAddress {
  readonly host: string;
  readonly port: number;
}

export interface HandoffReference extends HandoffAddress {
  /** The reference as a proxy passes it on. */
  readonly text: string;
  /** 32 hexadecimal digits. */
  readonly id: string;
  readonly way: HandoffWay;
  readonly units: number;
}

/** `foreign`: under another secret, forged or damaged. `stale`: ours, and of another prompt, layout or generation. */
interface ReferenceFault {
  readonly fault: 'foreign' | 'stale';
  readonly reason: string;
}

export class References {
  readonly #key: Uint8Array;
  readonly #layout: Uint8Array;
  readonly #generation: number;

  constructor(port: Pick<BlockPort, 'keyFor' | 'layout' | 'generation'>) {
    this.#key = port.keyFor('reference');
    this.#layout = layoutMark(port.layout);
    this.#generation = port.generation;
  }

  make({ units }: PromptUnits, way: HandoffWay, { host, port }: HandoffAddress): HandoffReference {
    const bytes = Buffer.alloc(REFERENCE_BYTES);
    bytes[0] = VERSION;
    bytes[1] = WAYS.indexOf(way);
    randomBytes(16).copy(bytes, 2);
    const last = units.at(-1)?.key;
    for (let i = 0; i < 4; i++) bytes.writeUInt32LE(last?.[i] ?? 0, 18 + 4 * i);
    bytes.writeUInt32LE(this.#generation, 34);
    bytes.writeUInt32LE(units.length, 38);
    bytes.set(this.#layout, 42);
    bytes.set(this.#tag(bytes, host, port), SIGNED_BYTES);
    const id = bytes.subarray(2, 18).toString('hex');
    return { text: bytes.toString('base64url'), id, way, units: units.length, host, port };
  }

  /** The reference, if one of us has made it for this prompt. */
  read(text: string, address: HandoffAddress, { units }: PromptUnits): HandoffReference | ReferenceFault {
    const fault = (kind: ReferenceFault['fault'], reason: string): ReferenceFault => ({
      fault: kind,
      reason,
    });
    const bytes = Buffer.from(text, 'base64url');
    if (bytes.length < 2) return fault('foreign', 'it is not a reference of tierkv');
    if (bytes[0] !== VERSION) return fault('foreign', `it has the version ${bytes[0]}, not ${VERSION}`);
    if (bytes.length !== REFERENCE_BYTES) return fault('foreign', 'it is not a reference of tierkv');
    const { host, port } = address;
    if (!timingSafeEqual(this.#tag(bytes, host, port), bytes.subarray(SIGNED_BYTES))) {
      return fault(
        'foreign',
        'its authenticator is not ours: it is forged, or of a server with another secret',
      );
    }
    if (Buffer.compare(bytes.subarray(42, 58), this.#layout) !== 0) {
      return fault('stale', 'its blocks have another layout');
    }
    const generation = bytes.readUInt32LE(34);
    if (generation !== this.#generation) {
      return fault('stale', `it is of generation ${generation}, not ${this.#generation}`);
    }
    const count = bytes.readUInt32LE(38);
    const last = units.at(-1)?.key ?? new Uint32Array(4);
    const isSame = last.every((word, i) => word === bytes.readUInt32LE(18 + 4 * i));
    if (count !== units.length || !isSame) {
      return fault('stale', 'it is of another prompt, model or tenant');
    }
    const id = bytes.subarray(2, 18).toString('hex');
    return { text, id, way: WAYS[bytes[1]] ?? 'direct', units: count, host, port };
  }

  #tag(bytes: Uint8Array, host: string, port: number): Uint8Array {
    const address = Buffer.from(`${port} ${host}`, 'utf8');
    return blake2s(Buffer.concat([bytes.subarray(0, SIGNED_BYTES), address]), TAG_BYTES, this.#key);
  }
}

/** 16 bytes that stand for a layout. */
export function layoutMark(layout: string): Uint8Array {
  return blake2s(new TextEncoder().encode(layout), 16);
}

const callTable = optionTable({
  tenant: is.passed<PromptOptions['tenant']>(),
  extras: is.optional(is.passed<NonNullable<PromptOptions['extras']>>()),
  signal: is.optional(is.signal<AbortSignal>()),
});

/** The options of a call for one prompt. @throws TKV_INPUT for an unknown name, and for what is not a signal */
export function offered(options: PromptOptions & { readonly signal?: AbortSignal }): {
  readonly signal: AbortSignal | undefined;
  readonly who: PromptOptions;
} {
  const { signal, tenant, extras } = callTable.read(options);
  return { signal, who: { tenant, extras } };
}
