/**
 * The connection between two runtimes: a handshake by which each side proves that it has the secret key, then frames.
 *
 *     prefill side                                  decode side
 *     HELLO  version, nonce                  -->
 *                                            <--    HELLO  version, nonce, layout, generation, proof
 *     WELCOME  proof                         -->
 *     REFUSED  why                           -->    (instead, and the end)
 *                                            <--    CLAIM  claim, reference, first unit, credits
 *     BLOCK  claim, unit, record             -->
 *                                            <--    TAKEN  claim, unit: the unit is the other side's, and a credit is back
 *     DONE  claim, why                       -->    after the last unit, or instead of one
 *                                            <--    LEAVE  claim
 *     ALIVE                                  -->    while a claim is open
 *
 * A frame is its length (4 bytes), its kind (1), its body, and an authenticator (16) under a key of this connection that
 * counts the frames of its direction: a frame that was made, changed, repeated or left out by a stranger ends the
 * connection. Of a BLOCK the authenticator covers claim and unit; its record has one of its own. Numbers are little-endian.
 */

import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { Socket } from 'node:net';
import { runningClock } from '../../backends/runningClock.ts';
import type { BlockPort } from '../../embed/blockPort.ts';
import { blake2sOf } from '../../runtime/keys/blake2s.ts';
import { layoutMark } from './reference.ts';

const VERSION = 1;
const MAGIC = 0x48564b54; // 'TKVH' as a little-endian word
const NONCE_BYTES = 32;
const TAG_BYTES = 16;
/** Milliseconds of silence after which the system asks whether the peer is still there. */
const KEEP_ALIVE_MS = 30_000;
/** Limit of all frames but blocks. */
const SMALL_BYTES_MAX = 4096;

export const Frame = {
  HELLO: 1,
  WELCOME: 2,
  REFUSED: 3,
  CLAIM: 4,
  BLOCK: 5,
  TAKEN: 6,
  DONE: 7,
  LEAVE: 8,
  ALIVE: 9,
} as const;
export type Frame = (typeof Frame)[keyof typeof Frame];

/** Why a connection came to nothing. */
export class HandoffFault extends Error {
  /** `refused`: the peer is of another version, layout, generation or secret. `vanished`: it is gone, or silent. */
  readonly kind: 'refused' | 'vanished';

  constructor(kind: HandoffFault['kind'], message: string) {
    super(message);
    this.kind = kind;
  }
}

export interface WireIdentity {
  readonly key: Uint8Array;
  readonly layout: Uint8Array;
  readonly generation: number;
  readonly frameBytesMax: number;
}

export function wireIdentity(port: BlockPort, recordBytesMax: number): WireIdentity {
  return {
    key: port.keyFor('wire'),
    layout: layoutMark(port.layout),
    generation: port.generation,
    frameBytesMax: recordBytesMax + 64,
  };
}

/** Bytes that come, cut into frames. */
class FrameReader {
  readonly #most: () => number;
  #parts: Buffer[] = [];
  #length = 0;

  constructor(most: () => number) {
    this.#most = most;
  }

  push(part: Buffer): void {
    this.#parts.push(part);
    this.#length += part.length;
  }

  /** The next whole frame without its length. @throws {HandoffFault} for one that is too long */
  next(): Buffer | undefined {
    if (this.#length < 4) return undefined;
    const first = this.#parts[0];
    const bytes = (first.length >= 4 ? first : this.#join()).readUInt32LE(0);
    if (bytes < 1 || bytes > this.#most()) {
      throw new HandoffFault('refused', `a frame of ${bytes} bytes: the peer does not speak this protocol`);
    }
    if (this.#length < 4 + bytes) return undefined;
    const all = this.#join();
    this.#length -= 4 + bytes;
    this.#parts = this.#length === 0 ? [] : [all.subarray(4 + bytes)];
    return all.subarray(4, 4 + bytes);
  }

  #join(): Buffer {
    if (this.#parts.length > 1) this.#parts = [Buffer.concat(this.#parts)];
    return this.#parts[0];
  }
}

/**
 * A connection that is open. `sent` is fulfilled when the socket takes more, so that a sender that waits for it keeps
 * no more than a socket's buffer in memory.
 */
export class Wire {
  readonly #socket: Socket;
  readonly #identity: WireIdentity;
  readonly #reader: FrameReader;
  #session: Uint8Array | undefined;
  #isDialer = false;
  #sentFrames = 0;
  #takenFrames = 0;
  #over: HandoffFault | undefined;
  #drained = Promise.withResolvers<void>();
  /** Frames of the handshake that came, and what waits for the next one. */
  readonly #early: Buffer[] = [];
  #wakeEarly: () => void = () => {};
  #onFrame: ((kind: Frame, body: Buffer) => void) | undefined;
  #onOver: (fault: HandoffFault) => void = () => {};

  private constructor(socket: Socket, identity: WireIdentity) {
    this.#socket = socket;
    this.#identity = identity;
    this.#reader = new FrameReader(() =>
      this.#session === undefined ? SMALL_BYTES_MAX : identity.frameBytesMax,
    );
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS); // a peer whose machine is gone would hold its place for ever
    socket.on('data', (part: Buffer) => this.#take(part));
    socket.on('drain', () => {
      this.#drained.resolve();
      this.#drained = Promise.withResolvers<void>();
    });
    socket.on('error', (error) => this.end(new HandoffFault('vanished', error.message)));
    socket.on('close', () => this.end(new HandoffFault('vanished', 'the peer has closed the connection')));
  }

  /** The prefill side's handshake. @throws {HandoffFault} */
  static async accept(socket: Socket, identity: WireIdentity, withinMs: number): Promise<Wire> {
    const wire = new Wire(socket, identity);
    return wire.#within(withinMs, async () => {
      const nonce = randomBytes(NONCE_BYTES);
      wire.#write(Frame.HELLO, helloHead(nonce));
      const hello = await wire.#earlyFrame(Frame.HELLO);
      const refuse = (why: string): HandoffFault => {
        wire.#write(Frame.REFUSED, Buffer.from(why));
        return new HandoffFault('refused', why);
      };
      const version = versionOf(hello);
      if (version !== VERSION) throw refuse(versionProblem(version));
      if (hello.length !== 6 + NONCE_BYTES + 16 + 4 + 32) throw refuse('its greeting has another length');
      const theirs = hello.subarray(6, 6 + NONCE_BYTES);
      const about = hello.subarray(6 + NONCE_BYTES, 6 + NONCE_BYTES + 20);
      const proof = hello.subarray(6 + NONCE_BYTES + 20);
      if (!timingSafeEqual(wire.#proof('decode', nonce, theirs, about), proof)) {
        throw refuse('it has another secret key');
      }
      if (Buffer.compare(about.subarray(0, 16), identity.layout) !== 0)
        throw refuse('its blocks have another layout');
      const generation = about.readUInt32LE(16);
      if (generation !== identity.generation) {
        throw refuse(`it has the epoch ${generation}, and the other ${identity.generation}`);
      }
      wire.#write(Frame.WELCOME, Buffer.from(wire.#proof('prefill', nonce, theirs, about)));
      wire.#session = wire.#proof('session', nonce, theirs, about);
      return wire;
    });
  }

  /** The decode side's handshake. @throws {HandoffFault} */
  static async dial(socket: Socket, identity: WireIdentity, withinMs: number): Promise<Wire> {
    const wire = new Wire(socket, identity);
    wire.#isDialer = true;
    return wire.#within(withinMs, async () => {
      const hello = await wire.#earlyFrame(Frame.HELLO);
      const version = versionOf(hello);
      if (version !== VERSION) throw new HandoffFault('refused', versionProblem(version));
      if (hello.length !== 6 + NONCE_BYTES)
        throw new HandoffFault('refused', 'its greeting has another length');
      const theirs = hello.subarray(6);
      const nonce = randomBytes(NONCE_BYTES);
      const about = Buffer.alloc(20);
      about.set(identity.layout);
      about.writeUInt32LE(identity.generation, 16);
      const proof = wire.#proof('decode', theirs, nonce, about);
      wire.#write(Frame.HELLO, Buffer.concat([helloHead(nonce), about, proof]));
      const welcome = await wire.#earlyFrame(Frame.WELCOME);
      const wanted = wire.#proof('prefill', theirs, nonce, about);
      if (welcome.length !== wanted.length || !timingSafeEqual(wanted, welcome)) {
        throw new HandoffFault('refused', 'it has another secret key');
      }
      wire.#session = wire.#proof('session', theirs, nonce, about);
      return wire;
    });
  }

  get isOver(): boolean {
    return this.#over !== undefined;
  }

  /** Frames go to `frame` from now on, and the end to `over`. */
  listen(frame: (kind: Frame, body: Buffer) => void, over: (fault: HandoffFault) => void): void {
    this.#onOver = over;
    this.#onFrame = frame;
    if (this.#over !== undefined) over(this.#over);
    else this.#take(Buffer.alloc(0));
  }

  /** Sends a frame. @param record of a BLOCK, behind its body */
  send(kind: Frame, body: Uint8Array, record?: Uint8Array): void {
    if (this.#over !== undefined || this.#session === undefined) return;
    const tag = this.#tag(this.#isDialer, this.#sentFrames++, kind, body);
    this.#write(kind, body, record, tag);
  }

  /** Fulfilled when the socket takes more; at once where it does, and at the end. */
  async sent(): Promise<void> {
    if (this.#over === undefined && this.#socket.writableNeedDrain) await this.#drained.promise;
  }

  end(fault: HandoffFault = new HandoffFault('vanished', 'the connection is closed')): void {
    if (this.#over !== undefined) return;
    this.#over = fault;
    this.#drained.resolve();
    this.#wakeEarly();
    this.#socket.end();
    this.#socket.destroySoon();
    this.#onOver(fault);
  }

  async #within(ms: number, shake: () => Promise<Wire>): Promise<Wire> {
    const cancel = runningClock.alarm(ms, () => {
      this.end(new HandoffFault('vanished', `the peer did not finish the greeting within ${ms} ms`));
    });
    try {
      return await shake();
    } catch (error) {
      const fault = error instanceof HandoffFault ? error : new HandoffFault('vanished', String(error));
      this.end(fault);
      throw fault;
    } finally {
      cancel();
    }
  }

  async #earlyFrame(kind: Frame): Promise<Buffer> {
    while (this.#early.length === 0) {
      if (this.#over !== undefined) throw this.#over;
      await new Promise<void>((resolve) => {
        this.#wakeEarly = resolve;
      });
    }
    const frame = this.#early.shift() as Buffer;
    if (frame[0] === Frame.REFUSED) {
      throw new HandoffFault('refused', `the peer refused: ${frame.toString('utf8', 1).slice(0, 200)}`);
    }
    if (frame[0] !== kind) throw new HandoffFault('refused', 'the peer does not speak this protocol');
    return frame.subarray(1);
  }

  #take(part: Buffer): void {
    this.#reader.push(part);
    try {
      // After the handshake, frames wait until they are listened to.
      while (this.#over === undefined && (this.#session === undefined || this.#onFrame !== undefined)) {
        // One at a time in the handshake: what follows its end has an authenticator.
        if (this.#session === undefined && this.#early.length > 0) return;
        const frame = this.#reader.next();
        if (frame === undefined) return;
        if (this.#session === undefined) {
          this.#early.push(frame);
          this.#wakeEarly();
        } else this.#authentic(frame);
      }
    } catch (error) {
      this.end(error instanceof HandoffFault ? error : new HandoffFault('vanished', String(error)));
    }
  }

  #authentic(frame: Buffer): void {
    const kind = frame[0] as Frame;
    if (frame.length < 1 + TAG_BYTES) throw new HandoffFault('refused', 'a frame without authenticator');
    const tag = frame.subarray(1, 1 + TAG_BYTES);
    const body = frame.subarray(1 + TAG_BYTES);
    const covered = kind === Frame.BLOCK ? body.subarray(0, 8) : body;
    if (!timingSafeEqual(this.#tag(!this.#isDialer, this.#takenFrames++, kind, covered), tag)) {
      throw new HandoffFault('refused', 'a frame whose authenticator is not the peer’s');
    }
    this.#onFrame?.(kind, body);
  }

  #write(kind: Frame, body: Uint8Array, record: Uint8Array = noBytes, tag: Uint8Array = noBytes): void {
    const head = Buffer.alloc(5 + tag.length + body.length);
    head.writeUInt32LE(1 + tag.length + body.length + record.length, 0);
    head[4] = kind;
    head.set(tag, 5);
    head.set(body, 5 + tag.length);
    if (record.length === 0) {
      this.#socket.write(head);
      return;
    }
    this.#socket.cork();
    this.#socket.write(head);
    this.#socket.write(record);
    this.#socket.uncork();
  }

  #tag(fromDialer: boolean, count: number, kind: Frame, body: Uint8Array): Uint8Array {
    const head = Buffer.alloc(10);
    head[0] = fromDialer ? 1 : 0;
    head[1] = kind;
    head.writeDoubleLE(count, 2);
    return blake2sOf(Buffer.concat([head, body]), TAG_BYTES, this.#session as Uint8Array);
  }

  #proof(purpose: string, nonce: Uint8Array, theirs: Uint8Array, about: Uint8Array): Uint8Array {
    return blake2sOf(
      Buffer.concat([Buffer.from(`${purpose} `), nonce, theirs, about]),
      32,
      this.#identity.key,
    );
  }
}

const noBytes = new Uint8Array(0);

function helloHead(nonce: Uint8Array): Buffer {
  const head = Buffer.alloc(6 + NONCE_BYTES);
  head.writeUInt32LE(MAGIC, 0);
  head.writeUInt16LE(VERSION, 4);
  head.set(nonce, 6);
  return head;
}

/** @returns undefined for a greeting that is not one of tierkv */
function versionOf(hello: Buffer): number | undefined {
  return hello.length >= 6 && hello.readUInt32LE(0) === MAGIC ? hello.readUInt16LE(4) : undefined;
}

function versionProblem(version: number | undefined): string {
  if (version === undefined) return 'the peer does not hand off KV of tierkv';
  return `the peer speaks version ${version} of the hand-off, and this side ${VERSION}`;
}
