/**
 * The decode side of hand-offs: it reads a reference, fetches the blocks, and puts them into DDR, from where requests of
 * this runtime load them like any other. What does not come is computed: no end of a hand-off is an error.
 *
 * - A reference is believed when its authenticator, generation and key are those of the prompt at hand, and a block when its
 *   record opens under its own key. So a stale, forged or foreign one is a recomputation, never another prompt's KV.
 * - What is here is not fetched, and what has come stays to the end: no block makes room for another one of its prompt.
 * - Each hand-off ends: when its peer has been silent, when DDR has had no room, or when the whole has taken too long. Bytes on
 *   their way are bounded by credits for each hand-off, and by the number of hand-offs at a time.
 */

import { connect, type Socket } from 'node:net';
import { guarded } from '../../backends/guarded.ts';
import { RECORD_OVERHEAD_BYTES, type RecordCodec } from '../../backends/remote/sealedRecord.ts';
import { runningClock } from '../../backends/runningClock.ts';
import type { BlockPort, Landing, PromptOptions, PromptUnits } from '../../embed/blockPort.ts';
import type { KVRuntime } from '../../embed/kvRuntime.ts';
import { configError, requireInteger } from '../../runtime/errors.ts';
import type { KeyElements } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { type HandoffAddress, type HandoffReference, offered, References } from './reference.ts';
import type { TransferParams } from './transferParams.ts';
import { Frame, HandoffFault, Wire, type WireIdentity, wireIdentity } from './wire.ts';

/** Deadlines and bounds of a `HandoffReceiver`. */
export interface HandoffReceiverOptions {
  /** Milliseconds without a sign of life of the other side after which it counts as gone. Default 5000. */
  readonly patienceMs?: number;
  /** Milliseconds for a whole hand-off, computing on the other side included. Default 120,000. */
  readonly deadlineMs?: number;
  /** Milliseconds to connect. Default 2000. */
  readonly connectMs?: number;
  /** Milliseconds for which a block waits for room in DDR. Default 1000. */
  readonly roomMs?: number;
  /** Bytes of one hand-off that are on their way at a time. Default 4 MiB, and at least one block. */
  readonly windowBytes?: number;
  /** Hand-offs that fetch at a time; others wait. Default 32. */
  readonly atOnce?: number;
  /** Receives lines that a person should see. */
  readonly notice?: (line: string) => void;
}

const PATIENCE_MS = 5000;
const DEADLINE_MS = 120_000;
const CONNECT_MS = 2000;
const ROOM_MS = 1000;
const WINDOW_BYTES = 4 * 1024 * 1024;
const AT_ONCE = 32;
const MS_MAX = 2 ** 31 - 1;

const optionsTable = optionTable(
  {
    patienceMs: is.optional(is.integer(1, MS_MAX), PATIENCE_MS),
    deadlineMs: is.optional(is.integer(1, MS_MAX), DEADLINE_MS),
    connectMs: is.optional(is.integer(1, MS_MAX), CONNECT_MS),
    roomMs: is.optional(is.integer(1, MS_MAX), ROOM_MS),
    windowBytes: is.optional(is.passed()),
    atOnce: is.optional(is.integer(1), AT_ONCE),
    notice: is.optional(is.func()),
  } satisfies Kinds<HandoffReceiverOptions>,
  'TKV_CONFIG',
);

/** Hand-offs that `recent` remembers. */
const RECENT = 1024;

/**
 *   taken      every block is here
 *   foreign    the reference is forged, damaged, or of a server with another secret
 *   stale      the reference is of another prompt, model, tenant, layout or generation, or its lease has ended
 *   refused    the other side is of another version, layout, epoch or secret
 *   vanished   the other side could not be reached, or went away
 *   late       the other side was silent, or the whole took too long
 *   full       DDR had no room for a block
 *   differs    a block has other bytes than the one that this runtime computed under the same name before
 *   corrupt    a block's record was not the other side's
 */
const handoffOutcomes = [
  'taken',
  'foreign',
  'stale',
  'refused',
  'vanished',
  'late',
  'full',
  'differs',
  'corrupt',
] as const;
type HandoffOutcome = (typeof handoffOutcomes)[number];

/** How a hand-off ended, and how many blocks came. */
export interface HandoffEnd {
  readonly outcome: HandoffOutcome;
  /** Why it is not `taken`; empty otherwise. */
  readonly reason: string;
  /** Blocks of the prompt, and of these blocks that came. Units where there are layer groups. */
  readonly blocks: number;
  readonly taken: number;
  /** Bytes of the blocks that came. */
  readonly bytes: number;
  /** Milliseconds from the call to its end. */
  readonly ms: number;
  /** Milliseconds from the first block that came to the last. */
  readonly flowMs: number;
}

/** The decode side of a hand-off: fetches the blocks that a reference names, into host memory. */
export class HandoffReceiver implements AsyncDisposable {
  readonly #port: BlockPort;
  readonly #references: References;
  readonly #codec: RecordCodec;
  readonly #wire: WireIdentity;
  readonly #limits: Required<Omit<HandoffReceiverOptions, 'notice'>>;
  readonly #notice: (line: string) => void;
  readonly #peers: Map<string, Peer> = new Map();
  readonly #recent: HandoffEnd[] = [];
  readonly #counts: Record<HandoffOutcome, number>;
  #blocks = 0;
  #bytes = 0;
  #under = 0;
  #waiting: (() => void)[] = [];
  #isClosed = false;

  /** @throws TKV_CONFIG for an option that is wrong, and for a runtime without DDR and without a shared tier */
  constructor(kv: KVRuntime, options: HandoffReceiverOptions = {}) {
    is.fields({ begin: is.func() }).read(kv, 'kv');
    const { notice, windowBytes, ...read } = optionsTable.read(options);
    const port = kv.blockPort();
    if (!port.canLand && !port.hasShared) {
      throw configError(
        'ddrBytes',
        'is 0, and blocks that come lie in host memory first',
        'Give the runtime some.',
      );
    }
    const windowDefault = Math.max(WINDOW_BYTES, port.unitBytesMax);
    this.#limits = {
      ...read,
      windowBytes: requireInteger('windowBytes', windowBytes ?? windowDefault, port.unitBytesMax),
    };
    port.closing.addEventListener('abort', () => void this.close(), { once: true });
    this.#port = port;
    this.#references = new References(port);
    this.#codec = port.codec(true);
    this.#wire = wireIdentity(port, port.unitBytesMax + RECORD_OVERHEAD_BYTES);
    this.#notice = guarded(notice);
    this.#counts = Object.fromEntries(handoffOutcomes.map((outcome) => [outcome, 0])) as Record<
      HandoffOutcome,
      number
    >;
  }

  get counts(): Readonly<Record<HandoffOutcome, number>> {
    return this.#counts;
  }

  /** The last hand-offs, oldest first: what `fitHandoffs` makes a link of. */
  get recent(): readonly HandoffEnd[] {
    return this.#recent;
  }

  describe(): Record<string, number> {
    return {
      ...this.#counts,
      blocks: this.#blocks,
      bytes: this.#bytes,
      under: this.#under,
      waiting: this.#waiting.length,
      peers: this.#peers.size,
    };
  }

  /**
   * Fetches the blocks of the prompt that this runtime lacks. Begin the request when it has ended: what is missing then
   * is computed.
   * @param params of the decode leg: see `transferWish`
   * @param options.signal ends it, with what has come by then
   * @throws TKV_INPUT for invalid tokens, an invalid tenant or invalid extras
   */
  async receive(
    params: TransferParams,
    tokens: KeyElements,
    options: PromptOptions & { readonly signal?: AbortSignal },
  ): Promise<HandoffEnd> {
    checkInputs(
      { params },
      { params: is.fields({ reference: is.text(), host: is.text(), port: is.number() }) },
    );
    const { signal, who } = offered(options);
    const sinceMs = performance.now();
    const prompt = this.#port.unitsOf(tokens, who);
    const { host, port } = params;
    const reference = this.#references.read(params.reference, { host, port }, prompt);
    let end: Fetched;
    if ('fault' in reference) end = { outcome: reference.fault, reason: reference.reason, ...nothing };
    else {
      const over = await this.#turn(signal);
      if (over !== undefined) end = { ...over, ...nothing };
      else {
        try {
          end =
            reference.way === 'shared'
              ? await this.#lookUp(prompt, tokens, who)
              : await this.#fetch(reference, prompt, signal);
        } finally {
          const next = this.#waiting.shift();
          if (next === undefined) this.#under--;
          else next(); // the place is the next one's at once: a call that comes now stands behind all that wait
        }
      }
    }
    const told = { ...end, blocks: prompt.units.length, ms: performance.now() - sinceMs };
    this.#note(told);
    return told;
  }

  /** Takes a place, in the order of the calls. @returns how it has ended, where it ends before and has none */
  async #turn(signal: AbortSignal | undefined): Promise<Pick<HandoffEnd, 'outcome' | 'reason'> | undefined> {
    const { atOnce, deadlineMs } = this.#limits;
    const calledOff = { outcome: 'late', reason: 'the request was called off' } as const;
    if (signal?.aborted === true) return calledOff;
    if (this.#under < atOnce) {
      this.#under++;
      return undefined;
    }
    const turn = Promise.withResolvers<Pick<HandoffEnd, 'outcome' | 'reason'> | undefined>();
    const take = (): void => turn.resolve(undefined);
    const leave = (over: Pick<HandoffEnd, 'outcome' | 'reason'>): void => {
      const at = this.#waiting.indexOf(take);
      if (at === -1) return; // it has its place already, and ends there
      this.#waiting.splice(at, 1);
      turn.resolve(over);
    };
    this.#waiting.push(take);
    const onAbort = (): void => leave(calledOff);
    const reason = `it waited more than ${deadlineMs} ms for others`;
    const cancel = runningClock.alarm(deadlineMs, () => leave({ outcome: 'late', reason }));
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      return await turn.promise;
    } finally {
      cancel();
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** Ends all connections; hand-offs under way end as `vanished`. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const peer of this.#peers.values()) peer.close();
    this.#peers.clear();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #note(end: HandoffEnd): void {
    this.#counts[end.outcome]++;
    this.#blocks += end.taken;
    this.#bytes += end.bytes;
    this.#recent.push(end);
    if (this.#recent.length > RECENT) this.#recent.shift();
    if (end.outcome !== 'taken') {
      this.#notice(`hand-off: ${end.outcome}, the rest of the prompt is computed (${end.reason})`);
    }
  }

  async #lookUp(prompt: PromptUnits, tokens: KeyElements, who: PromptOptions): Promise<Fetched> {
    if (!this.#port.hasShared) {
      return {
        outcome: 'refused',
        reason: 'it lies in a shared tier, and this runtime has none',
        ...nothing,
      };
    }
    const lacking = prompt.units.filter((unit) => !this.#port.has(unit));
    const sinceMs = performance.now();
    await this.#port.findShared(tokens, who);
    const found = lacking.filter((unit) => this.#port.has(unit));
    const bytes = found.reduce((sum, unit) => sum + unit.bytes, 0);
    const flowMs = performance.now() - sinceMs;
    if (found.length === lacking.length)
      return { outcome: 'taken', reason: '', taken: found.length, bytes, flowMs };
    const reason = `the shared tier has ${found.length} of ${lacking.length} blocks`;
    return { outcome: 'stale', reason, taken: found.length, bytes, flowMs };
  }

  async #fetch(
    reference: HandoffReference,
    prompt: PromptUnits,
    signal: AbortSignal | undefined,
  ): Promise<Fetched> {
    if (!this.#port.canLand) {
      return { outcome: 'full', reason: 'this runtime has no DDR for what comes', ...nothing };
    }
    let peer: Peer;
    try {
      peer = await this.#peerOf(reference);
    } catch (error) {
      const { kind, message } = error as HandoffFault;
      if (prompt.units.every((unit) => this.#port.has(unit)))
        return { outcome: 'taken', reason: '', ...nothing };
      return { outcome: kind, reason: `${reference.host}:${reference.port}: ${message}`, ...nothing };
    }
    return peer.fetch({
      reference,
      prompt,
      port: this.#port,
      codec: this.#codec,
      limits: this.#limits,
      signal,
    });
  }

  async #peerOf({ host, port }: HandoffAddress): Promise<Peer> {
    const name = `${host}:${port}`;
    const known = this.#peers.get(name);
    if (known !== undefined && !known.isOver) return known;
    if (this.#isClosed) throw new HandoffFault('vanished', 'the hand-offs are closed');
    const peer = new Peer();
    this.#peers.set(name, peer);
    try {
      await peer.open({ host, port }, this.#wire, this.#limits.connectMs);
    } catch (error) {
      if (this.#peers.get(name) === peer) this.#peers.delete(name);
      throw error;
    }
    return peer;
  }
}

type Fetched = Omit<HandoffEnd, 'ms' | 'blocks'>;
const nothing = { taken: 0, bytes: 0, flowMs: 0 };

interface Fetch {
  readonly reference: HandoffReference;
  readonly prompt: PromptUnits;
  readonly port: BlockPort;
  readonly codec: RecordCodec;
  readonly limits: Required<Omit<HandoffReceiverOptions, 'notice'>>;
  readonly signal: AbortSignal | undefined;
}

/** The connection to one prefill side, and what is fetched over it. */
class Peer {
  readonly #arrivals: Map<number, Arrival> = new Map();
  #wire: Promise<Wire> | undefined;
  #open: Wire | undefined;
  #claims = 0;
  #isClosed = false;

  /** Whether another connection has to be made. */
  get isOver(): boolean {
    return this.#isClosed || this.#open?.isOver === true;
  }

  /** @throws {HandoffFault} */
  async open(address: HandoffAddress, identity: WireIdentity, withinMs: number): Promise<void> {
    this.#wire = dial(address, identity, withinMs);
    this.#wire.catch(() => {});
    const wire = await this.#wire;
    this.#open = wire;
    if (this.#isClosed) wire.end();
    wire.listen(
      (kind, body) => {
        for (const arrival of this.#arrivals.values()) arrival.alive();
        if (kind === Frame.ALIVE) return;
        if (body.length < 4) return wire.end(new HandoffFault('refused', 'a frame that is too short'));
        const arrival = this.#arrivals.get(body.readUInt32LE(0));
        if (kind === Frame.BLOCK && body.length > 8) arrival?.block(body.readUInt32LE(4), body.subarray(8));
        else if (kind === Frame.DONE) arrival?.done(body.toString('utf8', 4));
      },
      (fault) => {
        for (const arrival of this.#arrivals.values()) arrival.end(fault.kind, fault.message);
      },
    );
  }

  async fetch(what: Fetch): Promise<Fetched> {
    let wire: Wire;
    try {
      wire = await (this.#wire as Promise<Wire>);
    } catch (error) {
      const { kind, message } = error as HandoffFault;
      return { outcome: kind, reason: message, ...nothing };
    }
    const number = ++this.#claims % 2 ** 32;
    const arrival = new Arrival(wire, number, what);
    this.#arrivals.set(number, arrival);
    try {
      if (wire.isOver) arrival.end('vanished', 'the connection is closed');
      else arrival.claim();
      return await arrival.ended;
    } finally {
      this.#arrivals.delete(number);
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#open?.end(new HandoffFault('vanished', 'the hand-offs are closed'));
  }
}

async function dial({ host, port }: HandoffAddress, identity: WireIdentity, withinMs: number): Promise<Wire> {
  const socket = connect({ host, port });
  await connected(socket, withinMs);
  return Wire.dial(socket, identity, withinMs);
}

function connected(socket: Socket, withinMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = runningClock.alarm(withinMs, () => {
      reject(new HandoffFault('vanished', `no connection within ${withinMs} ms`));
      socket.destroy();
    });
    socket.once('connect', () => {
      cancel();
      socket.removeListener('error', failed);
      resolve();
    });
    const failed = (error: Error): void => {
      cancel();
      reject(new HandoffFault('vanished', error.message));
      socket.destroy();
    };
    socket.once('error', failed);
  });
}

/** One hand-off that arrives. */
class Arrival {
  readonly ended: Promise<Fetched>;
  readonly #wire: Wire;
  readonly #number: number;
  readonly #what: Fetch;
  /** Lets go what has come: until the whole is here, none of it makes room for the rest. */
  readonly #kept: (() => void)[] = [];
  readonly #queue: { readonly unit: number; readonly record: Buffer }[] = [];
  #resolve: (end: Fetched) => void = () => {};
  #cancelPatience = (): void => {};
  readonly #cancelDeadline: () => void;
  readonly #onAbort = (): void => this.#leave('late', 'the request was called off');
  #wanted = 0;
  #taken = 0;
  #bytes = 0;
  #firstMs = Number.NaN;
  #lastMs = Number.NaN;
  #isLanding = false;
  #isOver = false;

  constructor(wire: Wire, number: number, what: Fetch) {
    this.#wire = wire;
    this.#number = number;
    this.#what = what;
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    const { deadlineMs } = what.limits;
    this.#cancelDeadline = runningClock.alarm(deadlineMs, () => {
      this.#leave('late', `it took more than ${deadlineMs} ms`);
    });
    what.signal?.addEventListener('abort', this.#onAbort, { once: true });
    this.alive();
  }

  claim(): void {
    const { reference, prompt, port, limits, signal } = this.#what;
    if (signal?.aborted === true) {
      this.#onAbort();
      return;
    }
    while (this.#wanted < prompt.units.length && port.has(prompt.units[this.#wanted])) {
      this.#kept.push(port.keep(prompt.units[this.#wanted++], prompt.owner));
    }
    const text = Buffer.from(reference.text, 'base64url');
    const body = Buffer.alloc(12 + text.length);
    body.writeUInt32LE(this.#number, 0);
    body.writeUInt32LE(this.#wanted, 4);
    body.writeUInt32LE(Math.max(1, Math.floor(limits.windowBytes / port.unitBytesMax)), 8);
    text.copy(body, 12);
    this.#wire.send(Frame.CLAIM, body);
  }

  alive(): void {
    const { patienceMs } = this.#what.limits;
    this.#cancelPatience();
    if (this.#isOver) return;
    this.#cancelPatience = runningClock.alarm(patienceMs, () => {
      const reason = `no sign of life within ${patienceMs} ms`;
      this.#leave('late', reason);
      // it may be half open: the next one begins on a connection of its own
      this.#wire.end(new HandoffFault('vanished', reason));
    });
  }

  block(unit: number, record: Buffer): void {
    if (this.#isOver) return;
    this.#queue.push({ unit, record });
    if (!this.#isLanding) void this.#landAll();
  }

  /** The other side has ended it. @param why empty where all was taken */
  done(why: string): void {
    if (why === '') this.end('taken', '');
    else this.end('stale', why);
  }

  end(outcome: HandoffOutcome, reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelPatience();
    this.#cancelDeadline();
    for (const letGo of this.#kept.splice(0)) letGo();
    this.#what.signal?.removeEventListener('abort', this.#onAbort);
    const { length } = this.#what.prompt.units;
    const isWhole = this.#wanted === length;
    const flowMs = this.#taken < 2 ? 0 : this.#lastMs - this.#firstMs;
    const facts = { taken: this.#taken, bytes: this.#bytes, flowMs };
    this.#resolve(isWhole ? { outcome: 'taken', reason: '', ...facts } : { outcome, reason, ...facts });
  }

  #leave(outcome: HandoffOutcome, reason: string): void {
    if (this.#isOver) return;
    const body = Buffer.alloc(4);
    body.writeUInt32LE(this.#number, 0);
    this.#wire.send(Frame.LEAVE, body);
    this.end(outcome, reason);
  }

  async #landAll(): Promise<void> {
    this.#isLanding = true;
    try {
      for (let next = this.#queue.shift(); next !== undefined && !this.#isOver; next = this.#queue.shift()) {
        await this.#land(next.unit, next.record);
      }
    } finally {
      this.#isLanding = false;
    }
  }

  async #land(index: number, record: Buffer): Promise<void> {
    const { prompt, port, codec } = this.#what;
    if (index !== this.#wanted || index >= prompt.units.length) {
      return this.#leave('corrupt', `block ${index} came, and ${this.#wanted} is the next one`);
    }
    const unit = prompt.units[index];
    const bytes = new Uint8Array(unit.bytes);
    const facts = codec.open(record, unit.key, bytes);
    if ('fault' in facts) return this.#leave('corrupt', `block ${index}: ${facts.reason}`);
    const isHere = await this.#placed(() => port.land(unit, facts.digest, bytes, prompt.owner));
    if (!isHere || this.#isOver) return;
    this.#kept.push(port.keep(unit, prompt.owner));
    this.#lastMs = performance.now();
    if (this.#taken === 0) this.#firstMs = this.#lastMs;
    this.#taken++;
    this.#bytes += unit.bytes;
    this.#wanted++;
    const body = Buffer.alloc(8);
    body.writeUInt32LE(this.#number, 0);
    body.writeUInt32LE(index, 4);
    this.#wire.send(Frame.TAKEN, body);
    if (this.#wanted === prompt.units.length) this.end('taken', '');
  }

  /** Waits for room in DDR. @returns false where it has ended instead */
  async #placed(land: () => Landing): Promise<boolean> {
    const { port, limits } = this.#what;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const tried = (): boolean => {
      const landing = this.#isOver ? 'there' : land();
      if (landing === 'full') return false;
      if (landing === 'differs') {
        this.#leave('differs', 'a block was computed here before, with other bytes');
      }
      resolve(!this.#isOver);
      return true;
    };
    if (tried()) return promise;
    const stop = port.onNews(() => void tried());
    const cancel = runningClock.alarm(limits.roomMs, () => {
      this.#leave('full', `DDR had no room for a block within ${limits.roomMs} ms`);
      resolve(false);
    });
    try {
      return await promise;
    } finally {
      stop();
      cancel();
    }
  }
}
