/**
 * The way of KV from prefill to decode instances. A request's blocks have one owner at any time:
 *
 *     local (prefill) --room on decode--> transferring --all arrived--> transferred (decode owns them)
 *
 * Blocks wait on the prefill instance, and stay held there, until the decode instance has room for them. So a
 * full decode side fills the prefill side, which then takes no new prompts: that is the back-pressure, and
 * nothing is dropped. Each prefill instance has one link, which carries one transfer after the other.
 *
 * A pipelined hand-off begins with the first step that completes a block: it asks for room for the whole
 * prompt, and sends what each step completed when that step ends. A request that gives way on the prefill
 * instance meanwhile gives the room back, so that it does not block requests whose prompt is done.
 */

import { configError, requireFinite, requirePositive } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { Instance } from '../instance/instance.ts';
import type { SimRequest } from '../instance/simRequest.ts';

export class Handoffs {
  readonly counters: HandoffCounters = {
    delayed: 0,
    completed: 0,
    bytes: 0,
    transfers: 0,
    waitedUs: 0,
    transferUs: 0,
    longestQueue: 0,
  };
  readonly #config: Required<HandoffConfig>;
  /** When each prefill instance's link is free. */
  readonly #freeAtUs: number[] = [];
  /** Hand-offs that wait for room, by decode instance, first come first served. */
  readonly #waiting: Handoff[][] = [];
  readonly #under = new Map<number, Handoff>();
  readonly #schedule: (timeUs: number, row: number) => void;
  readonly #told: (sent: HandoffSend) => void;

  /**
   * @param schedule calls `arrived` with the row at that time
   * @param told of what goes on a link
   * @throws TKV_CONFIG for a bandwidth, latency or granularity out of range
   */
  constructor(
    config: HandoffConfig,
    schedule: (timeUs: number, row: number) => void,
    told: (sent: HandoffSend) => void,
  ) {
    this.#config = checkHandoffConfig(config);
    this.#schedule = schedule;
    this.#told = told;
  }

  get isPipelined(): boolean {
    return this.#config.pipelined;
  }

  /** Whether it matters which step computed what. */
  get sendsParts(): boolean {
    return this.#config.pipelined || this.#config.granularity === 'chunk';
  }

  /** Hand-offs that wait or are under way, and those of prompts that are computed in parts. */
  get size(): number {
    return this.#under.size;
  }

  waitingFor(decode: number): number {
    return this.#waiting[decode]?.length ?? 0;
  }

  /** Hand-offs that wait for room on the decode instance, the next one first. */
  queueOf(decode: number): readonly Handoff[] {
    return this.#waiting[decode] ?? [];
  }

  /** `tokens` of the request's prompt are computed on `from` by `timeUs`. */
  computed(request: SimRequest, from: Instance, to: number, tokens: number, timeUs: number): void {
    const handoff = this.#under.get(request.number) ?? this.#open(request, from, to);
    const isWhole = tokens >= request.promptTokens;
    const there = isWhole ? handoff.blocks : Math.floor(tokens / from.blockTokens);
    const blocks = there - handoff.computedBlocks;
    if (blocks <= 0) return;
    handoff.computedBlocks = there;
    handoff.parts = [...handoff.parts, { blocks, computedUs: timeUs }];
  }

  /** The request's prompt is computed on `from` by `readyUs`: until its blocks are gone, they stay there. */
  begin(request: SimRequest, from: Instance, to: Instance, nowUs: number, readyUs: number): void {
    this.computed(request, from, to.number, request.promptTokens, readyUs);
    from.engine.hold(request, nowUs);
    const handoff = this.#under.get(request.number) as Handoff;
    handoff.readyUs = readyUs;
  }

  /** A step that computed the prompt or a part of it has ended. */
  ready(row: number, to: Instance, nowUs: number): void {
    const handoff = this.#under.get(row);
    if (handoff === undefined) return;
    if (handoff.state === 'transferring') this.#send(handoff, nowUs);
    if (handoff.askedUs !== -1 || this.#sendable(handoff, nowUs) === 0) return;
    handoff.askedUs = nowUs;
    let queue = this.#waiting[to.number];
    if (queue === undefined) this.#waiting[to.number] = queue = [];
    queue.push(handoff);
    this.serve(to, nowUs);
    if (handoff.state !== 'local') return;
    this.counters.delayed++;
    this.counters.longestQueue = Math.max(this.counters.longestQueue, queue.length);
  }

  /** The decode instance may have room for hand-offs that wait for it. */
  serve(to: Instance, nowUs: number): void {
    const queue = this.#waiting[to.number];
    if (queue === undefined) return;
    while (queue.length > 0 && to.engine.reserve(queue[0].request, nowUs)) {
      this.#start(queue.shift() as Handoff, to, nowUs);
    }
  }

  /** The last transfer has ended: the decode instance owns the blocks. */
  arrived(handoff: Handoff, from: Instance, to: Instance, nowUs: number): void {
    this.#under.delete(handoff.request.number);
    handoff.state = 'transferred';
    to.engine.fill(handoff.request, nowUs);
    from.engine.letGo(handoff.request, nowUs);
    this.counters.completed++;
    this.counters.bytes += handoff.sentBytes;
    this.counters.transfers += handoff.transfers;
    this.counters.transferUs += nowUs - handoff.startUs;
  }

  /** The request is given up before its blocks have arrived. */
  cancel(handoff: Handoff, from: Instance, to: Instance, nowUs: number): void {
    this.#under.delete(handoff.request.number);
    from.engine.letGo(handoff.request, nowUs);
    this.#leave(handoff, to, nowUs);
  }

  /** The decode instance `was` takes no more, and `to` takes its place: all that is computed goes there. */
  turn(handoff: Handoff, was: Instance, to: Instance, nowUs: number): void {
    this.#leave(handoff, was, nowUs);
    const unsent = handoff.parts.reduce((sum, { blocks }) => sum + blocks, 0);
    const sent = handoff.computedBlocks - unsent;
    if (sent > 0) handoff.parts = [{ blocks: sent, computedUs: nowUs }, ...handoff.parts];
    handoff.to = to.number;
    handoff.state = 'local';
    handoff.transfers = 0;
    handoff.foundBlocks = 0;
    handoff.sentBytes = 0;
    handoff.askedUs = -1;
    handoff.startUs = -1;
    handoff.endUs = -1;
    this.ready(handoff.request.number, to, nowUs);
  }

  /** Whether KV of prompts that are done is held on the prefill instance still. */
  holdsAny(from: number): boolean {
    for (const handoff of this.#under.values()) {
      if (handoff.from === from && handoff.readyUs !== -1) return true;
    }
    return false;
  }

  /** It has neither room on the decode instance nor a place in its queue any more. */
  #leave(handoff: Handoff, to: Instance, nowUs: number): void {
    if (handoff.state === 'transferring') to.engine.letGo(handoff.request, nowUs);
    const queue = this.#waiting[handoff.to] ?? [];
    const at = queue.indexOf(handoff);
    if (at !== -1) queue.splice(at, 1);
  }

  find(row: number): Handoff | undefined {
    return this.#under.get(row);
  }

  #open(request: SimRequest, from: Instance, to: number): Handoff {
    const blocks = Math.ceil(request.promptTokens / from.blockTokens);
    const handoff: Handoff = {
      request,
      from: from.number,
      to,
      blocks,
      bytes: blocks * from.engine.blockBytes,
      foundBlocks: 0,
      sentBytes: 0,
      state: 'local',
      readyUs: -1,
      askedUs: -1,
      startUs: -1,
      endUs: -1,
      computedBlocks: 0,
      transfers: 0,
      parts: [],
    };
    this.#under.set(request.number, handoff);
    return handoff;
  }

  #start(handoff: Handoff, to: Instance, nowUs: number): void {
    handoff.state = 'transferring';
    handoff.startUs = nowUs;
    if (this.#config.missingOnly) handoff.foundBlocks = to.engine.foundOf(handoff.request);
    this.counters.waitedUs += nowUs - handoff.askedUs;
    this.#send(handoff, nowUs);
  }

  /** Leading parts that may go. */
  #sendable({ parts, readyUs }: Handoff, nowUs: number): number {
    if (!this.isPipelined && readyUs === -1) return 0;
    let count = 0;
    while (count < parts.length && parts[count].computedUs <= nowUs) count++;
    return count;
  }

  /** Puts what may go on the link, behind what is there. */
  #send(handoff: Handoff, nowUs: number): void {
    const count = this.#sendable(handoff, nowUs);
    if (count === 0) return;
    const { baseLatencyUs, bandwidthBytesPerS, granularity } = this.#config;
    const unsent = handoff.parts.reduce((sum, part) => sum + part.blocks, 0);
    const parts = lackingOf(
      handoff.parts.slice(0, count),
      handoff.foundBlocks - handoff.computedBlocks + unsent,
    );
    const blocks = parts.reduce((sum, part) => sum + part.blocks, 0);
    const bytes = (handoff.bytes / handoff.blocks) * blocks;
    const transfers = transfersOf(granularity, parts, handoff.transfers);
    const startUs = Math.max(nowUs, this.#freeAtUs[handoff.from] ?? 0);
    const takesUs = Math.max(1, Math.ceil(transfers * baseLatencyUs + (bytes * 1e6) / bandwidthBytesPerS));
    const firstBlock = Math.max(handoff.computedBlocks - unsent, handoff.foundBlocks);
    handoff.parts = handoff.parts.slice(count);
    handoff.transfers += transfers;
    handoff.sentBytes += bytes;
    handoff.endUs = startUs + takesUs;
    this.#freeAtUs[handoff.from] = handoff.endUs;
    const { request, from, to, endUs } = handoff;
    this.#told({ request, from, to, firstBlock, blocks, bytes, transfers, sentUs: nowUs, startUs, endUs });
    const isLast = handoff.readyUs !== -1 && handoff.parts.length === 0;
    if (isLast) this.#schedule(handoff.endUs, handoff.request.number);
  }

  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    visitor.fields(this.counters);
    visitor.list(this.#freeAtUs);
    visitor.value(
      () => [...this.#under.values()].map((handoff) => ({ ...handoff, request: handoff.request.number })),
      (saved) => {
        this.#under.clear();
        for (const one of saved) this.#under.set(one.request, { ...one, request: requestOf(one.request) });
      },
    );
    visitor.value(
      () => Array.from(this.#waiting, (queue) => queue?.map(({ request }) => request.number) ?? []),
      (saved) => {
        this.#waiting.length = 0;
        for (const rows of saved) this.#waiting.push(rows.map((row) => this.#under.get(row) as Handoff));
      },
    );
  }
}

// One hand-off of a request's KV, and what is transferred at a time:
//
//     granularity   transfers, each with the base latency
//     request       one, of the whole prompt
//     chunk         one for what each prefill step computed
//     block         one for each block
//     stream        one, into which bytes flow when they are computed

export const handoffGranularities = ['request', 'chunk', 'block', 'stream'] as const;
type HandoffGranularity = (typeof handoffGranularities)[number];

export interface HandoffConfig {
  /** Base latency of each transfer. */
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
  /** The unit of one transfer. Default: `request`. */
  readonly granularity?: HandoffGranularity;
  /**
   * Whether what a prefill step computed goes while the rest of the prompt is computed. Not with `request`,
   * which has nothing to send before. Default: false.
   */
  readonly pipelined?: boolean;
  /**
   * Whether blocks stay where they are which the decode instance has already, as hand-offs of `tierkv/serve` leave
   * them. Default: false, the whole prompt goes.
   */
  readonly missingOnly?: boolean;
}

type HandoffState = 'local' | 'transferring' | 'transferred';

/** Blocks that one prefill step completed, and when it ended. */
interface HandoffPart {
  readonly blocks: number;
  readonly computedUs: number;
}

/** One hand-off, as traces have it. */
export interface Handoff {
  readonly request: SimRequest;
  readonly from: number;
  to: number;
  /** Blocks of the whole prompt. */
  readonly blocks: number;
  readonly bytes: number;
  /** Leading blocks that stay where they are: the decode instance has them. */
  foundBlocks: number;
  /** Bytes sent so far. */
  sentBytes: number;
  state: HandoffState;
  /** When the whole prompt was computed; -1 before. */
  readyUs: number;
  /** When room for it was first asked for; -1 before. */
  askedUs: number;
  /** When its first transfer could begin, and the newest ended or will end; -1 before. */
  startUs: number;
  endUs: number;
  /** Blocks that are computed, and transfers so far. */
  computedBlocks: number;
  transfers: number;
  /** Parts that are computed and not sent, in order. */
  parts: readonly HandoffPart[];
}

/** Blocks of a hand-off that go on the link together: one transfer, or one each with granularity `block`. */
export interface HandoffSend {
  readonly request: SimRequest;
  readonly from: number;
  readonly to: number;
  /** Place of the first of them in the prompt. */
  readonly firstBlock: number;
  readonly blocks: number;
  readonly bytes: number;
  /** That begin with them; 0 where they join a stream. */
  readonly transfers: number;
  /** When they were given to the link, and when it carries them. */
  readonly sentUs: number;
  readonly startUs: number;
  readonly endUs: number;
}

interface HandoffCounters {
  /** Hand-offs that had to wait for room on the decode side. */
  delayed: number;
  completed: number;
  bytes: number;
  /** Transfers that completed hand-offs took. */
  transfers: number;
  /** Sum of the times that hand-offs waited for room, and that their transfers took with queueing. */
  waitedUs: number;
  transferUs: number;
  /** Most hand-offs that waited at a time. */
  longestQueue: number;
}

/** @throws TKV_CONFIG with the setting that is wrong */
function checkHandoffConfig(config: HandoffConfig): Required<HandoffConfig> {
  const { baseLatencyUs, bandwidthBytesPerS, granularity = 'request' } = config;
  const { pipelined = false, missingOnly = false } = config;
  requirePositive('handoff.bandwidthBytesPerS', bandwidthBytesPerS);
  requireFinite('handoff.baseLatencyUs', baseLatencyUs);
  is.oneOf(handoffGranularities).read(granularity, 'handoff.granularity');
  if (pipelined && granularity === 'request') {
    const problem = 'has nothing to send before the prompt is done with granularity request';
    throw configError('handoff.pipelined', problem, 'Use chunk, block or stream.');
  }
  return { baseLatencyUs, bandwidthBytesPerS, granularity, pipelined, missingOnly };
}

/** The parts without their first `blocks` blocks, which may be 0 or less. */
function lackingOf(parts: readonly HandoffPart[], blocks: number): readonly HandoffPart[] {
  let left = blocks;
  if (left <= 0) return parts;
  return parts.flatMap((part) => {
    const here = Math.min(left, part.blocks);
    left -= here;
    return here === part.blocks ? [] : [{ ...part, blocks: part.blocks - here }];
  });
}

/** Transfers that begin when these parts are sent, after `before` earlier ones. */
function transfersOf(granularity: HandoffGranularity, parts: readonly HandoffPart[], before: number): number {
  switch (granularity) {
    case 'chunk':
      return parts.length;
    case 'block':
      return parts.reduce((sum, { blocks }) => sum + blocks, 0);
    default:
      return before === 0 ? 1 : 0;
  }
}
