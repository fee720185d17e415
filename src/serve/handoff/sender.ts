/**
 * The prefill side of hand-offs. A prompt is offered before it is computed; its blocks are held as they are sealed, and
 * go to the runtime that brings the reference back, block by block while the rest is computed. A block has one owner at any time:
 *
 *     held here  --TAKEN, or written to the shared tier-->  the other side's
 *
 * - A hand-off is claimed by one connection at a time, once. Where it breaks, the blocks that were not taken can be
 *   claimed again until the lease ends.
 * - The lease runs from the end of the prompt's computing, and anew from each block that is taken. At its end all is
 *   let go: a later claim finds nothing, and the other side computes.
 * - A connection takes a place when its greeting has shown the secret key. Before that it is one of a number of strangers, of
 *   whom the oldest of the address that has the most goes when another one comes: idle ones keep out no peer.
 * - Blocks held are bounded: beyond `heldBytesMax`, `offer` waits, so a decode side that takes nothing stops new prompts
 *   here. Blocks on the way are bounded by the credits of the other side, and by what its socket takes.
 */

import { createServer, type Server, type Socket } from 'node:net';
import { guarded } from '../../backends/guarded.ts';
import { RECORD_OVERHEAD_BYTES, type RecordCodec } from '../../backends/remote/sealedRecord.ts';
import type { BlockPort, PromptOptions } from '../../embed/blockPort.ts';
import type { KVRuntime } from '../../embed/kvRuntime.ts';
import { configError, requireInteger, TierKVError } from '../../runtime/errors.ts';
import type { KeyElements } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { HandoffClaim } from './claim.ts';
import { type HandoffOffer, Offer } from './offer.ts';
import { type HandoffAddress, offered, REFERENCE_BYTES, References } from './reference.ts';
import { Frame, HandoffFault, Wire, type WireIdentity, wireIdentity } from './wire.ts';

/** Where a `HandoffSender` listens, and how long it holds blocks. */
export interface HandoffSenderOptions {
  /** Where to listen for runtimes that fetch blocks. Default: nowhere; blocks then go by the shared tier. */
  readonly listen?: {
    /** Address of this machine. Default 127.0.0.1. */
    readonly host?: string;
    /** Default 0: any that is free. */
    readonly port?: number;
    /**
     * Address in references: a host, or `host:port` where others reach the port under another number. Default: `host`.
     */
    readonly advertise?: string;
  };
  /** Milliseconds for which blocks of a computed prompt are held for the one who fetches them. Default 30,000. */
  readonly leaseMs?: number;
  /** Most bytes of blocks held. Default 256 MiB, and at least one block. */
  readonly heldBytesMax?: number;
  /** Whether payloads are encrypted on their way. Default true. */
  readonly encrypt?: boolean;
  /** Receives lines that a person should see. */
  readonly notice?: (line: string) => void;
}

const LEASE_MS = 30_000;
const HELD_BYTES_MAX = 256 * 1024 * 1024;

const listenTable = optionTable(
  {
    host: is.optional(is.name('Leave it out for the default.')),
    port: is.optional(is.integer(0, 65_535)),
    advertise: is.optional(is.name('Leave it out for the default.')),
  } satisfies Kinds<NonNullable<HandoffSenderOptions['listen']>>,
  'TKV_CONFIG',
);
const optionsTable = optionTable(
  {
    listen: is.optional(listenTable),
    leaseMs: is.optional(is.integer(1, 2 ** 31 - 1), LEASE_MS),
    heldBytesMax: is.optional(is.passed()),
    encrypt: is.optional(is.flag(), true),
    notice: is.optional(is.func()),
  } satisfies Kinds<HandoffSenderOptions>,
  'TKV_CONFIG',
);

const GREETING_MS = 5000;
/** Milliseconds between two signs of life while a claim is open. */
const ALIVE_MS = 1000;
/** Connections of peers, and of strangers: those whose greeting has not ended. */
const PEERS_MAX = 256;
const STRANGERS_MAX = 256;
/** Credits of one claim that are believed: a claim that names more gets these. */
const CREDITS_MAX = 1024;

type Checked = ReturnType<typeof optionsTable.read>;

/** Offers by how they ended. */
interface SenderCounts {
  offered: number;
  /** Every block was taken. */
  handedOff: number;
  /** The lease ended before that. */
  expired: number;
  /** The prompt was given up. */
  withdrawn: number;
  /** Claims of a hand-off that is not there: stale, or of another process. */
  unknownClaims: number;
  /** Connections of another version, layout, epoch or secret. */
  refusedPeers: number;
  blocks: number;
  bytes: number;
}

/** The prefill side of a hand-off: offers blocks of a prompt to another runtime. */
export class HandoffSender implements AsyncDisposable {
  readonly #port: BlockPort;
  readonly #references: References;
  readonly #codec: RecordCodec;
  readonly #wire: WireIdentity;
  readonly #leaseMs: number;
  readonly #heldBytesMax: number;
  readonly #notice: (line: string) => void;
  readonly #offers: Map<string, Offer> = new Map();
  readonly #connections: Set<Socket> = new Set();
  /** Connections whose greeting has shown the key. */
  #peers = 0;
  /** Connections whose greeting has not ended, by address, the oldest first. */
  readonly #strangers: Map<string, Set<Socket>> = new Map();
  readonly #stopNews: () => void;
  #server: Server | undefined;
  #address: HandoffAddress = { host: '', port: 0 };
  #heldBytes = 0;
  #looksSoon = false;
  #waiting: (() => void)[] = [];
  #isClosed = false;
  #closing: Promise<void> | undefined;
  readonly #counts: SenderCounts = {
    offered: 0,
    handedOff: 0,
    expired: 0,
    withdrawn: 0,
    unknownClaims: 0,
    refusedPeers: 0,
    blocks: 0,
    bytes: 0,
  };

  private constructor(port: BlockPort, { leaseMs, encrypt, heldBytesMax, notice }: Checked) {
    this.#port = port;
    this.#references = new References(port);
    this.#codec = port.codec(encrypt);
    this.#wire = wireIdentity(port, port.unitBytesMax + RECORD_OVERHEAD_BYTES);
    this.#leaseMs = leaseMs;
    this.#heldBytesMax = requireInteger(
      'heldBytesMax',
      heldBytesMax ?? Math.max(HELD_BYTES_MAX, port.unitBytesMax),
      port.unitBytesMax,
    );
    this.#notice = guarded(notice);
    port.closing.addEventListener('abort', () => void this.close(), { once: true });
    this.#stopNews = port.onNews(() => this.#look());
  }

  /**
   * @throws TKV_CONFIG for an option that is wrong, an address at which this machine cannot listen, and where there is
   * neither an address nor a shared tier
   */
  static async open(kv: KVRuntime, options: HandoffSenderOptions = {}): Promise<HandoffSender> {
    is.fields({ begin: is.func() }).read(kv, 'kv');
    const read = optionsTable.read(options);
    const { listen } = read;
    const port = kv.blockPort();
    if (listen === undefined && !port.hasShared) {
      throw configError(
        'listen',
        'is missing, and the runtime has no shared tier',
        'Say where to listen, or give the runtime `remote`.',
      );
    }
    const sender = new HandoffSender(port, read);
    if (listen !== undefined) {
      try {
        await sender.#listen(listen);
      } catch (error) {
        await sender.close();
        throw error;
      }
    }
    return sender;
  }

  /** Where others fetch blocks; empty where they go by the shared tier. */
  get address(): HandoffAddress {
    return this.#address;
  }

  get counts(): Readonly<SenderCounts> {
    return this.#counts;
  }

  /** Counters, and what is held now. */
  describe(): Record<string, number | string> {
    const { host, port } = this.#address;
    const where = port === 0 ? 'shared tier' : `${host}:${port}`;
    return {
      where,
      ...this.#counts,
      open: this.#offers.size,
      heldBytes: this.#heldBytes,
      waiting: this.#waiting.length,
    };
  }

  /**
   * A prompt that is about to be computed by this runtime. Waits while too much is held for others already.
   * @throws TKV_INPUT for invalid tokens, an invalid tenant or invalid extras, TKV_STATE when it is closed, and the
   * reason of `signal`
   */
  async offer(
    tokens: KeyElements,
    options: PromptOptions & { readonly signal?: AbortSignal },
  ): Promise<HandoffOffer> {
    const { signal, who } = offered(options);
    const prompt = this.#port.unitsOf(tokens, who);
    while (this.#heldBytes >= this.#heldBytesMax && !this.#isClosed) await this.#room(signal);
    signal?.throwIfAborted();
    if (this.#isClosed) throw new TierKVError('TKV_STATE', 'the hand-offs are closed. Open them again.');
    const way = this.#server === undefined ? 'shared' : 'direct';
    const reference = this.#references.make(prompt, way, this.#address);
    const offer = new Offer(this.#port, prompt, reference, {
      leaseMs: this.#leaseMs,
      mayHold: (bytes) => this.#heldBytes + bytes <= this.#heldBytesMax,
      held: (bytes) => this.#held(bytes),
      sent: (bytes) => {
        this.#counts.blocks++;
        this.#counts.bytes += bytes;
      },
      over: (end) => {
        this.#offers.delete(reference.id);
        this.#counts[end]++;
        for (const wake of this.#waiting.splice(0)) wake();
      },
    });
    this.#offers.set(reference.id, offer);
    this.#counts.offered++;
    offer.look();
    return offer;
  }

  /** Lets everything go, and ends all connections. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#stopNews();
    for (const offer of [...this.#offers.values()]) offer.withdraw();
    for (const wake of this.#waiting.splice(0)) wake();
    for (const socket of this.#connections) socket.destroy();
    const server = this.#server;
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #room(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    let wake = (): void => {};
    const onAbort = (): void => {
      this.#waiting = this.#waiting.filter((each) => each !== wake);
      wake();
    };
    await new Promise<void>((resolve) => {
      wake = resolve;
      this.#waiting.push(wake);
      signal?.addEventListener('abort', onAbort, { once: true });
    });
    signal?.removeEventListener('abort', onAbort);
    signal?.throwIfAborted();
  }

  #held(bytes: number): void {
    this.#heldBytes += bytes;
    if (bytes > 0) return;
    for (const wake of this.#waiting.splice(0)) wake();
    if (this.#looksSoon) return;
    this.#looksSoon = true;
    setImmediate(() => {
      this.#looksSoon = false;
      this.#look();
    });
  }

  #look(): void {
    for (const offer of this.#offers.values()) offer.look();
  }

  async #listen({
    host = '127.0.0.1',
    port = 0,
    advertise,
  }: NonNullable<HandoffSenderOptions['listen']>): Promise<void> {
    const server = createServer((socket) => void this.#serve(socket));
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause: NodeJS.ErrnoException) => {
        const field = cause.code === 'EADDRINUSE' || cause.code === 'EACCES' ? 'listen.port' : 'listen.host';
        reject(
          new TierKVError(
            'TKV_CONFIG',
            `${field}: ${host}:${port} cannot be listened at (${cause.code ?? cause.message}). Name another one.`,
            { field, cause },
          ),
        );
      });
      server.listen({ host, port }, resolve);
    });
    server.on('error', (error) => this.#notice(`hand-off: ${error.message}`));
    server.unref();
    this.#server = server;
    const bound = server.address();
    const taken = typeof bound === 'object' && bound !== null ? bound.port : port;
    this.#address = advertisedAs(advertise ?? host, taken);
  }

  async #serve(socket: Socket): Promise<void> {
    if (this.#isClosed) {
      socket.destroy();
      return;
    }
    const from = `${socket.remoteAddress}:${socket.remotePort}`;
    const known = this.#admit(socket);
    let wire: Wire;
    try {
      wire = await Wire.accept(socket, this.#wire, GREETING_MS);
    } catch (error) {
      if (error instanceof HandoffFault && error.kind === 'refused') {
        this.#counts.refusedPeers++;
        this.#notice(`hand-off: ${from} is refused: ${error.message}`);
      }
      return;
    } finally {
      known();
    }
    if (this.#peers >= PEERS_MAX) {
      this.#notice(`hand-off: ${from} is refused: ${PEERS_MAX} peers are connected`);
      wire.end();
      return;
    }
    this.#peers++;
    const claims = new Map<number, HandoffClaim>();
    const alive = setInterval(() => {
      if (claims.size > 0) wire.send(Frame.ALIVE, new Uint8Array(0));
    }, ALIVE_MS);
    alive.unref();
    const take = (kind: Frame, body: Buffer): void => {
      if (kind === Frame.CLAIM && body.length === 12 + REFERENCE_BYTES) this.#claim(wire, claims, body);
      else if (kind === Frame.TAKEN && body.length === 8) {
        claims.get(body.readUInt32LE(0))?.taken(body.readUInt32LE(4));
      } else if (kind === Frame.LEAVE && body.length === 4) {
        claims.get(body.readUInt32LE(0))?.leave();
        claims.delete(body.readUInt32LE(0));
      } else wire.end(new HandoffFault('refused', 'a frame that a decode side does not send'));
    };
    wire.listen(take, () => {
      clearInterval(alive);
      for (const claim of claims.values()) claim.leave();
      claims.clear();
      this.#peers--;
    });
  }

  /** A stranger, until what is returned is called. Where there are too many, one goes for it. */
  #admit(socket: Socket): () => void {
    const strangers = this.#strangers;
    const address = socket.remoteAddress ?? '';
    if (this.#strangerCount() >= STRANGERS_MAX) {
      const [most] = [...strangers.values()].sort((a, b) => b.size - a.size);
      const [oldest] = most;
      oldest.destroy();
      most.delete(oldest); // its own `close` comes later
    }
    const here = strangers.get(address) ?? new Set<Socket>();
    strangers.set(address, here.add(socket));
    this.#connections.add(socket);
    const known = (): void => {
      here.delete(socket);
      if (here.size === 0 && strangers.get(address) === here) strangers.delete(address);
    };
    socket.on('close', () => {
      known();
      this.#connections.delete(socket);
    });
    return known;
  }

  #strangerCount(): number {
    let count = 0;
    for (const { size } of this.#strangers.values()) count += size;
    return count;
  }

  #claim(wire: Wire, claims: Map<number, HandoffClaim>, body: Buffer): void {
    const number = body.readUInt32LE(0);
    const first = body.readUInt32LE(4);
    const credits = Math.min(body.readUInt32LE(8), CREDITS_MAX);
    const id = body.subarray(12 + 2, 12 + 18).toString('hex');
    const offer = this.#offers.get(id);
    const done = (why: string): void => {
      claims.delete(number);
      const text = Buffer.from(why);
      const frame = Buffer.alloc(4 + text.length);
      frame.writeUInt32LE(number, 0);
      text.copy(frame, 4);
      wire.send(Frame.DONE, frame);
    };
    // The reference was read by the one who claims, under the same secret; here only its number counts.
    if (offer === undefined || offer.reference.text !== body.subarray(12).toString('base64url')) {
      this.#counts.unknownClaims++;
      done('its lease has ended, or another process offered it');
      return;
    }
    if (claims.has(number) || !offer.isFree) {
      done('another one has claimed it');
      return;
    }
    claims.set(number, new HandoffClaim(wire, this.#codec, offer, { number, first, credits, done }));
  }
}

/** `[::1]:7000`, `prefill.example:7000`, or a host alone. @throws TKV_CONFIG */
function advertisedAs(text: string, otherwise: number): HandoffAddress {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d+))?$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined) return { host: text, port: otherwise }; // an IPv6 address without a port
  const port = digits === undefined ? otherwise : Number(digits);
  if (port > 0 && port < 65_536) return { host, port };
  throw configError('listen.advertise', `is ${text}, whose port must be from 1 to 65535`, 'Write host:port.');
}
