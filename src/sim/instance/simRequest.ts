/**
 * A request on its way through a simulation: what the control plane may see of it, what the scheduler is
 * given, and what its metrics are made of. Its block keys are made when they are first read.
 */

import type { ServingRequest } from '../../runtime/batching/request.ts';
import { BlockKeys } from '../../runtime/keys/keyChain.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { RequestPriority, RequestView } from '../control/policy.ts';
import { ValueCounts } from '../metrics/requestTable.ts';
import { fnv1a64 } from '../random/goRand.ts';
import type { PromptIdentity, WorkloadRequest } from '../workload/request.ts';

export class SimRequest implements RequestView, ServingRequest {
  readonly workload: WorkloadRequest;
  /** Row of the request table, and its number for the control plane. */
  readonly number: number;
  readonly id: string;
  readonly promptTokens: number;
  maxOutputTokens: number;
  readonly arrivalUs: number;
  /** The part that an instance serves: all of it, or with a hand-off its prompt or its output. */
  part: 'whole' | 'prefill' | 'decode' = 'whole';
  /** Lower is more urgent. */
  priority = 0;
  /** Rank in the queue: lower joins the batch first, higher is preempted first; NaN where no policy ranks. */
  queueRank: number = NaN;
  victimRank: number = NaN;
  /** Leading blocks that it found cached when it first joined a batch, or -1 before. */
  foundBlocks = -1;
  /** Blocks that it found when it last asked to join a batch, by tier from HBM down; null once it has joined. */
  foundByTier: readonly number[] | null = null;
  /** Blocks whose loads began when it was announced, by the tier in which they lay; null where none did. */
  announcedByTier: readonly number[] | null = null;
  /** Step that sampled the first token since the request last joined the batch, or -1. */
  startedStep = -1;
  /** When its last token before that came, or -1: for a request that goes on after a preemption. */
  lastTokenUs = -1;
  /** Sum and number of the gaps between tokens, but for those since `startedStep`. */
  gapUs = 0;
  gaps = 0;
  /** Each gap before `startedStep`, where the request gave way; null for most. */
  pastGapsUs: number[] | null = null;
  /** Steps since `startedStep` that left the request out, in order. */
  skipped: number[] | null = null;
  /** While the prefill instance has it: where it goes on. */
  decodeInstance = -1;
  /** The instance that computed its prompt for another one, or does; -1 for none. */
  prefillInstance = -1;
  /** While it is routed again: the instances that it was routed to before, -1 for none. */
  formerTarget = -1;
  formerPrefill = -1;
  /** The priority with which it is routed next; null while it is not on its way to routing. */
  routedWith: RequestPriority | null = null;
  readonly #makeKeys: PromptKeys;
  #keys: BlockKeys | null = null;

  constructor(workload: WorkloadRequest, number: number, makeKeys: PromptKeys) {
    this.workload = workload;
    this.number = number;
    this.id = workload.id;
    this.promptTokens = workload.inputTokens;
    this.maxOutputTokens = workload.outputTokens;
    this.arrivalUs = workload.arrivalUs;
    this.#makeKeys = makeKeys;
  }

  get keys(): BlockKeys {
    if (this.#keys === null) this.#keys = this.#makeKeys.keysOf(this.workload, this.number);
    return this.#keys;
  }

  get promptBlocks(): number {
    return Math.floor(this.promptTokens / this.#makeKeys.blockTokens);
  }

  get tenantId(): string {
    return this.workload.origin.tenantId;
  }

  get sloClass(): string {
    return this.workload.origin.sloClass;
  }

  get model(): string {
    return this.workload.origin.model;
  }

  get adapter(): string {
    return this.workload.origin.adapter;
  }

  get sessionId(): string {
    return this.workload.sessionId;
  }

  get deadlineUs(): number {
    return this.workload.deadlineUs;
  }

  /** When its user gives it up; 0 for never. */
  get cancelUs(): number {
    return this.workload.cancelUs ?? 0;
  }

  get sloTargetUs(): number {
    return this.workload.origin.sloTargetUs;
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.value(
      () => ({
        part: this.part,
        pastGapsUs: this.pastGapsUs?.slice() ?? null,
        skipped: this.skipped?.slice() ?? null,
        routedWith: this.routedWith,
        foundByTier: this.foundByTier,
        announcedByTier: this.announcedByTier,
      }),
      ({ part, pastGapsUs, skipped, routedWith, foundByTier, announcedByTier }) => {
        this.part = part;
        this.pastGapsUs = pastGapsUs?.slice() ?? null;
        this.skipped = skipped?.slice() ?? null;
        this.routedWith = routedWith;
        this.foundByTier = foundByTier;
        this.announcedByTier = announcedByTier;
      },
    );
  }
}

// Keys of a request's blocks, from what its tokens are and without drawing one of them. A stream of tokens is
// cut into pieces of (source, position, count), neighbours of one source joined; the key of a block is a hash
// of its pieces and of the key before it. Equal prefixes have equal pieces, so they have equal keys. Two
// different ones collide with a chance of about 2^-128: the mixing comes from MurmurHash3 (Appleby, public
// domain). It does not protect against an adversary, and a simulation has no adversary.
//
// Where no request has tokens of another one, only a request that was preempted and comes back
// looks a block up. Until that happens keys decide nothing, and `skips` leaves them out: blocks then stay private
// and cost half. The first request that gives way ends such a run with `KeysNeeded`; it is made again with
// keys.

const LOW = 0xffff_ffff;

/** A request gave way in a run without keys: what it computed would be looked up now. */
export class KeysNeeded extends Error {
  override readonly name: string = 'KeysNeeded';
}

const noKeys = new BlockKeys(1);

/** Makes keys for one size of blocks. The same object serves any number of requests. */
export class PromptKeys {
  readonly blockTokens: number;
  readonly skips: boolean;
  readonly #lanes: Int32Array = new Int32Array(4);
  readonly #key: Uint32Array = new Uint32Array(4);
  readonly #namespaces = new Map<string, bigint>();
  #out: BlockKeys = new BlockKeys(1);
  /** Tokens that the block under way holds. */
  #filled = 0;
  /** The piece that may still grow: tokens `count` of `source` from `position` on. */
  #sourceLow = 0;
  #sourceHigh = 0;
  #position = 0;
  #count = 0;

  /** @param skips for workloads without shared tokens, on instances with one tier */
  constructor(blockTokens: number, skips: boolean = false) {
    this.blockTokens = blockTokens;
    this.skips = skips;
  }

  /** Keys of the full blocks of prompt and output together. `own` tells the request from all others. */
  keysOf(request: WorkloadRequest, own: number): BlockKeys {
    if (this.skips) return noKeys;
    const tokens = request.inputTokens + request.outputTokens;
    this.#begin(tokens);
    // what is computed under an adapter is found under it alone, as vLLM's block hashes have it
    const { adapter } = request.origin;
    if (adapter !== '') this.#seed(this.#namespace(adapter));
    this.#absorb(request.prompt, request.inputTokens, own);
    this.#absorb(request.output, request.outputTokens, own);
    this.#flush();
    return this.#out;
  }

  #begin(tokens: number): void {
    this.#out = new BlockKeys(Math.floor(tokens / this.blockTokens) + 1);
    this.#filled = 0;
    this.#count = 0;
    this.#lanes[0] = this.blockTokens;
    this.#lanes[1] = 0;
    this.#lanes[2] = 0;
    this.#lanes[3] = 0;
  }

  #seed(value: bigint): void {
    this.#lanes[2] = Number(BigInt.asIntN(32, value));
    this.#lanes[3] = Number(BigInt.asIntN(32, value >> 32n));
  }

  #absorb(identity: PromptIdentity, tokens: number, own: number): void {
    switch (identity.kind) {
      case 'drawn':
        for (const { seed, position, tokens: count } of identity.spans) this.#piece(seed, position, count);
        return;
      case 'blocks': {
        const space = this.#namespace(identity.namespace);
        let left = tokens;
        for (let i = 0; i < identity.runs.length && left > 0; i += 2) {
          const count = Math.min(left, identity.runs[i + 1] * identity.blockTokens);
          this.#piece(space, identity.runs[i] * identity.blockTokens, count);
          left -= count;
        }
        // what lies behind the last full block of a trace is the request's own
        if (left > 0) this.#piece(this.#namespace('own'), own * 2 ** 20, left);
        return;
      }
      case 'tokens':
        this.#ids(identity.tokens, tokens);
        return;
      case 'text':
        this.#ids(new TextEncoder().encode(identity.text), tokens);
    }
  }

  /** Tokens known one by one: each is a piece whose source is the token. */
  #ids(ids: ArrayLike<number>, tokens: number): void {
    for (let i = 0; i < tokens; i++) {
      this.#flush();
      this.#sourceLow = ids[i];
      this.#sourceHigh = 0;
      this.#position = 0;
      this.#count = 1;
    }
  }

  #piece(source: bigint, position: number, count: number): void {
    if (count === 0) return;
    const low = Number(BigInt.asIntN(32, source));
    const high = Number(BigInt.asIntN(32, source >> 32n));
    const joins =
      this.#count > 0 &&
      low === this.#sourceLow &&
      high === this.#sourceHigh &&
      position === this.#position + this.#count;
    if (joins) {
      this.#count += count;
      return;
    }
    this.#flush();
    this.#sourceLow = low;
    this.#sourceHigh = high;
    this.#position = position;
    this.#count = count;
  }

  /** Cuts the piece under way into blocks. */
  #flush(): void {
    const size = this.blockTokens;
    while (this.#count > 0) {
      const part = Math.min(this.#count, size - this.#filled);
      this.#mix(part);
      this.#position += part;
      this.#count -= part;
      this.#filled += part;
      if (this.#filled < size) continue;
      this.#filled = 0;
      this.#finish();
    }
  }

  #mix(part: number): void {
    const lanes = this.#lanes;
    const high = Math.floor(this.#position / 2 ** 32);
    let a = lanes[0] ^ rotated(Math.imul(this.#sourceLow, 0x239b961b), 15, 0xab0e9789);
    let b = lanes[1] ^ rotated(Math.imul(this.#sourceHigh, 0xab0e9789), 16, 0x38b34ae5);
    let c = lanes[2] ^ rotated(Math.imul(this.#position | 0, 0x38b34ae5), 17, 0xa1e38b93);
    let d = lanes[3] ^ rotated(Math.imul(part ^ Math.imul(high, 0x9e3779b1), 0xa1e38b93), 18, 0x239b961b);
    a = Math.imul(((a << 19) | (a >>> 13)) + b, 5) + 0x561ccd1b;
    b = Math.imul(((b << 17) | (b >>> 15)) + c, 5) + 0x0bcaa747;
    c = Math.imul(((c << 15) | (c >>> 17)) + d, 5) + 0x96cd1c35;
    d = Math.imul(((d << 13) | (d >>> 19)) + a, 5) + 0x32ac3b17;
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
  }

  /** The key of the block that is now full; the state goes on, so that the next key depends on it. */
  #finish(): void {
    const lanes = this.#lanes;
    const key = this.#key;
    const sum = (lanes[0] + lanes[1] + lanes[2] + lanes[3]) | 0;
    let total = 0;
    for (let i = 0; i < 4; i++) {
      key[i] = avalanche((lanes[i] + sum) | 0) & LOW;
      total = (total + key[i]) | 0;
    }
    for (let i = 0; i < 4; i++) key[i] = (key[i] + total) >>> 0;
    this.#out.append(key, 0);
  }

  #namespace(name: string): bigint {
    const known = this.#namespaces.get(name);
    if (known !== undefined) return known;
    const made = fnv1a64(name);
    this.#namespaces.set(name, made);
    return made;
  }
}

function rotated(value: number, by: number, factor: number): number {
  return Math.imul((value << by) | (value >>> (32 - by)), factor);
}

function avalanche(value: number): number {
  let x = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

// When tokens came out. All requests that decode in a step get their token at its end, so the instance keeps
// one time a step and one count a gap, and walks over no batch. A request remembers the step that gave it its
// first token; the sum of its gaps is the difference of two entries here.

export class TokenTimes {
  /** Gaps between tokens of requests that completed or still run. */
  readonly gaps: ValueCounts = new ValueCounts();
  /** Steps begun so far. */
  steps = 0;
  /** From the engine's last token to the client, added to every gap. */
  readonly #processingUs: number;
  #endsUs: Float64Array = new Float64Array(1024);

  constructor(processingUs: number) {
    this.#processingUs = processingUs;
  }

  /** A step that ends at `endUs` gives `decodes` requests a token each that is not their first. */
  note(endUs: number, decodes: number): void {
    const step = this.steps++;
    if (step === this.#endsUs.length) this.#grow();
    this.#endsUs[step] = endUs;
    if (decodes > 0) this.gaps.add(this.#gapUs(step), decodes);
  }

  /**
   * Closes the books on the tokens since the request joined the batch, up to step `last`: their gaps become
   * part of `gapUs` and `gaps`.
   */
  settle(request: SimRequest, last: number): void {
    const first = request.startedStep;
    if (first === -1) return;
    const { skipped } = request;
    // what a step leaves out at the very end brought no token
    let end = last;
    while (skipped !== null && skipped.length > 0 && skipped[skipped.length - 1] === end) {
      skipped.pop();
      end--;
    }
    const tokens = end - first - (skipped?.length ?? 0);
    request.gaps += tokens;
    request.gapUs += this.#endsUs[end] - this.#endsUs[first] + tokens * this.#processingUs;
    request.lastTokenUs = this.#endsUs[end];
    if (skipped !== null && skipped.length > 0) this.#joinGaps(skipped);
    request.startedStep = -1;
    request.skipped = null;
  }

  /** Settles a preempted request that keeps its tokens; it may still end without completing. */
  pause(request: SimRequest, last: number): void {
    const first = request.startedStep;
    if (first === -1) return;
    const past = (request.pastGapsUs ??= []);
    let fromUs = this.#endsUs[first];
    for (let step = first + 1; step <= last; step++) {
      if (request.skipped?.includes(step) === true) continue;
      past.push(this.#endsUs[step] - fromUs + this.#processingUs);
      fromUs = this.#endsUs[step];
    }
    this.settle(request, last);
  }

  /** Takes the gaps of a request that does not complete, or not with these tokens, out again. */
  forget(request: SimRequest, last: number): void {
    if (request.pastGapsUs !== null) for (const gapUs of request.pastGapsUs) this.gaps.add(gapUs, -1);
    request.pastGapsUs = null;
    const first = request.startedStep;
    if (first === -1) return;
    const { skipped } = request;
    let at = 0;
    for (let step = first + 1; step <= last; step++) {
      if (skipped !== null && skipped[at] === step) at++;
      else this.gaps.add(this.#gapUs(step), -1);
    }
    request.startedStep = -1;
    request.skipped = null;
  }

  /** The first token after a preemption: its gap reaches back to the last one before. */
  resume(request: SimRequest, endUs: number): void {
    const gapUs = endUs - request.lastTokenUs + this.#processingUs;
    this.gaps.add(gapUs, 1);
    request.pastGapsUs?.push(gapUs);
    request.gapUs += gapUs;
    request.gaps++;
  }

  #gapUs(step: number): number {
    return this.#endsUs[step] - this.#endsUs[step - 1] + this.#processingUs;
  }

  /** A step that left the request out makes the gap before its next token longer. */
  #joinGaps(skipped: readonly number[]): void {
    for (let i = 0; i < skipped.length; ) {
      const before = skipped[i] - 1;
      let step = skipped[i];
      for (; skipped[i] === step; i++) step++;
      this.gaps.add(this.#gapUs(step), -1);
      this.gaps.add(this.#endsUs[step] - this.#endsUs[before] + this.#processingUs, 1);
    }
  }

  #grow(): void {
    const grown = new Float64Array(2 * this.#endsUs.length);
    grown.set(this.#endsUs);
    this.#endsUs = grown;
  }

  visitState(visitor: StateVisitor): void {
    this.steps = visitor.number(this.steps);
    this.#endsUs = visitor.growing(this.#endsUs);
    this.gaps.visitState(visitor);
  }
}
